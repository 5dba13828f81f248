//! A workspace over the HTTP API: its secrets are written nowhere, and nobody but its owner reaches it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::{Value, json};

use crate::house::House;

pub const CONFIG: &str =
    "[audit]\nenabled = true\n[http.api]\nenabled = true\nbind = \"127.0.0.1:0\"\n";

const KEY: &str = "Zq7-env-9vT2mWt4e8RbYc1x";
const TOKEN: &str = "Hh3-git-5kP8nLs6d1QwUa9z";

/// A new credential.
pub fn credential(house: &House, name: &str, scope: &str) -> String {
    run(house, &["credential", "create", name, "--scope", scope]).trim().to_owned()
}

/// Prints of a command that must succeed.
pub fn run(house: &House, args: &[&str]) -> String {
    let output = house.command().args(args).output().expect("the program runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Somebody with a credential.
pub struct Caller {
    address: String,
    pub credential: String,
}

impl Caller {
    pub fn new(house: &House, name: &str) -> Self {
        Self::again(house, credential(house, name, "session"))
    }

    /// The same somebody, with a daemon that was started again.
    pub fn again(house: &House, credential: String) -> Self {
        let status = run(house, &["status", "--json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let url = status["http_api"].as_str().expect("the door is open");
        let address = url.trim_start_matches("http://").trim_end_matches("/api").to_owned();
        Self { address, credential }
    }

    /// Calls a tool, by its name or its id; status and body.
    pub fn call(&self, tool: &str, input: &Value, session: Option<&str>) -> (u16, Value) {
        let body = json!({ "input": input, "session_id": session });
        let path = format!("/api/tools/{}/invoke", tool.replace('.', "_"));
        let (status, body) = self.request("POST", &path, &body);
        (status, serde_json::from_str(&body).expect("JSON"))
    }

    /// Asks a route; status and body.
    pub fn request(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let Self { address, credential } = self;
        let body = body.to_string();
        let mut stream = TcpStream::connect(address).expect("connects");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Authorization: Bearer {credential}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    pub fn ok(&self, tool: &str, input: &Value) -> Value {
        let (status, body) = self.call(tool, input, None);
        assert_eq!(status, 200, "{tool}: {body}");
        body["result"]["structured"].clone()
    }

    fn exec(&self, command: &str, env: &Value) -> String {
        let input = json!({ "workspace_id": "w", "command": command, "env": env });
        let ran = self.ok("exec", &input);
        assert_eq!(ran["exit_code"], 0, "{command}: {ran}");
        ran["stdout"].as_str().expect("text").to_owned()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| (entry.file_type(), entry.path()));
    paths
        .flat_map(|(kind, path)| match kind {
            Ok(kind) if kind.is_dir() => files(&path),
            Ok(kind) if kind.is_file() => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

/// A command with a secret in its environment, and a git that is told a token.
fn use_secrets(owner: &Caller) {
    let env = json!({ "API_KEY": KEY });
    assert_eq!(
        owner.exec("echo ${#API_KEY}; test -n \"$API_KEY\"", &env),
        format!("{}\n", KEY.len())
    );
    let script = "#!/bin/sh\n\
        about='protocol=http\nhost=127.0.0.1:8099'\n\
        told=$(printf '%s\\n\\n' \"$about\" | git credential fill) || exit 128\n\
        word=${told##*password=}\n\
        printf %s ${#word} > /srv/told\n\
        exit 1\n";
    let folder = owner.exec("mkdir -p /srv && git --exec-path", &json!({}));
    let path = format!("{}/git-remote-http", folder.trim());
    let write = json!({ "workspace_id": "w", "path": path, "content": script, "mode": "0755" });
    owner.ok("file_write", &write);
    let clone = json!({ "workspace_id": "w", "path": "r", "url": "http://127.0.0.1:8099/r.git",
        "credential": { "username": "somebody", "token": TOKEN } });
    let (status, _failed) = owner.call("git_clone", &clone, None);
    assert_eq!(status, 502, "the script is not a git");
    assert_eq!(owner.exec("cat /srv/told", &json!({})), TOKEN.len().to_string(), "it was used");
}

/// What a session leaves that has ended is for its user, and for an operator who names it, in the next daemon
/// too.
fn left_behind(house: &mut House, (owner, other): (&Caller, &Caller), session: &str) {
    let counts = |caller: &Caller| caller.ok("workspace_list", &json!({}))["count"].clone();
    assert_eq!((counts(owner), counts(other)), (json!(1), json!(0)));
    let end = json!({ "method": "end_session", "params": { "session": session } });
    house.ask(end).expect("ended");
    for restarted in [false, true] {
        if restarted {
            house.kill();
            house.start();
        }
        let [owner, other] = [owner, other].map(|it| Caller::again(house, it.credential.clone()));
        assert_eq!(other.ok("workspace_adopt", &json!({}))["adopted_count"], 0);
        for force in [false, true] {
            let adopt = json!({ "workspace_id": "w", "force": force });
            let (_, body) = other.call("workspace_adopt", &adopt, None);
            let code = &body["error"]["details"]["code"];
            assert_eq!((code, counts(&other)), (&json!("workspace_not_found"), json!(0)), "{body}");
        }
        assert_eq!(counts(&owner), 1);
    }
    let [owner, other] = [owner, other].map(|it| Caller::again(house, it.credential.clone()));
    let operator = Caller::again(house, credential(house, "ops", "operator"));
    assert_eq!(operator.ok("workspace_adopt", &json!({}))["adopted_count"], 0, "it names none");
    let named = json!({ "workspace_id": "w" });
    assert_eq!(operator.ok("workspace_adopt", &named)["adopted_one"], true);
    assert_eq!(operator.exec("cat /root/kept", &json!({})), "mine\n");
    assert_eq!((counts(&owner), counts(&other)), (json!(0), json!(0)), "it is the operator's");
}

pub fn a_workspace_is_its_owners_and_its_secrets_are_written_nowhere(mut house: House) {
    let (owner, other) = (Caller::new(&house, "owner"), Caller::new(&house, "other"));
    owner.ok("workspace_create", &json!({ "name": "w" }));
    owner.exec("echo mine > /root/kept", &json!({}));
    use_secrets(&owner);

    let id = owner.ok("workspace_info", &json!({ "workspace_id": "w" }))["workspace_id"].clone();
    assert!(id.is_string(), "{id}");
    let list = house.command().args(["sessions", "--json"]).output().expect("runs").stdout;
    let sessions: Value = serde_json::from_slice(&list).expect("JSON");
    let of_owner =
        sessions.as_array().expect("rows").iter().find(|row| row["used"]["workspaces"] == 1);
    let of_owner =
        of_owner.unwrap_or_else(|| panic!("{sessions}"))["session"].as_str().expect("an id");
    for name in [&json!("w"), &id] {
        for (tool, more) in [
            ("workspace_info", json!({})),
            ("exec", json!({ "command": "echo theirs > /root/kept" })),
            ("exec_background", json!({ "action": "start", "command": "true" })),
            ("file_read", json!({ "path": "/root/kept" })),
            ("file_write", json!({ "path": "/root/kept", "content": "theirs" })),
            ("git_clone", json!({ "path": "r", "url": "http://127.0.0.1:8099/r.git" })),
            ("workspace_stop", json!({})),
            ("workspace_destroy", json!({})),
        ] {
            let mut input = json!({ "workspace_id": name });
            input.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
            let (status, body) = other.call(tool, &input, None);
            assert!(matches!(status, 403 | 404 | 502), "{tool}: {status} {body}");
            let code = body["error"]["details"]["code"].as_str().expect("a code");
            assert!(["not_owner", "workspace_not_found"].contains(&code), "{tool}: {body}");
            let (status, body) = other.call(tool, &input, Some(of_owner));
            assert_eq!(status, 404, "{tool} in its owner's session: {body}");
        }
    }
    assert_eq!(owner.exec("cat /root/kept", &json!({})), "mine\n");
    left_behind(&mut house, (&owner, &other), of_owner);

    let shown = ["events", "logs"].map(|what| {
        house.command().args([what, "--json"]).output().expect("the program runs").stdout
    });
    let kept = files(house.path()).into_iter().filter_map(|path| {
        let bytes = std::fs::read(&path).ok()?;
        Some((path.display().to_string(), bytes))
    });
    let all: Vec<_> = kept.chain(shown.map(|text| ("told".to_owned(), text))).collect();
    assert!(
        all.iter().any(|(_, text)| has(text, "git_clone_failed")),
        "what is looked through tells of it"
    );
    for secret in [KEY, TOKEN] {
        for form in [
            secret.to_owned(),
            STANDARD_NO_PAD.encode(secret),
            STANDARD_NO_PAD.encode(format!("somebody:{secret}")),
        ] {
            let found: Vec<_> =
                all.iter().filter(|(_, text)| has(text, &form)).map(|(place, _)| place).collect();
            assert!(found.is_empty(), "{form} is in {found:?}");
        }
    }
}

fn has(text: &[u8], part: &str) -> bool {
    let literal = regex::bytes::Regex::new(&regex::escape(part)).expect("a literal");
    literal.is_match(text)
}
