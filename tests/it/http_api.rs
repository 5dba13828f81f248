//! The HTTP API of a running daemon: every route, every status, and who is let in.

mod approvals;
mod artifacts;
mod audit;
mod chats;
mod contract;
mod events;
mod idempotency;
mod limits;
mod policy;
mod runs;
mod security;
mod sessions;
mod tls;
mod webhooks;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::home::{Daemon, Home, PATIENCE};

/// A daemon with the door open, and a credential of each scope.
pub(crate) struct Api {
    pub(crate) home: Home,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) address: String,
    pub(crate) operator: String,
    pub(crate) session: String,
    pub(crate) reader: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON of an answer of this status.
    pub(crate) fn of(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    /// The code of a tool error of this status.
    pub(crate) fn code(self, status: u16) -> String {
        let body = self.of(status);
        body["error"]["code"].as_str().unwrap_or_else(|| panic!("no tool error: {body}")).to_owned()
    }

    /// The text of a plain error of this status.
    pub(crate) fn plain(self, status: u16) -> String {
        let body = self.of(status);
        body["error"].as_str().unwrap_or_else(|| panic!("no plain error: {body}")).to_owned()
    }
}

/// Variables that open the door.
pub(crate) fn opened(home: Home) -> Home {
    home.with("HIVEKEEP_HTTP__API__ENABLED", "true").with("HIVEKEEP_HTTP__API__BIND", "127.0.0.1:0")
}

pub(crate) fn credential(home: &Home, name: &str, scope: &str) -> String {
    let made = home.ok(&["credential", "create", name, "--scope", scope]);
    made.trim().to_owned()
}

impl Api {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With more variables.
    pub(crate) fn with(more: &[(&str, &str)]) -> Self {
        let home = opened(Home::new());
        Self::of(more.iter().fold(home, |home, (name, value)| home.with(name, value)))
    }

    /// In a home where it is opened.
    pub(crate) fn of(home: Home) -> Self {
        let daemon = home.daemon();
        let mut api = Self {
            address: String::new(),
            operator: credential(&home, "ops", "operator"),
            session: credential(&home, "worker", "session"),
            reader: credential(&home, "dashboard", "read-only"),
            daemon: Some(daemon),
            home,
        };
        api.find();
        api
    }

    /// Finds the door of the daemon that runs now.
    pub(crate) fn find(&mut self) {
        let status = self.home.json(&["status", "--json"]);
        let url = status["http_api"].as_str().expect("the door is open").to_owned();
        let (_, rest) = url.split_once("://").expect("a URL");
        self.address = rest.trim_end_matches("/api").to_owned();
    }

    /// Sends a request with these headers; `Host` is added where it is missing.
    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let (status, headers, mut reader) = self.begin(method, path, headers, body);
        let mut rest = Vec::new();
        let _reset_after_the_answer = reader.read_to_end(&mut rest);
        Answer { status, headers, text: String::from_utf8_lossy(&rest).into_owned() }
    }

    /// The same, up to what is about to come back.
    pub(crate) fn begin(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> (u16, BTreeMap<String, String>, BufReader<TcpStream>) {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if let Some(body) = body {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
            request.push_str("Content-Type: application/json\r\n");
        }
        if !headers.iter().any(|(name, _)| *name == "Host") {
            request.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).expect("writes");
        // A server that refuses early need not read all of it.
        let _written = stream.write_all(body.unwrap_or_default().as_bytes());
        head(stream)
    }

    pub(crate) fn get(&self, token: &str, path: &str) -> Answer {
        self.raw("GET", path, &[("Authorization", &bearer(token))], None)
    }

    pub(crate) fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.raw("POST", path, &[("Authorization", &bearer(token))], Some(&body))
    }

    pub(crate) fn invoke(&self, token: &str, tool: &str, body: &Value) -> Answer {
        self.post(token, &format!("/api/tools/{tool}/invoke"), body)
    }

    /// Opens a session; its id.
    pub(crate) fn open(&self, token: &str, body: &Value) -> String {
        let opened = self.post(token, "/api/sessions", body).of(201);
        opened["session"]["id"].as_str().expect("an id").to_owned()
    }
}

pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Status and headers of what a server says.
pub(crate) fn head(stream: TcpStream) -> (u16, BTreeMap<String, String>, BufReader<TcpStream>) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a status line");
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a header");
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    (status, headers, reader)
}

/// A note that is written, with its input.
pub(crate) fn note(path: &str, content: &str) -> Value {
    json!({ "input": { "action": "write", "path": path, "content": content } })
}
