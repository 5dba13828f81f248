//! Swarms as a family: one actor below the root.

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

use crate::{Options, Swarms, codes, shared::SwarmShared, tools};

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
