//! A plug-in interface: a family of tools with its actors, its options and what it needs.

use std::future::{Future, ready};

use hivekeep_kernel::{ErrorCode, ToolError, ToolInfo};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Daemon, Finding, Host, Mounted};

/// A section of the configuration.
pub trait FamilyOptions:
    Clone + Default + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + 'static
{
    /// What cannot work although each value has the right type: keys of the section, with why.
    fn problems(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What the family needs of the journal: keys of `[store]`, with why. Judged whether or not
    /// anything is set in the family's own section.
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

/// A family of tools. Its line in `src/families.rs` is all that the rest of the daemon has of it.
pub trait Family: 'static {
    /// Its section of the configuration.
    type Options: FamilyOptions;

    /// What a model is told of it before it sees the tools: one sentence or two, naming them.
    const INSTRUCTIONS: &'static str = "";

    /// The declarations of its tools, in the order in which they are listed. Needs no daemon.
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
    /// Without the family the daemon does not start.
    fn mount(
        daemon: &Daemon,
        options: Self::Options,
    ) -> impl Future<Output = Result<Mounted, ToolError>> + Send;

    /// Looks at what it needs on this host, for `hivekeep check`. Makes nothing; a daemon may run.
    fn check(options: &Self::Options, host: &Host) -> impl Future<Output = Vec<Finding>> + Send {
        let _ = (options, host);
        ready(Vec::new())
    }
}
