//! The way of a subcommand to the daemon: the options before it, the configuration, a client of the control door.

use std::{
    ffi::OsString,
    io::{BufReader, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use hivekeep_kernel::ToolError;
use serde_json::Value;

use super::{
    CommandFailure,
    reach::{DaemonReach, Unreachable},
};
use crate::{
    config::{ConfigProblems, ConfigSources, LoadedConfig},
    doors::{
        control::{ControlMethod, ControlReply, ControlRequest, ReplyBody},
        hello::{ClientHello, DaemonWelcome},
        lines::{BlockingLines, LineOutcome},
    },
};

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
        crate::config::load(&ConfigSources::from_process(self.global.config.clone(), self.flags()))
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

/// A connection on which requests go one after another.
pub(super) struct Client {
    stream: UnixStream,
    lines: BlockingLines<BufReader<UnixStream>>,
    asked: u64,
    pub(super) welcome: DaemonWelcome,
}

impl Client {
    /// Connects to the running daemon; starts none.
    ///
    /// # Errors
    /// When none runs, or it refuses.
    pub(super) fn connect(reach: &DaemonReach) -> Result<Self, Unreachable> {
        let stream = reach.connect()?;
        let welcome = reach.hello(&stream, &ClientHello::Control {})?;
        let reader = stream.try_clone().map_err(|source| Unreachable::Io {
            doing: "reading from the daemon".to_owned(),
            source,
        })?;
        let lines = BlockingLines::new(BufReader::new(reader), MAX_ANSWER_BYTES);
        Ok(Self { stream, lines, asked: 0, welcome })
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
        self.asked += 1;
        let request = ControlRequest { id: self.asked, wanted };
        let mut line = serde_json::to_vec(&request).map_err(|error| broken(&error))?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| broken(&error))?;
        loop {
            let reply: ControlReply = match self.lines.read().map_err(|error| broken(&error))? {
                LineOutcome::Whole(line) => {
                    serde_json::from_slice(line).map_err(|error| broken(&error))?
                }
                LineOutcome::TooLong => return Err(broken(&"its answer is too long")),
                LineOutcome::End => return Err(broken(&"it ended before it answered")),
            };
            match reply.body {
                _ if reply.id != Some(self.asked) => {}
                ReplyBody::Item(value) => item(value)?,
                ReplyBody::Result(value) => return Ok(value),
                ReplyBody::Error(error) => {
                    return Err(CommandFailure::from(ToolError::clone(&error)));
                }
            }
        }
    }

    /// Asks, and waits for what comes first. The request goes on until this is dropped.
    ///
    /// # Errors
    /// As [`Client::ask`], and for an answer without items.
    pub(super) fn first<T: serde::de::DeserializeOwned>(
        &mut self,
        wanted: ControlMethod,
    ) -> Result<T, CommandFailure> {
        let mut first = None;
        let ended = self.ask(wanted, |value| {
            first = Some(value);
            Err(CommandFailure::Reported)
        });
        match (first, ended) {
            (Some(value), _) => serde_json::from_value(value).map_err(|error| broken(&error)),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(broken(&"it answered nothing")),
        }
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

fn broken(why: &dyn std::fmt::Display) -> CommandFailure {
    CommandFailure::Other(format!("the talk with the daemon broke off: {why}; see `hivekeep logs`"))
}
