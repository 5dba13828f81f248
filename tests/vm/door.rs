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

    /// A connection over which the daemon has said that it serves.
    pub fn reach(&self) -> std::io::Result<(UnixStream, BufReader<UnixStream>)> {
        let mut stream = UnixStream::connect(self.home.join("run/hivekeep.sock"))?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.write_all(b"{\"door\":\"control\"}\n")?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut answer = String::new();
        reader.read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((stream, reader))
    }

    /// One request.
    pub fn ask(&self, mut request: Value) -> Result<Value, Miss> {
        request["id"] = json!(1);
        let (mut stream, mut reader) = self.reach().map_err(|_| Miss::Unreached)?;
        stream.write_all(format!("{request}\n").as_bytes()).map_err(|_| Miss::Unanswered)?;
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                // A daemon that is killed while it writes leaves half a line.
                Ok(_) if line.ends_with('\n') => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.silent(&request),
                _ => return Err(Miss::Unanswered),
            }
            let reply: Value = serde_json::from_str(&line).expect("a reply is JSON");
            if let Some(result) = reply.get("result") {
                return Ok(result.clone());
            }
            if let Some(error) = reply.get("error") {
                return Err(Miss::Refused(Refusal {
                    code: error["code"].as_str().unwrap_or_default().to_owned(),
                    text: error.to_string(),
                    details: error["details"].clone(),
                }));
            }
        }
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
