//! Removal of what was made for a run.

use std::time::Duration;

use hivekeep_kernel::{SessionId, ToolError, WorkspaceId, codes};
use hivekeep_ports::{MOUNTED_PLACE, own_workspace_name};
use hivekeep_runtime::OnBehalfOf;
use serde::de::IgnoredAny;
use serde_json::json;

use super::{
    RunFold, RunPlace, RunSaga,
    contained::workspace_names,
    container::{SHARED_SCRATCH, VOLUME},
};

/// Time limit of removing what was made for a run.
const CLEARING: Duration = Duration::from_secs(50);

impl RunSaga {
    /// Removes the workspaces that were made for a run, and what its steps left for one another.
    ///
    /// # Errors
    /// The first that could not be removed.
    pub(super) async fn clear(&self, run: &RunFold, session: SessionId) -> Result<(), ToolError> {
        let (id, tools) = (run.begun.id, &self.shared.tools);
        let caller = OnBehalfOf::own(session, CLEARING);
        let kept = self.retire(run, session, CLEARING).await?;
        let names = [own_workspace_name(session), workspace_names(run)];
        for row in tools.workspaces(id, &caller).await? {
            let is_named = names.iter().any(|name| row.name.starts_with(name));
            let is_made = is_named || own_workspace(run) == Some(row.workspace_id);
            if row.owned && is_made && !kept.contains(&row.workspace_id) {
                tools.remove(id, &caller, &row.workspace_id.to_string()).await?;
            }
        }
        if run.begun.place == RunPlace::made(id) {
            let label = run.begun.place.name().strip_prefix(VOLUME);
            let args = json!({ "volume_id": label });
            let gone: Result<IgnoredAny, _> =
                tools.call_idempotent(id, &caller, "aegis.volume.delete", args).await;
            // A run that used none has none.
            return match gone {
                Err(error) if !error.is(codes::VOLUME_NOT_FOUND) => Err(error),
                _ => Ok(()),
            };
        }
        let shared = format!("{MOUNTED_PLACE}/{SHARED_SCRATCH}/{id}");
        let RunPlace::Folder(place) = &run.begun.place else { return Ok(()) };
        if run.begun.folder != shared {
            return Ok(());
        }
        for (path, recursive) in
            [(format!("{SHARED_SCRATCH}/{id}"), true), (SHARED_SCRATCH.into(), false)]
        {
            let args = json!({ "place": place, "path": path, "recursive": recursive });
            let gone: Result<IgnoredAny, _> = tools.call(id, &caller, "fs.delete", args).await;
            if let Err(error) = gone
                && recursive
                && !error.is(codes::NOT_FOUND)
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Workspace of a run's own that its steps worked in, without containers.
pub(super) fn own_workspace(run: &RunFold) -> Option<WorkspaceId> {
    let is_own = run.begun.place == RunPlace::Own && run.begun.dag.container.is_none();
    run.workspace.as_ref().filter(|_| is_own).map(|it| it.workspace)
}
