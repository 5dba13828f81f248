//! Askpass requests: a command that may be asked for a credential while it runs.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::run::{RunCommand, RunCommandReply};

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
