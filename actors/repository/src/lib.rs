//! Repositories: a remote bound to a volume of a user, cloned, refreshed and written back from there.
//!
//! Git runs in a workspace that is made for one operation, with the volume mounted, and removed after
//! it; the host's git touches nothing of a repository. A binding is an event-sourced log, with an intent
//! for each operation, so that a start of the daemon removes the workspace of one that was cut short, and
//! finishes or undoes it. A new tree is made beside the old one and exchanged for it in one step.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod binding;
mod clone;
pub mod codes;
mod machine;
mod operation;
mod options;
mod recovery;
mod refresh;
mod remote;
mod repositories;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

pub use options::{Options, RepositoryIsolation, RepositoryMachineOptions};
use repositories::Repositories;

/// Family of repositories on volumes. Needs [`Volumes`](hivekeep_ports::Volumes) and
/// [`GitCredentials`](hivekeep_ports::GitCredentials).
pub struct RepositoryFamily;

impl Family for RepositoryFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- aegis.git.clone binds a remote repository to a volume of its own, which workspaces mount by `volumes`; \
aegis.git.commit, aegis.git.push and aegis.git.refresh work on it without a workspace.";

    const HOLDS: &'static [&'static str] = &[repositories::HELD];

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("repositories", RestartPolicy::ENTITY);
        let repositories = Arc::new(Repositories::open(daemon, options).await?);
        repositories.recover();
        Ok(Mounted::default().serving::<ServiceActor<Repositories>>(&address, repositories))
    }
}

#[cfg(test)]
mod tests;
