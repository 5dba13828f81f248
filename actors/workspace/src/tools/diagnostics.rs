//! What a machine printed.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::workspace::Workspace;

use crate::api::diagnostics::{Logs, WorkspaceLogs};

tools! { pub FAMILY: "diagnostics" for Workspace, addressed workspace by workspace_id;
    workspace_logs: WorkspaceLogs => Logs = Workspace::on_workspace_logs {
        title: "Read a workspace's logs", effect: Read,
    };
}

impl Workspace {
    fn on_workspace_logs(
        &mut self,
        _: &CallCx,
        input: WorkspaceLogs,
    ) -> Result<Reply<Logs>, ToolError> {
        if !(1..=10_000).contains(&input.max_lines) {
            return Err(ToolError::invalid("max_lines must be 1 to 10000"));
        }
        Ok(self.logs(input.log_type, input.max_lines))
    }
}
