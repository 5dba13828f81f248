//! The way of a subcommand to the daemon: the options before it, the configuration, a client of the control door.

use std::{ffi::OsString, io, path::PathBuf, time::Duration};

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::{TryStreamExt as _, stream::MapErr};
use hivekeep_config::{ConfigProblems, ConfigSources, LoadedConfig};
use hivekeep_door_server::lines::{LineOutcome, LineReader};
use hyper::{Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::{
    net::UnixStream,
    runtime::{Builder, Runtime},
    time::timeout,
};
use tokio_util::io::StreamReader;

use super::{
    CommandFailure,
    reach::{DaemonReach, Unreachable},
};
use crate::control::{ControlMethod, ReplyBody};

// Its documentation would become the program's.
#[derive(Debug, clap::Args)]
pub(super) struct Global {
    /// The configuration file, instead of the first that is found.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one configuration key, for example `daemon.log_level=debug`.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

/// The command line of this process, as every subcommand needs it.
pub(crate) struct CliContext {
    global: Global,
}

impl CliContext {
    pub(super) fn new(global: Global) -> Self {
        Self { global }
    }

    /// The effective configuration.
    pub(super) fn load(&self) -> Result<LoadedConfig, ConfigProblems> {
        hivekeep_config::load(&ConfigSources::from_process(
            self.global.config.clone(),
            self.flags(),
        ))
    }

    fn flags(&self) -> Vec<(String, String)> {
        self.global.set.iter().map(|text| ("--set".to_owned(), text.clone())).collect()
    }

    /// The way to the daemon of this configuration.
    pub(super) fn reach(&self, loaded: &LoadedConfig) -> DaemonReach {
        let mut config_args: Vec<OsString> = Vec::new();
        if let Some(file) = &loaded.file {
            // Absolute: the daemon works from the root folder.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            config_args.extend(["--config".into(), file.into()]);
        }
        for text in &self.global.set {
            config_args.extend(["--set".into(), text.into()]);
        }
        DaemonReach { folders: loaded.folders.clone(), config_args }
    }

    /// A connection to the running daemon.
    pub(super) fn client(&self) -> Result<Client, CommandFailure> {
        Ok(Client::connect(&self.reach(&self.load()?))?)
    }
}

/// The longest answer taken.
const MAX_ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// Time that a daemon may take to begin an answer: more than a long request may wait for room.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(75);

/// A client of one daemon that runs. Each request has a connection of its own.
pub(super) struct Client {
    reach: DaemonReach,
    /// Process of the daemon, once it was asked.
    pub(super) pid: Option<i32>,
    held: Option<Answer>,
}

impl Client {
    /// Finds the running daemon; starts none.
    ///
    /// # Errors
    /// When none runs.
    pub(super) fn connect(reach: &DaemonReach) -> Result<Self, Unreachable> {
        reach.connect()?;
        Ok(Self { reach: reach.clone(), pid: None, held: None })
    }

    /// Asks and waits for the result; what comes before it goes to `item`.
    ///
    /// # Errors
    /// The daemon's refusal, or `item`'s.
    pub(super) fn ask(
        &mut self,
        wanted: ControlMethod,
        mut item: impl FnMut(Value) -> Result<(), CommandFailure>,
    ) -> Result<Value, CommandFailure> {
        let mut answer = self.begin(&wanted)?;
        let result = loop {
            match answer.next()? {
                ReplyBody::Item(value) => item(value)?,
                ReplyBody::Result(value) => break Ok(value),
                ReplyBody::Error(error) => break Err(CommandFailure::from(*error)),
            }
        };
        // An answer that is not read to its end counts as one that did not arrive.
        let _end = answer.runtime.block_on(answer.lines.next());
        result
    }

    /// Asks, and waits for what comes first. The request goes on until this is dropped.
    ///
    /// # Errors
    /// As [`Client::ask`], and for an answer without items.
    pub(super) fn first<T: serde::de::DeserializeOwned>(
        &mut self,
        wanted: ControlMethod,
    ) -> Result<T, CommandFailure> {
        let mut answer = self.begin(&wanted)?;
        match answer.next()? {
            ReplyBody::Item(value) => {
                self.held = Some(answer);
                serde_json::from_value(value).map_err(|error| broken(&error))
            }
            ReplyBody::Result(_) => Err(broken(&"it answered nothing")),
            ReplyBody::Error(error) => Err(CommandFailure::from(*error)),
        }
    }

    fn begin(&mut self, wanted: &ControlMethod) -> Result<Answer, CommandFailure> {
        let wanted = serde_json::to_value(wanted).map_err(|error| broken(&error))?;
        let path = format!("/control/{}", wanted["method"].as_str().unwrap_or_default());
        let request = Request::post(path).header(header::HOST, "localhost");
        let request = request.header(header::CONNECTION, "close");
        let request = request.body(Body::from(wanted["params"].to_string()));
        let request = request.map_err(|error| broken(&error))?;
        let stream = self.reach.connect()?;
        stream.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let lines = runtime.block_on(async {
            let stream = UnixStream::from_std(stream)?;
            let pid = stream.peer_cred()?.pid().unwrap_or_default();
            if *self.pid.get_or_insert(pid) != pid {
                return Err(broken(&"it was started anew"));
            }
            let shaken = http1::handshake(TokioIo::new(stream)).await;
            let (mut sender, connection) = shaken.map_err(|error| broken(&error))?;
            tokio::spawn(connection);
            let answer = timeout(BEGIN_TIMEOUT, sender.send_request(request)).await;
            let answer = answer.map_err(|_| broken(&"it does not answer"))?;
            let answer = answer.map_err(|error| match error.is_parse() {
                true => Unreachable::OlderVersion(pid).into(),
                false => broken(&error),
            })?;
            let pieces = Body::new(answer.into_body()).into_data_stream();
            let pieces = pieces.map_err(io::Error::other as fn(axum::Error) -> io::Error);
            Ok(LineReader::new(StreamReader::new(pieces), MAX_ANSWER_BYTES))
        })?;
        Ok(Answer { lines, runtime })
    }

    /// Asks for a single result.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(super) fn get(&mut self, wanted: ControlMethod) -> Result<Value, CommandFailure> {
        self.ask(wanted, |_| Ok(()))
    }

    /// Asks for a single result of a known type.
    ///
    /// # Errors
    /// As [`Client::ask`], and when the daemon answers with something else.
    pub(super) fn get_as<T: serde::de::DeserializeOwned>(
        &mut self,
        wanted: ControlMethod,
    ) -> Result<T, CommandFailure> {
        let value = self.get(wanted)?;
        serde_json::from_value(value).map_err(|error| broken(&error))
    }
}

type Pieces = MapErr<BodyDataStream, fn(axum::Error) -> io::Error>;

/// An answer on its way; its request ends when this is dropped.
struct Answer {
    lines: LineReader<StreamReader<Pieces, Bytes>>,
    /// Runs the connection.
    runtime: Runtime,
}

impl Answer {
    fn next(&mut self) -> Result<ReplyBody, CommandFailure> {
        match self.runtime.block_on(self.lines.next()).map_err(|error| broken(&error))? {
            LineOutcome::Whole(line) => {
                serde_json::from_slice(line).map_err(|error| broken(&error))
            }
            LineOutcome::TooLong => Err(broken(&"its answer is too long")),
            LineOutcome::End => Err(broken(&"it ended before it answered")),
        }
    }
}

fn broken(why: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::Other(format!("the talk with the daemon broke off: {why}; see `hivekeep logs`"))
}

/// Input of a tool.
pub(super) fn object(input: Value) -> Map<String, Value> {
    match input {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        os::unix::net::UnixListener,
        path::Path,
    };

    use super::*;
    use hivekeep_config::DaemonFolders;

    /// The way to a daemon whose folders are all below `home`.
    pub(in crate::cli) fn reach(home: &Path) -> DaemonReach {
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
    fn a_daemon_that_knows_lines_alone_is_told_by_its_answer() {
        let home = tempfile::tempdir().expect("a folder");
        let reach = reach(home.path());
        let listener = UnixListener::bind(&reach.folders.socket).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut line) = (stream.expect("a client"), String::new());
                BufReader::new(&stream).read_line(&mut line).expect("reads");
                // A client that only looks whether it is there has gone.
                let _gone = stream.write_all(b"{\"refused\":{\"code\":\"invalid_hello\"}}\n");
            }
        });
        let mut client = Client::connect(&reach).expect("it is there");
        let refused = client.get(ControlMethod::Stop { workspaces: None }).expect_err("it is old");
        let (text, pid) = (refused.to_string(), std::process::id());
        assert!(text.contains("older version") && text.contains(&format!("pid {pid}")), "{text}");
    }
}
