//! Taking over workspaces that nobody holds.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};

use crate::workspaces::Workspaces;

use crate::api::session::{Adoption, WorkspaceAdopt};

tools! { pub FAMILY: "session management" for Workspaces, singleton workspaces;
    workspace_adopt: WorkspaceAdopt => Adoption = Workspaces::on_workspace_adopt {
        title: "Adopt workspaces", effect: Idempotent, risk: Risk::High,
    };
}

impl Workspaces {
    fn on_workspace_adopt(
        &mut self,
        cx: &CallCx,
        input: WorkspaceAdopt,
    ) -> Result<Reply<Adoption>, ToolError> {
        Ok(self.adopt(cx, input))
    }
}
