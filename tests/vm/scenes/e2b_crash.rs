//! A daemon that dies in the middle of each operation of the door for E2B's SDKs: what was acknowledged holds, what was
//! not is done or not done, and can be asked for again.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    e2b::Sdk,
    http_api::{Caller, credential},
};
use crate::{
    house::{House, Kind, PATIENCE},
    leaks,
};

const NOTHING: Value = Value::Null;

/// Somebody with a sandbox, and a daemon that dies over what it is asked for.
struct Stage {
    house: House,
    credential: String,
    sdk: Sdk,
    caller: Caller,
    id: String,
    token: String,
    /// How long an operation takes that nobody disturbs, at most.
    patience: Duration,
}

type Answer = Option<(u16, Value)>;

fn acknowledged(answer: &Answer) -> bool {
    match answer {
        None => false,
        Some((200..=299, _)) => true,
        Some(other) => panic!("it was refused: {other:?}"),
    }
}

impl Stage {
    /// Asks, and kills the daemon at a random time from then on; starts it again. What was answered before.
    fn dies_over(&mut self, ask: impl FnOnce(&Sdk) -> Answer + Send + 'static) -> Answer {
        let sdk = Sdk::new(&self.house, &self.credential);
        let asked = std::thread::spawn(move || ask(&sdk));
        let mut random = [0; 4];
        getrandom::fill(&mut random).expect("random bytes");
        let patience_us = u32::try_from(self.patience.as_micros()).expect("seconds");
        std::thread::sleep(Duration::from_micros(
            (u32::from_le_bytes(random) % patience_us).into(),
        ));
        self.house.kill();
        let answer = asked.join().expect("it ended");
        self.house.start();
        self.sdk = Sdk::new(&self.house, &self.credential);
        self.caller = Caller::again(&self.house, self.credential.clone());
        answer
    }

    /// Asks again until it is done.
    fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}\n{}", self.house.stderr());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn path(&self, more: &str) -> String {
        format!("/sandboxes/{}{more}", self.id)
    }

    fn exec(&self, command: &str) -> String {
        let args = json!({ "workspace_id": self.id, "command": command });
        let ran = self.caller.ok("exec", &args);
        assert_eq!(ran["exit_code"], 0, "{command}: {ran}");
        ran["stdout"].as_str().expect("text").trim().to_owned()
    }

    fn info(&self) -> Value {
        self.caller.ok("workspace_info", &json!({ "workspace_id": self.id }))
    }

    fn snapshots(&self) -> Vec<Value> {
        let listed =
            self.caller.ok("snapshot", &json!({ "workspace_id": self.id, "action": "list" }));
        listed["snapshots"].as_array().expect("rows").clone()
    }

    /// As its client would be told, with the state of one that settles.
    fn state(&self) -> String {
        self.until("it settles", |stage| {
            !["starting", "stopping"].contains(&stage.info()["state"].as_str().expect("a state"))
        });
        self.sdk.get(&self.path(""))["state"].as_str().expect("a state").to_owned()
    }
}

pub fn a_daemon_dies_over_each_operation(house: House) {
    let credential = credential(&house, "sdk", "session");
    let (sdk, caller) = (Sdk::new(&house, &credential), Caller::again(&house, credential.clone()));
    let vm = house.kind == Kind::Vm;
    let begun = Instant::now();
    let (id, token) = sdk.create();
    let patience = begun.elapsed();
    let mut stage = Stage { house, credential, sdk, caller, id, token, patience };
    remove(&mut stage);
    // Emulated machines take their time.
    for round in 0..if vm { 1 } else { 3 } {
        create(&mut stage, round);
        upload(&mut stage, round);
        process(&mut stage);
        lifetime(&mut stage);
        if vm {
            snapshot(&mut stage, round);
            pause(&mut stage);
            fork(&mut stage);
        }
        remove(&mut stage);
    }
    leaks::check(&stage.house);
}

/// Asked for again with its key, it is one sandbox and whole.
fn create(stage: &mut Stage, round: usize) {
    let key = format!("Idempotency-Key: key-{round}\r\n");
    let body = json!({
        "templateID": "base", "timeout": 600, "envVars": { "A": "one" }, "metadata": { "round": round.to_string() },
        "network": { "allowPublicTraffic": true },
    });
    let (again, wanted) = (key.clone(), body.clone());
    let answer = stage.dies_over(move |sdk| sdk.ask("POST", "/v2/sandboxes", &key, &body));
    let mut made = NOTHING;
    stage.until("it is created", |stage| {
        let answer = stage.sdk.ask("POST", "/v2/sandboxes", &again, &wanted);
        let (status, body) = answer.expect("an answer");
        println!("{status} {body}");
        made = body;
        status == 201
    });
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    (stage.id, stage.token) = (text("sandboxID"), text("envdAccessToken"));
    if acknowledged(&answer) {
        assert_eq!(answer.expect("one").1["sandboxID"], stage.id);
    }
    assert_eq!(stage.exec("echo $A; echo volatile > /dev/shm/x"), "one");
    let listed = stage.sdk.get("/v2/sandboxes");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed[0]["metadata"], json!({ "round": round.to_string() }));
}

/// A small file is the old one or the new one, and the new one once that was said.
fn upload(stage: &mut Stage, round: usize) {
    let text = |round: usize| format!("{round}").repeat(100_000);
    // The group stays root's, which the user may not give to another file.
    let folder = stage.exec("cd ~user && echo old > f && chown user f && pwd");
    let (headers, body) = (file_headers(stage), text(round));
    let answer = stage.dies_over(move |sdk| {
        let path = "/files?path=f";
        sdk.send("POST", path, &headers, "application/octet-stream", body.as_bytes())
    });
    let now = stage.exec(&format!("cat {folder}/f"));
    assert!(now == text(round) || (now == "old" && !acknowledged(&answer)), "{} bytes", now.len());
}

fn file_headers(stage: &Stage) -> String {
    format!("E2b-Sandbox-Id: {}\r\nX-Access-Token: {}\r\n", stage.id, stage.token)
}

/// A process that was started runs to its end, once.
fn process(stage: &mut Stage) {
    stage.exec("rm -f /tmp/runs; touch /tmp/runs; chown user /tmp/runs");
    let message = json!({ "process": {
        "cmd": "/bin/bash", "args": ["-c", "sleep 0.2; echo ran >> /tmp/runs; echo said"],
    } })
    .to_string();
    let length = u32::try_from(message.len()).expect("short");
    let envelope = [&[0], &length.to_be_bytes()[..], message.as_bytes()].concat();
    let headers = file_headers(stage);
    let started = stage.dies_over(move |sdk| {
        let path = "/process.Process/Start";
        // It breaks off where the daemon died.
        sdk.send("POST", path, &headers, "application/connect+json", &envelope)
    });
    // The head of the answer comes before it is started.
    if started.is_some_and(|(_, events)| events.as_str().is_some_and(|it| it.contains("pid"))) {
        stage.until("it runs", |stage| !stage.exec("cat /tmp/runs").is_empty());
    }
    stage.exec("sleep 0.5");
    let runs = stage.exec("cat /tmp/runs");
    assert!(["", "ran"].contains(&&*runs), "{runs}");
}

fn lifetime(stage: &mut Stage) {
    let (path, before) = (stage.path("/timeout"), stage.info()["ends_at"].clone());
    let answer =
        stage.dies_over(move |sdk| sdk.ask("POST", &path, "", &json!({ "timeout": 1200 })));
    let after = stage.info()["ends_at"].clone();
    assert!(after.is_string() && (after != before || !acknowledged(&answer)), "{before} {after}");
}

/// It is there once it was said, and is gone once that was said.
fn snapshot(stage: &mut Stage, round: usize) {
    let (path, name) = (stage.path("/snapshots"), format!("s{round}"));
    let (asked, id) = (json!({ "name": name }), format!("{}:{name}", stage.id));
    let answer = stage.dies_over(move |sdk| sdk.ask("POST", &path, "", &asked));
    stage.until("it settles", |stage| stage.info()["state"] == "running");
    let there = |stage: &Stage| stage.snapshots().iter().any(|row| row["name"] == name);
    assert!(there(stage) || !acknowledged(&answer), "it is lost");
    if !there(stage) {
        return;
    }
    let path = format!("/templates/{id}");
    let again = path.clone();
    let answer = stage.dies_over(move |sdk| sdk.ask("DELETE", &path, "", &NOTHING));
    assert!(!there(stage) || !acknowledged(&answer), "it is there");
    stage.until("it goes", |stage| {
        !there(stage) || stage.sdk.ask("DELETE", &again, "", &NOTHING).is_none()
    });
}

/// It stands still once that was said, goes on once that was said, and has what it had in its memory.
fn pause(stage: &mut Stage) {
    let path = stage.path("/pause");
    let answer = stage.dies_over(move |sdk| sdk.ask("POST", &path, "", &json!({})));
    let state = stage.state();
    assert!(state == "paused" || !acknowledged(&answer), "{state}");
    if state == "running" {
        let set = stage.info();
        assert!(set["ends_at"].is_string() || set["idle_park_secs"].is_u64(), "never ends: {set}");
        stage.sdk.ok("POST", &stage.path("/pause"), "", &json!({}));
    }
    let path = stage.path("/connect");
    let asked = json!({ "timeout": 600 });
    let answer = stage.dies_over(move |sdk| sdk.ask("POST", &path, "", &asked));
    let state = stage.state();
    assert!(state == "running" || !acknowledged(&answer), "{state}");
    let set = stage.info();
    let kept = state == "paused" || set["ends_at"].is_string() || set["idle_park_secs"].is_u64();
    assert!(kept, "never ends: {set}");
    stage.sdk.ok("POST", &stage.path("/connect"), "", &json!({ "timeout": 600 }));
    assert!(stage.info()["ends_at"].is_string());
    // What else wakes it gives it no end; a client that connects does.
    stage.sdk.ok("POST", &stage.path("/pause"), "", &json!({}));
    assert_eq!(stage.exec("cat /dev/shm/x"), "volatile");
    assert!(stage.info()["ends_at"].is_null());
    stage.sdk.ok("POST", &stage.path("/connect"), "", &json!({ "timeout": 600 }));
    assert!(stage.info()["ends_at"].is_string());
}

/// What was made of it has an end, and is whole; nothing else is left.
fn fork(stage: &mut Stage) {
    let path = stage.path("/fork");
    let answer = stage
        .dies_over(move |sdk| sdk.ask("POST", &path, "", &json!({ "count": 2, "timeout": 600 })));
    // It stays for those that begin with it.
    stage.until("its snapshot goes", |stage| {
        stage.snapshots().iter().all(|row| row["dependents"] != json!([]))
    });
    let forks = |stage: &Stage| -> Vec<String> {
        let listed = stage.sdk.get("/v2/sandboxes");
        let ids = listed.as_array().expect("rows").iter();
        let ids = ids.map(|row| row["sandboxID"].as_str().expect("text").to_owned());
        ids.filter(|id| *id != stage.id).collect()
    };
    let made = forks(stage);
    assert!(made.len() == 2 || !acknowledged(&answer), "{made:?}");
    for id in &made {
        let info = stage.caller.ok("workspace_info", &json!({ "workspace_id": id }));
        assert!(info["ends_at"].is_string(), "{info}");
        let args = json!({ "workspace_id": id, "command": "cat /dev/shm/x" });
        assert_eq!(stage.caller.ok("exec", &args)["stdout"], "volatile\n");
        stage.sdk.ok("DELETE", &format!("/sandboxes/{id}"), "", &NOTHING);
    }
}

fn remove(stage: &mut Stage) {
    let path = stage.path("");
    let answer = stage.dies_over(move |sdk| sdk.ask("DELETE", &path, "", &NOTHING));
    let gone = |stage: &Stage| stage.sdk.ask("GET", &stage.path(""), "", &NOTHING);
    if acknowledged(&answer) {
        assert_eq!(gone(stage).expect("an answer").0, 404);
    }
    stage.until("it goes", |stage| {
        let answer = stage.sdk.ask("DELETE", &stage.path(""), "", &NOTHING);
        answer.expect("an answer").0 == 404
    });
    stage.until("nothing is left", |stage| stage.house.list().is_empty());
}
