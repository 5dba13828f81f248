//! Command port: programs and processes in workspaces, for whoever runs them on a session's behalf.
//!
//! A workspace is judged as by its own tools: the session of the call must own it, and its guest must
//! be there. What guests report is bounded and not trusted.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use hivekeep_kernel::{CallCx, JobId, ToolError, WorkspaceId};

/// Program with its surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Absolute path of its working directory in the guest.
    pub workdir: String,
    /// Variables of this program, over all others.
    pub env: BTreeMap<String, String>,
    /// Which of the workspace's own variables it gets: names, or beginnings that end with `*`.
    pub inherit: Vec<String>,
    /// User of the guest that it runs as, with the home and the names of that user; `None` is the
    /// image's.
    pub user: Option<String>,
}

impl CommandSpec {
    /// Whether a variable of the workspace is passed on.
    pub fn inherits(&self, name: &str) -> bool {
        self.inherit.iter().any(|rule| match rule.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == rule,
        })
    }
}

/// Entry point of the image that a workspace was made from, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPoint {
    /// Program and its first arguments; not empty.
    pub program: Vec<String>,
    /// Arguments where a call gives none.
    pub default_args: Vec<String>,
    /// Absolute path of its working directory in the guest.
    pub working_dir: String,
}

impl EntryPoint {
    /// Line that it comes to with a call's arguments, as containers have it: they stand in place of
    /// the image's own.
    pub fn argv(self, args: Vec<String>) -> Vec<String> {
        let args = if args.is_empty() { self.default_args } else { args };
        self.program.into_iter().chain(args).collect()
    }
}

/// Limits of a command that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLimits {
    /// Wall-clock limit, at which its process tree is killed.
    pub timeout_secs: u64,
    /// Maximum number of bytes of each stream that are returned.
    pub output_bytes: u64,
    /// True if these are the last bytes of a longer output, and not the first.
    pub tail: bool,
}

/// Output of one stream of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandStream {
    /// Bytes that are returned.
    pub bytes: Vec<u8>,
    /// Number of bytes that it wrote.
    pub total_bytes: u64,
}

/// End of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandEnd {
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub exit_code: i32,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// True if it was killed at its limit.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: CommandStream,
    /// Standard error.
    pub stderr: CommandStream,
    /// Number of processes that it left behind and that were killed.
    pub killed_stragglers: u32,
    /// Wall-clock time in the guest.
    pub elapsed_ms: u64,
}

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub cols: u16,
}

/// Process to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Program with its folder, variables and user.
    pub command: CommandSpec,
    /// Its terminal; `None` gives it pipes.
    pub terminal: Option<TerminalSize>,
    /// True if its standard input is open; without it is `/dev/null`. A terminal is always an input.
    pub input: bool,
    /// Name of the place that it is started in, for lists.
    pub place: String,
}

/// Process of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceProcess {
    /// Id, for its whole life.
    pub id: JobId,
    /// Workspace that it runs in.
    pub workspace: WorkspaceId,
    /// Name of the place that it was started in.
    pub place: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Working directory.
    pub workdir: String,
    /// True if it has a terminal.
    pub terminal: bool,
    /// Process id of its first process in the guest; 0 while that is not known.
    pub pid: u32,
    /// Time of its start, Unix milliseconds of the host.
    pub started_unix_ms: u64,
    /// State, as far as the guest can be asked.
    pub state: ProcessState,
    /// Time of its end, Unix milliseconds of the guest.
    pub ended_unix_ms: Option<u64>,
}

/// State of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    /// Some of its processes run.
    Running,
    /// Its first process exited with this status, and nothing of it is left.
    Exited(i32),
    /// A signal ended its first process.
    Signalled(i32),
    /// The machine ended or went back to a snapshot under it.
    Interrupted,
    /// Its guest cannot be asked now, for this reason.
    Unknown(String),
}

/// Part of a process's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessSpan {
    /// Cursor of the first byte: as asked, or later if what was there is not kept any more.
    pub from: u64,
    /// Bytes as written; a character may be cut at both ends.
    pub bytes: Vec<u8>,
    /// Cursor at which the output ends so far.
    pub end: u64,
    /// Number of bytes written so far.
    pub total_bytes: u64,
}

impl ProcessSpan {
    /// Cursor behind the bytes.
    pub fn next(&self) -> u64 {
        self.from.saturating_add(self.bytes.len() as u64)
    }

    /// Text of this part, and the cursor at which to go on. A character whose rest has not been
    /// written or read yet is left for the next part, if one may come.
    pub fn text(&self, more_may_come: bool) -> (String, u64) {
        text_part(self.from, &self.bytes, more_may_come || self.next() < self.end)
    }
}

/// Text of a part of an output, and the cursor at which to go on, as [`ProcessSpan::text`].
pub fn text_part(from: u64, bytes: &[u8], more_may_come: bool) -> (String, u64) {
    let cut = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && more_may_come && error.valid_up_to() > 0 => {
            error.valid_up_to()
        }
        _ => bytes.len(),
    };
    (String::from_utf8_lossy(&bytes[..cut]).into_owned(), from.saturating_add(cut as u64))
}

/// Window of a process's output to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessWindow {
    /// First byte of stdout to read.
    pub stdout_from: u64,
    /// First byte of stderr to read.
    pub stderr_from: u64,
    /// Maximum number of bytes of each stream, at most 256 KiB.
    pub max_bytes: u64,
    /// Longest wait until there is something to read, or the process has ended.
    pub wait: Duration,
}

/// Output and state of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOutput {
    /// The process. If it has ended, the output is complete.
    pub process: PlaceProcess,
    /// Part of stdout; all output of a process with a terminal.
    pub stdout: ProcessSpan,
    /// Part of stderr.
    pub stderr: ProcessSpan,
}

/// Programs and processes in workspaces. Every function refuses with `not_owner`,
/// `workspace_not_found`, `workspace_state`, `guest_unreachable` and `link_lost` as the tools of
/// workspaces do; those that take a process, with `unknown_job` for one that the session does not
/// have.
#[async_trait]
pub trait CommandRunner: Send + Sync {
    /// Runs a program and waits for its end, which kills what it left behind.
    ///
    /// # Errors
    /// `cannot_start` for a program that is not there; `not_found` for the folder.
    async fn run(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        command: CommandSpec,
        limits: CommandLimits,
    ) -> Result<CommandEnd, ToolError>;

    /// Finds the entry point of the image that a workspace was made from.
    ///
    /// # Errors
    /// `no_entry_point`.
    async fn entry_point(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
    ) -> Result<EntryPoint, ToolError>;

    /// Starts a process, which lives until it ends or is ended.
    ///
    /// # Errors
    /// See [`CommandRunner::run`]; `guest_busy` with as many jobs as there may be.
    async fn start(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        process: ProcessSpec,
    ) -> Result<PlaceProcess, ToolError>;

    /// Processes of all workspaces of the session, in order of their start: those that run, and the
    /// last hundred of each workspace that ended. Starts no machine.
    async fn processes(&self, cx: &CallCx) -> Vec<PlaceProcess>;

    /// Reads a part of a process's output, after the wait of the window if there is nothing yet. Consumes
    /// nothing; works after its end too.
    ///
    /// # Errors
    /// See [`CommandRunner`].
    async fn output(
        &self,
        cx: &CallCx,
        process: JobId,
        window: ProcessWindow,
    ) -> Result<ProcessOutput, ToolError>;

    /// Writes to a process's input, and closes that behind the last byte if asked. Returns how many
    /// bytes were taken, fewer than asked when the process does not read, and whether the input is
    /// closed.
    ///
    /// # Errors
    /// `input_closed`.
    async fn input(
        &self,
        cx: &CallCx,
        process: JobId,
        bytes: Vec<u8>,
        close: bool,
    ) -> Result<(u64, bool), ToolError>;

    /// Sets the size of a process's terminal; those that run in it are told.
    ///
    /// # Errors
    /// `invalid_input` for a process without one; `input_closed` for one that has ended.
    async fn resize(
        &self,
        cx: &CallCx,
        process: JobId,
        size: TerminalSize,
    ) -> Result<(), ToolError>;

    /// Sends a signal (1 to 64) to every process of a process. Returns it as it is at most half a second
    /// afterwards, and whether it had ended before.
    ///
    /// # Errors
    /// See [`CommandRunner`].
    async fn signal(
        &self,
        cx: &CallCx,
        process: JobId,
        signal: i32,
    ) -> Result<(PlaceProcess, bool), ToolError>;

    /// Ends a process with everything that it started: by SIGTERM, and by SIGKILL after `grace`. An
    /// order that was taken is carried out whatever becomes of this call. Returns the process
    /// afterwards, and whether it had ended before.
    ///
    /// # Errors
    /// See [`CommandRunner`].
    async fn stop(
        &self,
        cx: &CallCx,
        process: JobId,
        grace: Duration,
    ) -> Result<(PlaceProcess, bool), ToolError>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_variables_that_a_rule_names_are_passed_on() {
        let inherit = ["HTTP_*".to_owned(), "TOKEN".to_owned()].to_vec();
        let (argv, workdir, env) = (vec![], String::new(), BTreeMap::new());
        let spec = CommandSpec { argv, workdir, env, inherit, user: None };
        assert!(spec.inherits("HTTP_PROXY") && spec.inherits("TOKEN"));
        assert!(!spec.inherits("HTTP") && !spec.inherits("TOKEN2"));
    }

    #[test]
    fn arguments_of_a_call_stand_in_place_of_those_of_the_image() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for (program, default_args, args, line) in [
            ("/app", "", "", "/app"),
            ("/app", "--help", "", "/app --help"),
            ("/app", "--help", "serve --port 80", "/app serve --port 80"),
            ("/tini -- /app", "a b", "", "/tini -- /app a b"),
            ("/tini -- /app", "a b", "c", "/tini -- /app c"),
        ] {
            let entry = EntryPoint {
                program: words(program),
                default_args: words(default_args),
                working_dir: "/".to_owned(),
            };
            assert_eq!(entry.argv(words(args)), words(line));
        }
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_text(text in ".{0,60}", piece in 4usize..9) {
            let bytes = text.as_bytes();
            let (mut from, mut read) = (0u64, String::new());
            while (from as usize) < bytes.len() {
                let end = (from as usize + piece).min(bytes.len());
                let (piece_text, next) = text_part(from, &bytes[from as usize..end], true);
                prop_assert!(next > from);
                read.push_str(&piece_text);
                from = next;
            }
            prop_assert_eq!(read, text);
        }
    }

    #[test]
    fn a_torn_end_of_an_ended_job_is_shown() {
        assert_eq!(text_part(5, b"a\xc3", false), ("a\u{fffd}".to_owned(), 7));
        assert_eq!(text_part(5, b"a\xc3", true), ("a".to_owned(), 6));
    }
}
