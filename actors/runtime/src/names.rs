//! Name port: the names of things that a session has, which complete what its user types.
//!
//! They come from a call of the family's own tool, made in the client's session, as
//! [documents](crate::documents) do, so that nobody is offered what it may not see.

use hivekeep_kernel::ToolError;
use serde_json::{Map, Value};

/// Names that a source lists at most, where its tool would list more.
pub const MOST_NAMES: usize = 1_000;

/// Names that a session can be offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The names, in no order.
    pub names: Vec<String>,
    /// False if there are more than were listed.
    pub complete: bool,
}

/// Names of one kind of thing.
pub trait Names: Send + Sync {
    /// Kind, as prompts and templates name it: `workspace`.
    fn kind(&self) -> &'static str;

    /// Name of the tool that lists them.
    fn tool(&self) -> &'static str;

    /// Arguments with which the tool lists them.
    fn args(&self) -> Map<String, Value>;

    /// Decodes the tool's answer.
    ///
    /// # Errors
    /// `internal`, for an answer of another shape.
    fn known(&self, answer: Value) -> Result<KnownNames, ToolError>;
}
