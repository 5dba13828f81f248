//! Looking at the warm pool. hivekeep's own.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::workspaces::Workspaces;

use crate::api::pool::{PoolReport, PoolStatus};

tools! { pub FAMILY: "warm pool" for Workspaces, singleton workspaces;
    pool_status: PoolStatus => PoolReport = Workspaces::on_pool_status {
        title: "Show the warm pool", effect: Read,
    };
}

impl Workspaces {
    fn on_pool_status(
        &mut self,
        _: &CallCx,
        _: PoolStatus,
    ) -> Result<Reply<PoolReport>, ToolError> {
        Ok(self.pool_report())
    }
}
