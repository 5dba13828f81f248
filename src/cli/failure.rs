//! Failure of a command: a text on standard error and an exit code.

use std::{io, process::ExitCode};

use hivekeep_kernel::ToolError;

use super::reach::Unreachable;
use crate::{config::ConfigProblems, daemon, doors::plain};

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The configuration is refused. Exit code 2, as for a wrong command line.
    #[error(transparent)]
    Config(#[from] ConfigProblems),
    /// The command line makes no sense beyond what its parser sees. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// No daemon to talk to. Exit code 5 when simply none runs.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The daemon answered with an error.
    #[error("{}", .0.to_text())]
    Tool(Box<ToolError>),
    /// The daemon could not start or ended badly.
    #[error(transparent)]
    Daemon(#[from] Box<daemon::Error>),
    /// A check did not pass; its report was printed.
    #[error("")]
    Reported,
    /// A backup or a restore did not come about.
    #[error(transparent)]
    Backup(#[from] crate::backup::Error),
    /// Reading or writing.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Anything that only a person can act on.
    #[error("{0}")]
    Other(String),
}

impl From<ToolError> for CommandFailure {
    fn from(error: ToolError) -> Self {
        Self::Tool(Box::new(error))
    }
}

impl From<daemon::Error> for CommandFailure {
    fn from(error: daemon::Error) -> Self {
        Self::Daemon(Box::new(error))
    }
}

impl CommandFailure {
    fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Usage(_) => 2,
            Self::Unreachable(Unreachable::NotRunning(_)) => 5,
            Self::Daemon(error) => error.exit_code(),
            _ => 1,
        }
    }

    /// Tells the person and gives the exit code.
    pub(super) fn report(&self) -> ExitCode {
        if let Self::Io(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // `hivekeep ... | head` is no failure worth a line.
            return ExitCode::SUCCESS;
        }
        if !matches!(self, Self::Reported) {
            eprintln!("hivekeep: {}", plain::lines(&self.to_string()));
        }
        ExitCode::from(self.code())
    }
}
