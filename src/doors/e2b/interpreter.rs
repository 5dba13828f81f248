//! Code interpreter of a sandbox: started by the tool that runs code, the first time that its port is asked for.

use hivekeep_kernel::{CallCx, WorkspaceId};
use hivekeep_ports::WorkspacePorts;
use serde_json::json;

use super::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
};

/// Port of the interpreter in the published system, and here.
pub(super) const INTERPRETER_PORT: u16 = 49_999;
/// Tool that runs code, and starts what runs it.
const TOOL: &str = "run_code";

impl E2b {
    /// Starts the interpreter of a sandbox where nothing listens on its port. That is a call of `run_code` without
    /// code; who may not make such a call does not reach the port.
    ///
    /// # Errors
    /// `no_interpreter` and others of the call.
    pub(super) async fn start_interpreter(
        &self,
        owner: &Owner,
        ports: &dyn WorkspacePorts,
        cx: &CallCx,
        (workspace, id): (WorkspaceId, &str),
    ) -> Result<(), E2bError> {
        if !self.may(owner, TOOL) {
            let why = format!("a policy denies `{TOOL}`");
            return Err(E2bError::new(Kind::PermissionDenied, why));
        }
        match ports.dial(cx, workspace, INTERPRETER_PORT).await {
            Err(error) if error.is(hivekeep_link::codes::PORT_CLOSED) => {
                let place = format!("{}@{id}:~", self.options.user);
                self.call(owner, TOOL, json!({ "code": "", "place": place })).await?;
            }
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        Ok(())
    }
}
