//! The daemon's control door from a client's side.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

/// For an answer that is only wanted to explain why another did not come.
const SHORT: Duration = Duration::from_secs(5);

/// Where a daemon is asked. Cheap to clone; it may be another daemon with every call.
#[derive(Debug, Clone)]
pub struct Door {
    home: PathBuf,
    patience: Duration,
}

/// A tool's refusal, as far as tests look at it.
#[derive(Debug)]
pub struct Refusal {
    pub code: String,
    pub text: String,
    pub details: Value,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Miss {
    Refused(Refusal),
    /// No daemon was there: nothing was asked.
    Unreached,
    /// It died before it answered: what was asked is done or not.
    Unanswered,
}

impl Miss {
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Unreached | Self::Unanswered => None,
        }
    }
}

impl Door {
    /// Of the daemon whose folders are in `home`. An answer that takes longer than `patience` is
    /// a failure of the test.
    pub fn new(home: &Path, patience: Duration) -> Self {
        Self { home: home.to_owned(), patience }
    }

    /// Whether the daemon serves.
    pub fn serves(&self) -> bool {
        self.exchange(&json!({ "method": "ps", "params": {} })).is_ok_and(|told| told.is_ok())
    }

    /// One request: a method and its parameters.
    pub fn ask(&self, request: Value) -> Result<Value, Miss> {
        match self.exchange(&request) {
            Ok(told) => told,
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.silent(&request),
            Err(_) => Err(Miss::Unanswered),
        }
    }

    fn exchange(&self, request: &Value) -> std::io::Result<Result<Value, Miss>> {
        let (method, params) = (request["method"].as_str(), request["params"].to_string());
        let (method, length) = (method.expect("a method"), params.len());
        // Nothing is cut into chunks for HTTP/1.0.
        let head = format!("POST /control/{method} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
        let Ok(mut reader) = self.say(&format!("{head}{params}")) else {
            return Ok(Err(Miss::Unreached));
        };
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            // A daemon that is killed while it writes leaves half a line.
            if !line.ends_with('\n') {
                return Ok(Err(Miss::Unanswered));
            }
            if line.starts_with("{\"refused\"") {
                // A daemon of an older version.
                let mut request = request.clone();
                request["id"] = json!(1);
                reader = self.say(&format!("{{\"door\":\"control\"}}\n{request}\n"))?;
            }
            // Lines of the head are no JSON.
            let reply: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(result) = reply.get("result") {
                return Ok(Ok(result.clone()));
            }
            if let Some(error) = reply.get("error") {
                return Ok(Err(Miss::Refused(Refusal {
                    code: error["code"].as_str().unwrap_or_default().to_owned(),
                    text: error.to_string(),
                    details: error["details"].clone(),
                })));
            }
        }
    }

    fn say(&self, words: &str) -> std::io::Result<BufReader<UnixStream>> {
        let mut stream = UnixStream::connect(self.home.join("run/hivekeep.sock"))?;
        stream.set_read_timeout(Some(self.patience))?;
        // A daemon that has heard enough has answered already.
        let _heard_enough = stream.write_all(words.as_bytes());
        Ok(BufReader::new(stream))
    }

    /// A tool call.
    pub fn call(&self, tool: &str, args: Value) -> Result<Value, Miss> {
        self.ask(json!({ "method": "call", "params": { "tool": tool, "args": args } }))
    }

    fn silent(&self, request: &Value) -> ! {
        let log = std::fs::read_to_string(self.home.join("stderr")).unwrap_or_default();
        if request["method"] == "ps" {
            panic!("the daemon does not even tell its actors\n{log}");
        }
        let short = Self::new(&self.home, SHORT);
        let actors = match short.ask(json!({ "method": "ps", "params": {} })) {
            Ok(actors) => serde_json::to_string_pretty(&actors).expect("JSON"),
            Err(miss) => format!("{miss:?}"),
        };
        panic!("no answer in {:?} to {request}\nactors: {actors}\nlog: {log}", self.patience);
    }
}
