//! Command execution with the caller waiting for the end, and being asked for a credential while it runs.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

/// Command line of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Argv {
    /// Script for `/bin/sh`, of any length that fits a frame.
    Shell(String),
    /// Program and its arguments, without a shell.
    Direct(Vec<String>),
}

impl Argv {
    /// Guest's program and its role that becomes a user, as what the guest starts sees them.
    pub const AS_USER: [&str; 2] = ["/proc/self/exe", "as"];
    /// In place of a user: the owner of the repository that the working directory is in. No user has
    /// a line break in its name. Only [`RunCommand`] and [`ExecAsking`](crate::ExecAsking) know it.
    pub const REPOSITORY_OWNER: &str = "owner of the repository\n";

    /// Command line that runs the same as a user, `USER[:GROUP]`.
    #[must_use]
    pub fn as_user(self, user: &str) -> Self {
        let program = match self {
            Self::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
            Self::Direct(words) => words,
        };
        let [guest, role] = Self::AS_USER;
        Self::Direct([guest, role, user].map(str::to_owned).into_iter().chain(program).collect())
    }
}

/// Runs a command; its output comes as data frames while it runs.
///
/// The command runs in a containment of its own. When it ends, times out or is cancelled, every
/// process left in that containment is killed, whatever process group or session it moved to. The
/// reply does not wait for a background child that still has stdout open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommand {
    /// Command to run.
    pub argv: Argv,
    /// Variables set on top of the guest's base environment; later ones win.
    pub env: Vec<(String, String)>,
    /// Working directory; the guest's default is `/workspace` if it exists, else `/root`, else `/`.
    pub workdir: Option<String>,
    /// Wall-clock limit; at its end the process tree gets SIGKILL.
    pub timeout_ms: u64,
    /// Maximum number of bytes of each stream that are sent. Output beyond is read, counted and
    /// dropped.
    pub max_output_bytes: u64,
}

/// Runs a command under a key, once: it goes on when the connection ends, and its result is kept. Its output comes
/// when it has ended, before the reply.
///
/// Another request of the key starts nothing and is answered with what the first comes to. The guest keeps the
/// results in its memory, the latest, within [`crate::limits::KEPT_RUNS`] and the bounds beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOnce {
    /// Key: 1 to [`crate::limits::MAX_RUN_KEY_BYTES`] bytes of letters, digits and `_./-`.
    pub key: String,
    /// Command; `None` asks for one that was started before. Of its output at most
    /// [`crate::limits::KEPT_STREAM_BYTES`] of each stream are sent.
    pub command: Option<RunCommand>,
    /// True for the last bytes of each stream, false for the first.
    pub tail: bool,
}

/// Exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// Exited with this status.
    Code(i32),
    /// Ended by this signal.
    Signal(i32),
}

/// Result of an [`RunCommand`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCommandReply {
    /// Exit of the command itself; after a timeout, that caused by the kill.
    pub exit: Exit,
    /// True if the time limit was reached and the process tree was killed.
    pub timed_out: bool,
    /// Number of bytes the command wrote to stdout, sent or not.
    pub stdout_total_bytes: u64,
    /// Number of bytes the command wrote to stderr, sent or not.
    pub stderr_total_bytes: u64,
    /// Number of processes that outlived the command and were killed.
    pub killed_stragglers: u32,
    /// Wall-clock time in the guest.
    pub elapsed_ms: u64,
}

/// Stream that a data frame belongs to (its first payload byte).
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

/// Secret text that only its receiver may see. Its `Debug` shows nothing; its memory is cleared on
/// drop.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Secret text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Credential for one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Origin, `https://host` or `http://host`, with the port where it is not the scheme's, in
    /// lower case. No other server is given the secret.
    pub origin: String,
    /// User name, which is asked for separately.
    pub username: String,
    /// Password or token.
    pub secret: Secret,
}

/// Command with askpass: an [`RunCommand`] of git whose askpass the guest's daemon answers.
///
/// The credential is only in the daemon's memory, while the command runs. Only a process of that
/// command's own containment is given it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAsking {
    /// Command to run.
    pub exec: RunCommand,
    /// Credential to answer with; without one nothing is answered, and the question is still
    /// reported.
    pub credential: Option<Credential>,
}

/// Result of an [`ExecAsking`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAsked {
    /// Result of the command.
    pub done: RunCommandReply,
    /// Number of questions answered.
    pub answered: u32,
    /// Last origin that was asked for and had no answer.
    pub unanswered: Option<String>,
    /// True if the server rejected the answer.
    pub rejected: bool,
}
