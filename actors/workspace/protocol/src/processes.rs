//! Interactive processes: jobs with an open standard input, and a terminal if asked.
//!
//! A process is a job of its own terms: its input stays open until it is closed by order, of its
//! output the last bytes are kept instead of the first, and its end is ordered from the process
//! that looks after it, so that no death of the guest's daemon undoes an order. [`crate::JobPoll`],
//! [`crate::JobKill`], [`crate::JobList`] and [`crate::JobForget`] work on it too.

use serde::{Deserialize, Serialize};

use crate::JobStart;

/// Starts a process. Durable and repeatable as [`JobStart`]; answered by [`crate::JobStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStart {
    /// Command, environment and folder. Of each stream at least the last `spool_bytes`, and at most
    /// twice as many, are kept: in a [`crate::Spool`] `from` is beyond the cursor that was asked for
    /// by as much as was dropped, and `kept_bytes` is the cursor at which the stream ends.
    pub job: JobStart,
    /// Size of its terminal; `None` gives it pipes.
    pub pty: Option<PtySize>,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub cols: u16,
}

/// Starts a process that reads nothing: its standard input is `/dev/null`. It has no terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStartWithoutInput {
    /// Command, as in [`ProcessStart::job`].
    pub job: JobStart,
}

/// Starts a process whose output is held back: output that would drop bytes not yet asked for is not taken,
/// and the process waits. Its reader has read what is before the cursors of [`crate::JobPoll`]; where these
/// have not moved for [`crate::limits::MAX_HELD_MS`], nothing is held back until they do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStartHeld {
    /// Process to start.
    pub start: ProcessStart,
    /// True for no input, as in [`ProcessStartWithoutInput`].
    pub without_input: bool,
}

/// Sets the size of a process's terminal; its foreground processes get SIGWINCH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessResize {
    /// Id of the process.
    pub job_id: String,
    /// New size.
    pub size: PtySize,
}

/// Answer to [`ProcessResize`], when the terminal has the size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessResized;

/// Writes to the standard input of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInput {
    /// Id of the process.
    pub job_id: String,
    /// Bytes to write, at most [`crate::limits::MAX_PROCESS_INPUT_BYTES`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Closes the input once all bytes are written; a terminal gets its end-of-file character. May
    /// be repeated.
    pub close: bool,
}

/// Answer to [`ProcessInput`], after at most two seconds of waiting for room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInputTaken {
    /// Number of bytes written: fewer than asked when the process does not read.
    pub written: u64,
    /// True if the input is closed now.
    pub closed: bool,
}

/// Ends a process with everything that it started: SIGTERM, and SIGKILL after a grace period.
/// Answered by [`crate::JobKilled`] when nothing is left of it; given up, it takes effect all the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStop {
    /// Id of the process.
    pub job_id: String,
    /// Time between the two signals; 0 sends SIGKILL at once.
    pub grace_ms: u64,
}
