//! Tool of the operator: the sources as they are.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::supervisor::Sources;

/// Use this to see which other MCP servers the daemon has as sources of tools, whether each is there, and
/// which of its tools are left out and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceList {}

/// The sources.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourcesListed {
    /// Sources, by name.
    pub(crate) sources: Vec<SourceRow>,
}

/// A source.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourceRow {
    /// Name in `[source.servers]`.
    pub(crate) name: String,
    /// `ready`, `connecting`, `unreachable`, `auth_required`, `auth_expired` or `auth_invalid`.
    pub(crate) state: &'static str,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// `stdio` or `http`.
    pub(crate) transport: &'static str,
    /// What the server calls itself, while it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Revision of the protocol that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<String>,
    /// Tools that it has, by the names that they are called by. They stay listed while it is down.
    pub(crate) tools: Vec<String>,
    /// Tools that it listed and that are not offered.
    pub(crate) left_out: Vec<LeftOutTool>,
}

/// A tool that is left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOutTool {
    /// Name that the server has for it.
    pub(crate) name: String,
    /// The reason.
    pub(crate) why: String,
}

tools! { pub(crate) FAMILY: "sources" for Sources, singleton sources;
    source_list: SourceList => SourcesListed = Sources::list {
        title: "List sources of tools",
        effect: Read,
        tier: Tier::Operator,
    };
}
