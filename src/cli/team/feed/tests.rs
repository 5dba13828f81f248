use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
};

use hivekeep_kernel::{TeamId, ToolError};
use serde_json::json;

use super::*;
use crate::{cli::client::tests::reach, control::ReplyBody};

/// A daemon that shows a team of nobody and tells no events of it.
fn deaf(listener: &UnixListener) {
    for stream in listener.incoming() {
        let stream = stream.expect("a client");
        thread::spawn(move || answer(&stream));
    }
}

fn answer(mut stream: &UnixStream) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    // A client that only looks whether the daemon is there asks nothing.
    let Some(first) = head.first() else { return };
    let body = match first.starts_with("POST /control/team ") {
        true => {
            let picture = Picture {
                name: "crew".to_owned(),
                team_id: TeamId::new(),
                state: "ready".to_owned(),
                members: Vec::new(),
            };
            ReplyBody::Result(json!(TeamSnapshot { seq: 1, picture }))
        }
        false => ReplyBody::Error(Box::new(ToolError::internal("no events"))),
    };
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    // A client that has gone is not told.
    let _gone = stream.write_all(format!("{head}{}\n", json!(body)).as_bytes());
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
