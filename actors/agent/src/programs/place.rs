//! Machine of others that a program works in: its session, its port and its home are its own there.

use std::collections::BTreeMap;

use hivekeep_kernel::{ExecutionId, Layer, ToolError, WorkspaceId};
use hivekeep_ports::OrderedProgram;
use serde::{Deserialize, Serialize};

use super::ProgramPlan;
use crate::codes;

/// Ports of gateways in machines where several programs may work: this many from the first on.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 20_000;

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProgramPlace {
    /// Place of the session that ordered the program.
    pub(crate) name: String,
    pub(crate) workspace: WorkspaceId,
    pub(crate) root: String,
    pub(super) folder: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) arguments: Vec<String>,
    pub(super) port: u16,
}

impl ProgramPlace {
    fn of(id: ExecutionId, order: OrderedProgram) -> Self {
        let OrderedProgram { place, workspace, root, folder, home, mut env, arguments, .. } = order;
        env.insert("HOME".to_owned(), home);
        // Two programs in one machine have the same port by chance alone.
        let port = u16::try_from(id.uuid().as_u128() % u128::from(PORTS)).unwrap_or_default();
        Self {
            name: place,
            workspace,
            root,
            folder,
            env,
            arguments,
            port: FIRST_PORT.saturating_add(port),
        }
    }
}

impl ProgramPlan {
    /// The same in a machine of others.
    ///
    /// # Errors
    /// `agent_field_unsupported` for a program that speaks the Agent Client Protocol.
    pub(crate) fn within(self, id: ExecutionId, order: OrderedProgram) -> Result<Self, ToolError> {
        if self.acp {
            let message = format!("`{}` works in no machine of others", self.name);
            return Err(ToolError::new(Layer::Actor, codes::AGENT_FIELD_UNSUPPORTED, message)
                .next("name the program without `-acp`"));
        }
        Ok(Self { place: Some(ProgramPlace::of(id, order)), ..self })
    }
}
