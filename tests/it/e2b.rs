//! The door for E2B's SDKs: whom it serves before anything is asked of a sandbox. What it does with sandboxes the SDKs
//! themselves are asked, by `cargo xtask test --only e2b`.

use std::{io::Write, net::TcpStream};

use serde_json::json;

use crate::{
    home::{PATIENCE, wait_until},
    http_api::{Answer, Api, head},
};

/// The door of a daemon, and two keys of it.
struct SandboxDoor {
    /// Its requests go to the door.
    api: Api,
    key: String,
    other: String,
}

impl SandboxDoor {
    fn with(more: &[(&str, &str)]) -> Self {
        let open =
            [("HIVEKEEP_HTTP__E2B__ENABLED", "true"), ("HIVEKEEP_HTTP__E2B__BIND", "127.0.0.1:0")];
        let mut api = Api::with(&[&open, more].concat());
        let status = api.home.json(&["status", "--json"]);
        let url = status["e2b"].as_str().expect("the door is open");
        api.address = url.strip_prefix("http://").expect("a URL").to_owned();
        let key = |credential: &str| credential.replacen("hivekeep_", "e2b_", 1);
        let (key, other) = (key(&api.session), key(&api.operator));
        Self { api, key, other }
    }

    fn list(&self, key: &str) -> Answer {
        self.api.raw("GET", "/v2/sandboxes", &[("X-API-KEY", key)], None)
    }

    /// Begins a request whose body does not come.
    fn begin(&self, path: &str, rest: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.api.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let begun = format!("POST {path} HTTP/1.1\r\nHost: {}\r\n{rest}\r\n", self.api.address);
        stream.write_all(begun.as_bytes()).expect("writes");
        stream
    }
}

#[test]
fn whoever_shows_nothing_costs_an_owner_nothing() {
    let door = SandboxDoor::with(&[]);
    door.list(&door.key).of(200);
    for _ in 0..150 {
        let signed = door.api.raw("GET", "/files?path=x&signature=v1_bad", &[], None);
        assert_eq!(signed.status, 401, "{}", signed.text);
        let port = [("E2b-Sandbox-Id", "i1"), ("E2b-Sandbox-Port", "3000")];
        assert_eq!(door.api.raw("GET", "/", &port, None).status, 403);
    }
    // So many calls in the owner's name would have used its rate up.
    door.list(&door.key).of(200);
}

#[test]
fn whoever_shows_nothing_is_refused_before_a_body_is_taken_in() {
    let door = SandboxDoor::with(&[("HIVEKEEP_HTTP__E2B__MAX_BODY_MB", "1")]);
    let chunked = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
    for (path, shown) in [
        ("/sandboxes", ""),
        ("/sandboxes", "X-API-KEY: e2b_none\r\n"),
        ("/process.Process/Start", "E2b-Sandbox-Id: i1\r\n"),
        ("/process.Process/StreamInput", "E2b-Sandbox-Id: i1\r\nX-Access-Token: cred.x\r\n"),
        ("/files?path=x", "E2b-Sandbox-Id: i1\r\n"),
        ("/nowhere", ""),
    ] {
        let stranger = door.begin(path, &format!("{shown}{chunked}"));
        assert_eq!(head(stranger).0, 401, "{path} {shown}");
    }
    let key = [("X-API-KEY", &*door.key)];
    let nowhere = door.api.raw("POST", "/nowhere", &key, Some("{}"));
    assert_eq!(nowhere.status, 501, "{}", nowhere.text);
    // A body is bounded whatever the method is.
    let long = json!({ "allowOut": ["1.1.1.1"], "x": "x".repeat(1 << 20) }).to_string();
    let long = door.api.raw("PUT", "/sandboxes/i1/network", &key, Some(&long));
    assert_eq!(long.status, 429, "{}", long.text);
}

#[test]
fn one_credential_leaves_half_of_the_places_to_others() {
    let door = SandboxDoor::with(&[("HIVEKEEP_HTTP__E2B__MAX_REQUESTS", "4")]);
    let begun = format!("X-API-KEY: {}\r\nContent-Length: 10\r\n", door.key);
    let mut slow = Vec::new();
    wait_until("its places are taken", || {
        // One may find a place taken by the question whether all are.
        slow.push(door.begin("/sandboxes", &begun));
        let answer = door.list(&door.key);
        answer.status == 503 && answer.text.contains("half of what others leave")
    });
    door.list(&door.other).of(200);
    drop(slow);
    wait_until("they are free again", || door.list(&door.key).status == 200);
}
