//! `hivekeep team watch` on a terminal of the test's own.

use std::{
    fs::File,
    io::{Read, Write},
    num::NonZeroU16,
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::json;

use crate::house::House;

const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a program on it.
struct Terminal {
    master: File,
    slave: OwnedFd,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    /// Runs a command on a terminal of this size, which controls it.
    fn run(mut command: Command, rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pty");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("its other end");
        tcsetwinsize(&slave, size(rows, columns)).expect("sized");
        let before = tcgetattr(&slave).expect("its settings");
        let end = || Stdio::from(slave.try_clone().expect("another one"));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it runs");
        let master = File::from(master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let (mut output, seen) = (master.try_clone().expect("another one"), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                seen.lock().expect("nobody panicked").process(&bytes[..count]);
            }
        });
        Self { master, slave, before, screen, child }
    }

    fn text(&self) -> String {
        self.screen.lock().expect("nobody panicked").screen().contents()
    }

    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !holds(&self.text()) {
            assert!(begun.elapsed() < PATIENCE, "not seen: {what}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.screen
            .lock()
            .expect("nobody panicked")
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.slave, size(rows, columns)).expect("sized");
    }

    /// Waits for the program's end; the terminal has to be as it was.
    fn left(mut self, how: &str) -> ExitStatus {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ended = self.child.kill();
                panic!("{how}: it does not leave\n{}", self.text());
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let after = tcgetattr(&self.slave).expect("its settings");
        let modes = |one: &Termios| (one.input_modes, one.output_modes, one.local_modes);
        assert_eq!(modes(&after), modes(&self.before), "{how}: the terminal's settings");
        let begun = Instant::now();
        // What it wrote last may still be on its way.
        while begun.elapsed() < PATIENCE {
            let parser = self.screen.lock().expect("nobody panicked");
            if !parser.screen().alternate_screen() && !parser.screen().hide_cursor() {
                return status;
            }
            drop(parser);
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{how}: its screen was left behind");
    }
}

fn cells(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("some")
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The command on a terminal, in a session of its own, so that the terminal's keys reach it.
fn watch(house: &House, rows: u16, columns: u16) -> Terminal {
    let inner = house.command();
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(inner.get_program()).args(["team", "watch", "crew"]);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("TERM", "xterm-256color");
    Terminal::run(command, rows, columns)
}

fn once(house: &House, args: &[&str]) -> Output {
    let mut command = house.command();
    command.args(["team", "watch"]).args(args).stdin(Stdio::null());
    command.output().expect("it runs")
}

fn printed(house: &House) -> String {
    let output = once(house, &["crew", "--once"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn row<'t>(text: &'t str, member: &str) -> Vec<&'t str> {
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.first() == Some(&member)).unwrap_or_default()
}

pub fn a_team_is_watched_on_a_terminal(mut house: House) {
    let nobody = once(&house, &["crew"]);
    let error = String::from_utf8_lossy(&nobody.stderr);
    assert!(!nobody.status.success() && error.contains("no team"), "{error}");

    let roles = ["a", "b"].map(|name| json!({ "name": name, "role": "hand" }));
    let made = house.call("team", json!({ "action": "create", "name": "crew", "roles": roles }));
    let say = |house: &House, content: &str| {
        let args = json!({
            "action": "message", "name": "crew", "agent": "a", "to": "b", "content": content,
        });
        house.call("team", args)
    };
    let secret = "what it says is not shown";
    say(&house, secret);
    let text = printed(&house);
    assert_eq!(row(&text, "b")[..7], ["b", "hand", "ready", "-", "1", "0", "0"], "{text}");
    assert!(text.contains("→ b  text, 25 bytes") && !text.contains(secret), "{text}");

    let terminal = watch(&house, 20, 100);
    terminal.wait("the team", |text| row(text, "b").get(4) == Some(&"1"));
    say(&house, "two");
    terminal.wait("a message", |text| row(text, "b").get(4) == Some(&"2"));
    let got = json!({ "action": "receive", "name": "crew", "agent": "b" });
    assert_eq!(house.call("team", got)["count"], 2);
    terminal.wait("that it was taken", |text| {
        row(text, "b").get(4) == Some(&"0") && text.contains("took 2 messages")
    });
    let task =
        json!({ "task_id": "t1", "command": "until [ -e /tmp/go ]; do sleep 0.1; done; exit 3" });
    let assign = json!({
        "action": "message", "name": "crew", "agent": "a", "to": "b",
        "message_type": "task_assignment", "content": task.to_string(),
    });
    house.call("team", assign);
    terminal.wait("a task that runs", |text| {
        row(text, "b").get(2) == Some(&"working") && row(text, "b").get(5) == Some(&"1")
    });
    let worker = made["members"][1]["workspace_name"].as_str().expect("a name");
    house.exec(worker, "touch /tmp/go");
    terminal.wait("its end", |text| {
        row(text, "b").get(2) == Some(&"ready") && text.contains("ended task t1  exited 3")
    });
    let workspace = made["member_workspace_ids"][0].as_str().expect("an id");
    house.call("workspace_stop", json!({ "workspace_id": workspace }));
    terminal.wait("a stopped machine", |text| row(text, "a").get(2) == Some(&"failed:"));
    terminal.resize(8, 50);
    terminal.wait("another size", |text| {
        text.lines().nth(7).is_some_and(|line| line.trim_end() == "q leaves")
    });
    // It goes on over a restart of the daemon.
    house.kill();
    terminal.wait("that the daemon is away", |text| text.contains("away:"));
    house.start();
    terminal.wait("that it is back", |text| text.contains("q leaves"));
    (&terminal.master).write_all(b"q").expect("typed");
    assert!(terminal.left("q").success());

    let terminal = watch(&house, 20, 100);
    terminal.wait("the team", |text| row(text, "b").get(2) == Some(&"ready"));
    (&terminal.master).write_all(b"\x03").expect("typed");
    assert!(terminal.left("Ctrl-C").success());

    let terminal = watch(&house, 20, 100);
    terminal.wait("the team", |text| row(text, "b").get(2) == Some(&"ready"));
    let pid = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(!terminal.left("a signal").success());

    let terminal = watch(&house, 20, 100);
    terminal.wait("the team", |text| row(text, "b").get(2) == Some(&"ready"));
    house.call("team", json!({ "action": "destroy", "name": "crew" }));
    terminal.wait("its end", |text| text.contains("team crew  destroyed"));
    (&terminal.master).write_all(b"q").expect("typed");
    assert!(terminal.left("the end").success());
}
