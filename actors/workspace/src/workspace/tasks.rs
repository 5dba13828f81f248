//! Requests about the guest's tasks, as far as the workspace has a part in them: environment, link and
//! hints.

use std::collections::BTreeMap;

use hivekeep_kernel::ToolError;

use crate::{
    commands::env::environment,
    messages::{GuestAccess, TaskMsg},
    phase::Want,
    state::Workspace,
};

pub(super) fn handle(state: &mut Workspace, ask: TaskMsg) {
    match ask {
        TaskMsg::Access { env, reply } => {
            let _asker_gone = reply.send(guest_access(state, env));
        }
        TaskMsg::Cached { after, limit, reply } => {
            // A guest that may not be asked has no cached answers: the caller's own request
            // gets the error.
            let may_ask = state.on(Want::Guest).is_ok();
            let page = may_ask.then(|| state.tasks.cached(after, limit)).flatten();
            let _asker_gone = reply.send(page);
        }
        TaskMsg::Acknowledged { task_ids, reply } => {
            state.tasks.acknowledged(&task_ids);
            let _asker_gone = reply.send(guest_access(state, BTreeMap::new()));
        }
        TaskMsg::Hints(reply) => drop(reply.send(state.tasks.hints())),
    }
}

fn guest_access(
    state: &Workspace,
    env: BTreeMap<String, String>,
) -> Result<GuestAccess, ToolError> {
    state.on(Want::Guest)?;
    let env = environment(&state.ledger, None, env)?;
    Ok(GuestAccess { link_state: state.link.subscribe(), env })
}
