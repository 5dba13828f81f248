//! Script library: versioned documents that a user keeps beyond sessions and workspaces.
//!
//! Each script is an event-sourced log of its versions, so every version that was ever answered can be
//! had again. It belongs to a user, not to a session: other users do not see that it exists. A deleted
//! script gives its name free and stays readable by its id until its user's library needs the room.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod scripts;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::ScriptLibrary;
use hivekeep_runtime::{Daemon, Family, FamilyOptions, Mounted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use scripts::Scripts;

/// Kind of its things, for tiers.
const HELD: &str = "scripts";

/// Limits of each user's library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Scripts of one user, deleted ones not counted.
    #[schemars(range(min = 1))]
    pub max_scripts: usize,
    /// Size of one user's library with every version of every script, held in memory. A version counts
    /// for at least 4 KiB. Deleted scripts are removed for good, oldest first, where it would be
    /// exceeded.
    #[schemars(range(min = 1))]
    pub max_library_mb: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_scripts: 500, max_library_mb: 64 }
    }
}

impl Options {
    /// Size of one user's library.
    pub(crate) fn max_library_bytes(&self) -> usize {
        self.max_library_mb.saturating_mul(1024 * 1024)
    }
}

impl FamilyOptions for Options {}

/// Family of the script tools; one actor below the root. Offers [`ScriptLibrary`].
pub struct ScriptFamily;

impl Family for ScriptFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- aegis.script.save keeps a program with its versions beyond this session; aegis.script.list and \
aegis.script.get find it again; cmd.run with the command `script:NAME` runs it.";

    const HOLDS: &'static [&'static str] = &[HELD];

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("scripts", RestartPolicy::ENTITY);
        let scripts = Arc::new(Scripts::open(daemon, options).await?);
        daemon.ports.offer::<dyn ScriptLibrary>(scripts.clone());
        Ok(Mounted::default().serving::<ServiceActor<Scripts>>(&address, scripts))
    }
}

#[cfg(test)]
mod tests;
