use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
};

use hivekeep_kernel::{TeamId, ToolError};
use serde_json::json;

use super::*;
use crate::{
    config::DaemonFolders,
    doors::{
        control::{ControlReply, ControlRequest, ReplyBody},
        hello::{DaemonWelcome, HelloReply},
    },
};

/// A daemon that shows a team of nobody and tells no events of it.
fn deaf(listener: &UnixListener) {
    for stream in listener.incoming() {
        let stream = stream.expect("a client");
        thread::spawn(move || answer(&stream));
    }
}

fn answer(stream: &UnixStream) {
    let say =
        |mut stream: &UnixStream, line: Value| stream.write_all(format!("{line}\n").as_bytes());
    let mut lines = BufReader::new(stream).lines();
    let _hello = lines.next();
    let (version, tools) = (String::new(), String::new());
    let welcome = DaemonWelcome { version, pid: 1, tools, session: None, resumed: false };
    let welcome = serde_json::to_value(HelloReply::Welcome(welcome)).expect("plain data");
    say(stream, welcome).expect("it listens");
    for line in lines.map_while(Result::ok) {
        let request: ControlRequest = serde_json::from_str(&line).expect("a request");
        let body = match request.wanted {
            ControlMethod::Team { name, .. } => {
                let (team_id, state, members) = (TeamId::new(), "ready".to_owned(), Vec::new());
                let picture = Picture { name, team_id, state, members };
                ReplyBody::Result(json!(TeamSnapshot { seq: 1, picture }))
            }
            _ => ReplyBody::Error(Box::new(ToolError::internal("no events"))),
        };
        let reply = ControlReply { id: Some(request.id), body };
        if say(stream, json!(reply)).is_err() {
            return;
        }
    }
}

fn reach(home: &Path) -> DaemonReach {
    let at = |name: &str| home.join(name);
    let folders = DaemonFolders {
        state: at("state"),
        run: at("run"),
        logs: at("logs"),
        socket: at("socket"),
        token_file: at("token"),
    };
    DaemonReach { folders, config_args: Vec::new() }
}

#[test]
fn a_daemon_that_tells_no_events_is_not_asked_without_a_pause() {
    let home = tempfile::tempdir().expect("a folder");
    let reach = reach(home.path());
    let listener = UnixListener::bind(&reach.folders.socket).expect("a socket");
    thread::spawn(move || deaf(&listener));
    let (news, heard) = sync_channel::<FeedMessage>(64);
    follow(reach, "crew".to_owned(), news).expect("there is a team");
    let begins = || loop {
        match heard.recv_timeout(Duration::from_secs(60)).expect("it goes on") {
            FeedMessage::Begin(_) => return Instant::now(),
            FeedMessage::Away(why) => assert!(why.contains("no events"), "{why}"),
            other => panic!("{other:?}"),
        }
    };
    let first = begins();
    begins();
    let third = begins();
    // The clock here begins after the one there.
    assert!(third - first > PAUSE, "{:?}", third - first);
}
