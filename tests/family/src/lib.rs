//! Counters: five thin tools over one durable kind.

pub mod codes;
mod counter;
mod counters;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, FamilyOptions, Mounted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use counters::Counters;

/// Section `[counter]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Counters of all sessions together.
    pub max_counters: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { max_counters: 100 }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let none = self.max_counters == 0;
        none.then(|| ("max_counters", "must be above 0".to_owned())).into_iter().collect()
    }
}

/// Counters.
pub struct CounterFamily;

impl Family for CounterFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "- counter_create makes a counter that outlives the daemon.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("counters", RestartPolicy::ENTITY);
        let counters = Arc::new(Counters::open(daemon, options).await?);
        Ok(Mounted::default().serving::<ServiceActor<Counters>>(&address, counters))
    }
}
