//! Plug-in interface: a family of tools with its actors, options and requirements.

use std::future::{Future, ready};

use hivekeep_kernel::{ErrorCode, ToolError, ToolInfo};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Daemon, Finding, Host, Mounted};

/// Section of the configuration.
pub trait FamilyOptions:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + 'static
{
    /// Values that cannot work although each has the right type: keys of the section, with reasons.
    fn problems(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Requirements of the family on the journal: keys of `[store]`, with reasons. Checked whether
    /// or not anything is set in the family's own section.
    fn store_problems(&self, store: &hivekeep_store::Options) -> Vec<(&'static str, String)> {
        let _ = store;
        Vec::new()
    }
}

/// A section without keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

impl FamilyOptions for NoOptions {}

/// Family of tools. Its line in `src/families.rs` is the only mention of it in the rest of the
/// daemon.
pub trait Family: 'static {
    /// Section of the configuration.
    type Options: FamilyOptions;

    /// Introduction for models, read before the tools: one sentence or two that name them.
    const INSTRUCTIONS: &'static str = "";

    /// Kinds of things that it keeps for users and bounds by their tiers, as `registry.tiers.*.holds`
    /// names them; it asks for each bound by
    /// [`SessionQuotas::allowance`](hivekeep_kernel::ports::SessionQuotas::allowance).
    const HOLDS: &'static [&'static str] = &[];

    /// Declarations of the tools, in listing order. Needs no daemon.
    fn tools() -> Vec<&'static ToolInfo> {
        Vec::new()
    }

    /// The error codes that it declares, those of its own crates included. Needs no daemon.
    fn codes() -> Vec<&'static ErrorCode> {
        Vec::new()
    }

    /// Opens what it keeps and says which actors it has. Runs once, before any actor does.
    ///
    /// # Errors
    /// Any error keeps the daemon from starting.
    fn mount(
        daemon: &Daemon,
        options: Self::Options,
    ) -> impl Future<Output = Result<Mounted, ToolError>> + Send;

    /// Checks what the family needs on this host, for `hivekeep check`. Makes nothing; a daemon may
    /// be running.
    fn check(options: &Self::Options, host: &Host) -> impl Future<Output = Vec<Finding>> + Send {
        let _ = (options, host);
        ready(Vec::new())
    }
}
