//! A command that may be asked for a credential while it runs.

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::run::{Exec, ExecDone};

/// What nobody but its receiver may see. Its `Debug` shows nothing; its memory is cleared
/// when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Takes a text over.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself.
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

/// Who one is for one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// `https://host` or `http://host`, with the port where it is not the scheme's, in lower
    /// case. Nobody else is given the secret.
    pub origin: String,
    /// Asked for separately.
    pub username: String,
    /// The password or token.
    pub secret: Secret,
}

/// An [`Exec`] of git whose askpass the guest's daemon answers.
///
/// The credential is in the daemon's memory alone, while the command runs. A process of that
/// command's own containment is told it, and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAsking {
    /// The command.
    pub exec: Exec,
    /// What is answered; without one nothing is, and the question is still reported.
    pub credential: Option<Credential>,
}

/// The end of an [`ExecAsking`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAsked {
    /// How the command ended.
    pub done: ExecDone,
    /// Questions that were answered.
    pub answered: u32,
    /// The last origin that was asked for and had no answer.
    pub unanswered: Option<String>,
    /// The server did not take what was answered.
    pub rejected: bool,
}
