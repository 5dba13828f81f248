//! Workspaces of containers: sandboxes of an image over the folder or the volume that a run works in. A step has one for
//! each of its tries, or its DAG one for all steps without one of their own. A container is found by its name whatever
//! died meanwhile; one that was used and is gone is not made again.

use std::time::Duration;

use chrono::Utc;
use hivekeep_kernel::{ToolError, codes};
use hivekeep_plan::{lower::StepWork, progress::NodeKey};
use hivekeep_ports::MOUNTED_PLACE;
use hivekeep_runtime::OnBehalfOf;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    MAKING, RunFold, RunPlace, RunRecord, RunSaga, RunWorkspace,
    command::LONGEST_SECS,
    container::{StepContainer, VOLUME, settings, source},
    node_try::{NodeTry, try_name},
    scope::RunScopes,
};
use crate::secrets::RunSecrets;

/// Size of a volume that is made for a run, and hours that it is kept when no workspace has it.
const VOLUME_BYTES: u64 = 1024 * 1024 * 1024;
const VOLUME_HOURS: u64 = 1;
/// Time limit of making a volume, and of a look at a workspace.
const MAKING_VOLUME: Duration = Duration::from_secs(120);

/// Name of a container as a place, and whose it is.
pub(crate) struct ContainerPlace<'c> {
    pub(crate) place: &'c str,
    /// Name of its state, or of its step.
    pub(crate) state: &'c str,
    /// Name in the records of the run.
    pub(crate) step: &'c str,
}

impl RunSaga {
    /// Workspace of a container, with the user that its image names. One that was made before a crash is found by its
    /// name.
    ///
    /// # Errors
    /// Those of making a workspace, and of one that is gone.
    pub(crate) async fn contained(
        &self,
        run: &RunFold,
        container: ContainerPlace<'_>,
        request: Value,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        let id = run.begun.id;
        let caller =
            OnBehalfOf { cancel: cancel.clone(), ..OnBehalfOf::own(Self::session(run)?, MAKING) };
        let is_used = run.contained.contains_key(container.step);
        if !is_used {
            let made: Result<IgnoredAny, _> =
                self.shared.tools.call(id, &caller, "workspace_create", request).await;
            if let Err(error) = made
                && !error.is(codes::NAME_TAKEN)
            {
                return Err(error);
            }
        }
        let mut found = self.ready(run, container.place, cancel).await?;
        let workspace = found.workspace;
        let told = self.shared.tools.look(id, &caller, &workspace.to_string()).await?;
        found.user = told.user.filter(|user| user != "root");
        if !is_used {
            let (state, step) = (container.state.to_owned(), container.step.to_owned());
            let contained = RunRecord::Contained { state, step, workspace, at: Utc::now() };
            self.handle.record(contained).await?;
        }
        Ok(found)
    }

    /// Makes a volume for a run, unless it is there.
    ///
    /// # Errors
    /// Those of `aegis.volume.create`.
    pub(crate) async fn make_volume(
        &self,
        run: &RunFold,
        label: &str,
        size_bytes: u64,
        ttl_hours: Option<u64>,
    ) -> Result<(), ToolError> {
        let caller = OnBehalfOf::own(Self::session(run)?, MAKING_VOLUME);
        let mut args = json!({ "label": label, "size_limit_bytes": size_bytes });
        if let Some(hours) = ttl_hours {
            args["ttl_hours"] = json!(hours);
        }
        let (tools, id) = (&self.shared.tools, run.begun.id);
        let made: Result<IgnoredAny, _> =
            tools.call(id, &caller, "aegis.volume.create", args).await;
        made.map(drop).or_else(|error| match error.is(codes::NAME_TAKEN) {
            true => Ok(()),
            false => Err(error),
        })
    }

    /// Makes the volume that the run works in, if it has one of its own.
    pub(super) async fn make_place(&self, run: &RunFold) -> Result<(), ToolError> {
        let RunPlace::Made(place) = &run.begun.place else { return Ok(()) };
        let label = place.strip_prefix(VOLUME).unwrap_or(place);
        let making = || self.make_volume(run, label, VOLUME_BYTES, Some(VOLUME_HOURS));
        let made = self.volume.get_or_try_init(making).await;
        made.map(drop).map_err(|error| error.next(
            "begin the run in a folder that the configuration opens (`[session.places]`), which containers mount, too",
        ))
    }

    /// Workspace of the steps without a container of their own.
    pub(super) async fn main_workspace(
        &self,
        run: &RunFold,
        cancel: &CancellationToken,
    ) -> Result<RunWorkspace, ToolError> {
        self.make_place(run).await?;
        let place = main_place(run);
        let dag = &run.begun.dag;
        let container = match run.work() {
            Some(work) => {
                // Its making is recorded.
                let mut scopes = RunScopes::of_root(run, work, RunSecrets::default());
                StepContainer::of_dag(dag, work, &mut scopes)?
            }
            None => {
                let settings = dag.container.as_ref().map(settings);
                settings.map(|it| StepContainer::written(&Value::Object(it)))
            }
        };
        let Some(container) = container else { return self.ready(run, &place, cancel).await };
        let name = place.split(':').next().unwrap_or(&place);
        let request = container.request(run, name, None)?;
        let whose = ContainerPlace { place: &place, state: &run.begun.name, step: "container" };
        let found = self.contained(run, whose, request, cancel).await?;
        Ok(RunWorkspace { user: container.user.or(found.user), ..found })
    }

    /// Workspace of the commands of a step, behind the name of its place.
    ///
    /// # Errors
    /// Those of making it; `step_failed` for a container that cannot be.
    pub(super) async fn environment(
        &self,
        of: &NodeTry<'_>,
    ) -> Result<(String, RunWorkspace), ToolError> {
        let (run, cancel) = (of.state, self.cancel_of(of.state, of.key));
        let Some(container) = &of.container else {
            return self.machine_of(of, main_place(run)).await;
        };
        self.make_place(run).await?;
        let name = container_name(run, of.key);
        let secs = of.node.step.timeout_sec.filter(|secs| *secs > 0).unwrap_or(LONGEST_SECS);
        let request = container.request(run, &name, Some(secs))?;
        of.keeps_secrets(&request)?;
        let place = format!("{name}:{MOUNTED_PLACE}");
        let state = of.node.step.name().or(of.node.step.id()).unwrap_or_default();
        let whose = ContainerPlace { place: &place, state, step: &of.name };
        let found = self.contained(run, whose, request, cancel).await?;
        Ok((place, RunWorkspace { user: container.user.clone().or(found.user), ..found }))
    }

    /// Removes the container of a try whose end is recorded, as far as it can: one that stays ends by itself.
    pub(super) async fn remove_container(&self, run: &RunFold, key: NodeKey) {
        let Ok(session) = Self::session(run) else { return };
        let is_fork = |step: &StepWork| step.step.fork == Some(true);
        let plan = run.work().map(|work| work.progress.plan());
        let forked =
            plan.and_then(|plan| plan.node(key.node)).is_some_and(|it| is_fork(&it.action));
        if forked || !self.handle.state().contained.contains_key(&try_name(key)) {
            return;
        }
        let (id, name) = (run.begun.id, container_name(run, key));
        let caller = OnBehalfOf::own(session, MAKING);
        if let Err(error) = self.shared.tools.remove(id, &caller, &name).await {
            tracing::warn!(run = %id, name, %error, "its container is not removed");
        }
    }
}

/// Beginning of the names of a run's workspaces.
pub(super) fn workspace_names(run: &RunFold) -> String {
    format!("run-{}-", run.begun.id.uuid().simple())
}

/// Name of the workspace of a try.
pub(super) fn container_name(run: &RunFold, key: NodeKey) -> String {
    format!("{}{}-{}", workspace_names(run), key.node.0, key.tries)
}

/// Place of the steps without a container of their own.
pub(super) fn main_place(run: &RunFold) -> String {
    if run.begun.dag.container.is_none() {
        let inherited = run.inherited.as_ref().map(|it| it.workspace.to_string());
        return inherited.unwrap_or_else(|| run.begun.place.name().to_owned());
    }
    let folder = source(&run.begun.place).map(|_| format!(":{MOUNTED_PLACE}"));
    format!("{}all-{}{}", workspace_names(run), run.attempt, folder.unwrap_or_default())
}
