//! Script port: programs of a user's library, for whoever runs them by name.

use crate::{ScriptId, SessionId, ToolError};

/// A version of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptProgram {
    /// Script.
    pub id: ScriptId,
    /// Number of the version, from 1.
    pub version: u64,
    /// Text of the version; the first line may name an interpreter.
    pub code: String,
}

/// Libraries of all users.
pub trait ScriptLibrary: Send + Sync {
    /// A script of the session's user, by its id or name; the newest version unless one is asked for.
    ///
    /// # Errors
    /// `script_not_found`, `script_version_not_found`, `script_user_unknown`.
    fn program(
        &self,
        session: SessionId,
        id_or_name: &str,
        version: Option<u64>,
    ) -> Result<ScriptProgram, ToolError>;
}
