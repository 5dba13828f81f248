//! The configuration: total, strict, layered, and able to say where each value
//! came from.
//!
//! ```text
//! defaults ─▶ config.toml ─▶ HIVEKEEP_SECTION__KEY ─▶ flags ─▶ checks ─▶ Config
//! ```
//!
//! Every value is a leaf with a source. Leaves are judged one by one, so one run
//! reports every error with its file and line or variable name. (The `config`
//! crate stops at the first error and knows no lines.)

mod daemon;
mod http;
mod layers;
mod leaves;
mod renamed;
mod shipped;
#[cfg(test)]
mod tests;

use hivekeep_runtime::{Family, FamilyOptions as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::families::families;

pub(crate) use daemon::LOG_FILE;
pub use daemon::{DaemonFolders, DaemonOptions};
pub use http::{E2bOptions, HttpApiOptions, HttpOptions, McpHttpOptions, PortUrlOptions};
pub use layers::{ConfigEntry, ConfigSources, LoadedConfig, load};
pub use leaves::{ConfigProblem, ConfigProblems, ProblemSource};
pub(crate) use shipped::schema;
pub use shipped::shipped;

macro_rules! config {
    ($($(#[$attribute:meta])* $name:ident: $family:ty,)+) => {
        /// All options of the daemon.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            /// The process itself: folders, socket, logs, stopping.
            pub daemon: DaemonOptions,
            /// Doors over HTTP: a table for each, and what all have in common.
            pub http: HttpOptions,
            /// The journal.
            pub store: hivekeep_store::Options,
            /// The audit log: each tool call, by whom, and what became of it.
            pub audit: hivekeep_audit::Options,
            /// The registry: sessions, rates, quotas, admission.
            pub registry: hivekeep_registry::Options,
            /// Policy: who may call what, and what a person has to approve.
            pub policy: hivekeep_policy::Options,
            $($(#[$attribute])* pub $name: <$family as Family>::Options,)+
        }

        impl Config {
            /// Settings that families cannot work with: whole keys, each with the reason.
            #[allow(unused_doc_comments)]
            fn problems_of_families(&self) -> Vec<(String, String)> {
                let mut wrong = Vec::new();
                let kinds: Vec<&str> =
                    [$($(#[$attribute])* <$family as Family>::HOLDS,)+].concat();
                for (tier, set) in &self.registry.tiers {
                    for kind in set.holds.keys().filter(|kind| !kinds.contains(&kind.as_str())) {
                        let why = format!("`{kind}` is not one of {}", kinds.join(", "));
                        wrong.push((format!("registry.tiers.{tier}.holds"), why));
                    }
                }
                $($(#[$attribute])* {
                    let own = self.$name.problems().into_iter();
                    let named = |(key, why)| (format!("{}.{key}", stringify!($name)), why);
                    wrong.extend(own.map(named));
                    let store = self.$name.store_problems(&self.store).into_iter();
                    wrong.extend(store.map(|(key, why)| (format!("store.{key}"), why)));
                })+
                wrong
            }
        }
    };
}
families!(config);
