//! Profile of a session: what binds it beyond its user, from its creation on.

use std::collections::BTreeSet;

use hivekeep_kernel::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a session is bound to. Empty for a session that was opened without any of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionProfile {
    /// The agent that it works for: a name of `policy.agents`, or any other for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Its security context: a name of `policy.contexts`, in place of its user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The session that it was made for. It was given no tool that its parent did not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Names of the only tools that it may call; of a child without them, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<String>>,
    /// Mode of its conversation: a name of `policy.conversations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

impl SessionProfile {
    /// True when nothing is bound.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
