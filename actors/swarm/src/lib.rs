//! Swarms: tasks, each in a fork of one snapshot, with a merge and the removal of the forks at the end.
//!
//! ```text
//! swarms ── swarm*      a saga for each
//! ```
//! A swarm is planned in the journal before anything is made, and continued until it is over,
//! whatever dies in between. Forks are made, looked at, merged and removed through the daemon's own
//! tools, in the session that the swarm belongs to: this crate knows no other actor's.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod shared;
mod swarm;
mod swarms;
mod tools;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

use shared::SwarmShared;

pub use shared::Options;
pub use swarms::Swarms;

/// Swarms as a family: one actor below the root.
///
/// Needs the port `Tasks`, and the limit of calls that wait.
pub struct SwarmFamily;

impl Family for SwarmFamily {
    type Options = Options;

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let shared = SwarmShared::new(daemon, options)?;
        let swarms = daemon.address("swarms", RestartPolicy::ESSENTIAL);
        Ok(Mounted::default().serving::<Swarms>(&swarms, shared))
    }
}
