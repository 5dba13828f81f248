//! Introspection: schemas of all that can be written or called, the runtimes of languages, what this
//! daemon is on this host, how it is configured, and what happened in a session.
//!
//! Schemas are those that the daemon itself checks by: of its tools, of its configuration and of the
//! manifests (`hivekeep-manifest`). Facts of the host come through ports.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod options;
mod schemas;
mod service;
mod system;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_manifest::ManifestKind;
use hivekeep_ports::{ManifestCheck, ManifestProblem};
use hivekeep_runtime::{Daemon, Family, Mounted};

pub use options::{LanguageRuntime, Options};
pub use schemas::keys_at;
use service::IntrospectionService;

/// Family of the tools about the daemon itself; one actor below the root. Needs the daemon's own port
/// of introspection, uses those of network and images, and offers [`ManifestCheck`].
pub struct IntrospectionFamily;

impl Family for IntrospectionFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- read_schema looks up the keys of a DAG, a manifest, the configuration or a tool; aegis.schema.validate \
checks a manifest before it is used. aegis.system.info says what this host can do, and what is missing.";

    fn tools() -> Vec<&'static ToolInfo> {
        let groups = [
            tools::SCHEMA.rows,
            tools::RUNTIME.rows,
            tools::SYSTEM.rows,
            tools::events::EVENTS.rows,
        ];
        groups.into_iter().flatten().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        daemon.ports.offer::<dyn ManifestCheck>(Arc::new(StaticCheck));
        let address = daemon.address("introspection", RestartPolicy::ENTITY);
        let service = Arc::new(IntrospectionService::new(daemon, options)?);
        let mounted = Mounted::default();
        let mounted = mounted.serving::<ServiceActor<IntrospectionService>>(&address, service);
        Ok(mounted.documents(Arc::new(tools::events::EventDocuments)))
    }
}

/// Check of the crate of manifests behind its port.
struct StaticCheck;

impl ManifestCheck for StaticCheck {
    fn dag(&self, text: &str) -> Vec<ManifestProblem> {
        hivekeep_manifest::check(ManifestKind::Dag, text)
    }
}

#[cfg(test)]
mod tests;
