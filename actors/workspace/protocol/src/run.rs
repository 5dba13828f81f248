//! Running a command and waiting for it.

use serde::{Deserialize, Serialize};

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argv {
    /// A script for `/bin/sh`, of any length that fits a frame.
    Shell(String),
    /// A program and its arguments, without a shell.
    Direct(Vec<String>),
}

/// Runs a command; its output comes as data frames while it runs.
///
/// The command runs in a containment of its own. When it ends, times out or is
/// cancelled, every process left in that containment is killed, whatever
/// process group or session it moved to. The reply does not wait for a
/// background child that still holds stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// What to run.
    pub argv: Argv,
    /// Variables set on top of the guest's base environment; later ones win.
    pub env: Vec<(String, String)>,
    /// Working directory; the guest's default is `/workspace` if it exists, else `/root`, else `/`.
    pub workdir: Option<String>,
    /// Wall-clock limit; at its end the tree gets SIGKILL.
    pub timeout_ms: u64,
    /// Bytes of each stream that are sent. Output beyond is read, counted and dropped.
    pub max_output_bytes: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// The end of an [`Exec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecDone {
    /// How the command itself ended; after a timeout this is what the kill left.
    pub exit: Exit,
    /// The time limit was reached and the tree was killed.
    pub timed_out: bool,
    /// Bytes the command wrote to stdout, sent or not.
    pub stdout_total_bytes: u64,
    /// Bytes the command wrote to stderr, sent or not.
    pub stderr_total_bytes: u64,
    /// Processes that outlived the command and were killed.
    pub killed_stragglers: u32,
    /// Wall-clock time in the guest.
    pub elapsed_ms: u64,
}

/// Which stream a data frame belongs to (its first payload byte).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Stream {
    /// File content, either direction.
    Content = 0,
    /// A command's stdout.
    Stdout = 1,
    /// A command's stderr.
    Stderr = 2,
}

impl TryFrom<u8> for Stream {
    type Error = u8;
    fn try_from(byte: u8) -> Result<Self, u8> {
        match byte {
            0 => Ok(Self::Content),
            1 => Ok(Self::Stdout),
            2 => Ok(Self::Stderr),
            other => Err(other),
        }
    }
}
