//! Judgments on a user's library: which script is meant, which names are free, what makes room.

use std::collections::BTreeMap;

use hivekeep_kernel::{Layer, ScriptId, ToolError, User};
use hivekeep_runtime::log::Log;

use crate::{codes, script::Script};

pub(crate) type Logs = BTreeMap<ScriptId, Log<Script>>;
pub(crate) type Answer<T> = Result<T, ToolError>;

/// Scripts with everything decided.
pub(crate) fn decided(logs: &Logs) -> impl Iterator<Item = (ScriptId, Script)> {
    logs.iter().filter_map(|(id, log)| Some((*id, log.views(|decided, _| decided.cloned())?)))
}

/// A user's script that is not deleted, by id or name.
pub(crate) fn live(
    logs: &Logs,
    owner: User,
    asked: &str,
) -> Answer<(ScriptId, Log<Script>, Script)> {
    let id = asked.parse().ok();
    let is = |found: ScriptId, script: &Script| {
        script.is_live(owner) && (Some(found) == id || script.newest().name == asked)
    };
    let found = decided(logs).find(|(found, script)| is(*found, script));
    let (id, script) = found.ok_or_else(|| not_found(asked))?;
    let log = logs.get(&id).cloned().ok_or_else(|| not_found(asked))?;
    Ok((id, log, script))
}

pub(crate) fn name_is_free(logs: &Logs, owner: User, name: &str, but: ScriptId) -> Answer<()> {
    let taken = decided(logs)
        .any(|(id, script)| id != but && script.is_live(owner) && script.newest().name == name);
    if taken {
        let message = format!("you have a script `{name}` already");
        return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
            .next("change it with aegis.script.update, or choose another name"));
    }
    Ok(())
}

/// Names as many of a user's deleted scripts, oldest first, as `more` bytes need to be removed.
pub(crate) fn make_room(
    logs: &Logs,
    owner: User,
    more: usize,
    most: usize,
) -> Answer<Vec<ScriptId>> {
    let own: Vec<_> = decided(logs).filter(|(_, script)| script.owner == owner).collect();
    let used: usize = own.iter().map(|(_, script)| script.bytes()).sum();
    let mut over = (used + more).saturating_sub(most);
    let mut deleted: Vec<_> = own
        .iter()
        .filter_map(|(id, script)| Some((script.deleted_at?, *id, script.bytes())))
        .collect();
    deleted.sort_unstable();
    let mut purged = Vec::new();
    for (_, id, bytes) in deleted {
        if over == 0 {
            break;
        }
        over = over.saturating_sub(bytes);
        purged.push(id);
    }
    if over > 0 {
        return Err(full(format!("your library would hold {} of {most} bytes", used + more)));
    }
    Ok(purged)
}

pub(crate) fn full(message: String) -> ToolError {
    ToolError::new(Layer::Quota, codes::SCRIPT_LIBRARY_FULL, message)
        .next("delete a script with aegis.script.delete")
}

pub(crate) fn not_found(asked: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::SCRIPT_NOT_FOUND, "script", asked)
        .next("aegis.script.list shows yours")
}
