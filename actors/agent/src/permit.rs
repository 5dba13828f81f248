//! The tool that a program's request for permission is: the policy decides on it as on every call, or a person does.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tools::AgentService;

/// Ask whether a program that works as an agent may do something in its machine. Made for it when it asks; rules of the
/// policy about this tool decide, and an approval of it is the permission.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AgentPermit {
    /// Kind of what it is about to do: `edit`, `delete`, `move`, `execute`, `fetch`, `switch_mode` or `other`.
    #[schemars(length(max = 40))]
    #[serde(rename = "kind")]
    _kind: String,
    /// Title that the program gives it.
    #[schemars(length(max = 8_192))]
    #[serde(rename = "title")]
    _title: String,
    /// Beginning of its input.
    #[serde(default, rename = "input")]
    #[schemars(length(max = 8_192))]
    _input: String,
}

/// A permission.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentPermitted {
    /// True: a refusal is an error.
    permitted: bool,
}

tools! { pub(crate) FAMILY: "agents" for service AgentService, singleton agents;
    agent_permit: AgentPermit => AgentPermitted = AgentService::permit {
        title: "Permit what a program is about to do", effect: Idempotent,
    };
}

impl AgentService {
    /// Whoever comes here was let through.
    async fn permit(
        self: Arc<Self>,
        _: CallCx,
        _: AgentPermit,
    ) -> Result<AgentPermitted, ToolError> {
        Ok(AgentPermitted { permitted: true })
    }
}
