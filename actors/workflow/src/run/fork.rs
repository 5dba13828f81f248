//! Forks of machines: a step with `fork: true` runs in a fork of the machine of the step before, and the steps behind it
//! where it is the only one before them. A machine whose step failed is kept as a snapshot, which the next try begins
//! from, and which people look at in forks of their own.
//!
//! A try names its snapshot and its fork: what a daemon that died has made is found by the next, and nothing is
//! recorded before the try itself.

use std::{collections::BTreeSet, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{CallCx, SessionId, ToolError, WorkspaceId, codes, fault_point};
use hivekeep_manifest::dag::DagManifest;
use hivekeep_plan::{
    lower::StepWork,
    plan::{NodeIndex, NodeOrder},
    progress::{NodeKey, RunOutcome},
};
use hivekeep_ports::{OwnedSnapshot, WorkspaceForks};
use hivekeep_runtime::OnBehalfOf;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    MAKING, RunFold, RunPlace, RunRecord, RunSaga, RunWorkspace,
    clear::own_workspace,
    contained::container_name,
    container::WITHIN,
    failure::failed,
    node_try::{NodeTry, try_name},
    state::RunWork,
};

/// Snapshot of a machine whose step failed.
const FAILED: &str = "failed";
/// Seconds that a fork to look at a failure lives.
const LOOKING_SECS: u64 = 8 * 60 * 60;

/// Reason why a run cannot have a step with `fork: true`.
pub(super) fn unforkable<'s>(
    dag: &DagManifest,
    mut steps: impl Iterator<Item = &'s StepWork>,
    place: &RunPlace,
) -> Option<String> {
    let step = steps.find(|step| step.step.fork == Some(true))?;
    let own = matches!(place, RunPlace::Own);
    let why = match &step.action {
        action if !WITHIN.contains(&action.as_str()) => {
            format!("`{action:.80}` works in no machine: remove it")
        }
        _ if dag.container.is_some() || step.step.container.is_some() => {
            "a container is a sandbox, which has no forks: remove one of them".to_owned()
        }
        _ if !own => "its machine has to be the run's own: begin the run without a place, by the text of its DAG".to_owned(),
        _ => return None,
    };
    let name = step.step.name().unwrap_or("without a name");
    Some(format!("the step `{name:.80}` cannot have `fork`: {why}"))
}

/// Try of the step whose fork a step works in, where that is not the machine of the run.
pub(super) fn inherited(run: &RunFold, work: &RunWork, node: NodeIndex) -> Option<NodeKey> {
    let plan = work.progress.plan();
    let NodeOrder::Graph { follows } = &plan.order else { return None };
    let before = |at: NodeIndex| follows.get(at.at()).map(Vec::as_slice).unwrap_or_default();
    let forked = |at: NodeIndex| {
        let is_wanted = plan.node(at)?.action.step.fork == Some(true);
        let key = NodeKey { node: at, tries: work.progress.node(at)?.tries };
        (is_wanted && run.contained.contains_key(&try_name(key))).then_some(key)
    };
    if run.contained.is_empty() {
        return None;
    }
    let (mut open, mut seen, mut found) = (before(node).to_vec(), BTreeSet::new(), None);
    if open.is_empty() {
        return None;
    }
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        match forked(at) {
            Some(key) if found.is_some_and(|it| it != key) => return None,
            Some(key) => found = Some(key),
            // A path comes from the machine of the run.
            None if before(at).is_empty() => return None,
            None => open.extend(before(at)),
        }
    }
    found
}

impl RunSaga {
    /// Machine of a step without a container.
    pub(super) async fn machine_of(
        &self,
        of: &NodeTry<'_>,
        main: String,
    ) -> Result<(String, RunWorkspace), ToolError> {
        let (run, cancel) = (of.state, self.cancel_of(of.state, of.key));
        let name = container_name(run, of.key);
        let is_fork = of.node.step.fork == Some(true);
        if is_fork && run.contained.contains_key(&of.name) {
            let found = self.ready(run, &name, cancel).await?;
            return Ok((name, found));
        }
        let kept = run.kept.get(&of.key.node).filter(|_| is_fork);
        let before = match (kept, inherited(run, of.work, of.key.node)) {
            (Some(_), _) => None,
            (None, Some(key)) => {
                let name = container_name(run, key);
                let found = self.ready(run, &name, cancel).await?;
                Some((name, found))
            }
            (None, None) => Some((main, self.workspace(run, cancel).await?)),
        };
        let source = match (kept, before) {
            (_, Some(before)) if !is_fork => return Ok(before),
            (_, Some((_, machine))) => {
                self.frozen(run, &machine, format!("step-{}", of.name), cancel).await?
            }
            (Some(kept), None) => kept.clone(),
            (None, None) => return Err(ToolError::internal("a step of no machine")),
        };
        let session = Self::session(run)?;
        let span = tracing::info_span!("fork", run = %run.begun.id, step = %of.name);
        let cx = CallCx::internal(session, MAKING, cancel.child_token(), span);
        self.fork(&cx, &source, &name, None).await?;
        fault_point!("run.forked");
        let found = self.ready(run, &name, cancel).await?;
        let state = of.node.step.name().unwrap_or_default().to_owned();
        let (step, workspace) = (of.name.clone(), found.workspace);
        let made = RunRecord::Contained { state, step, workspace, at: Utc::now() };
        self.handle.record(made).await?;
        Ok((name, found))
    }

    /// Makes a fork, unless the daemon before this one did.
    async fn fork(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        name: &str,
        secs: Option<u64>,
    ) -> Result<(), ToolError> {
        let forks = self.shared.daemon.ports.need::<dyn WorkspaceForks>()?;
        match forks.fork(cx, source, name, false, secs).await {
            Err(error) if !error.is(codes::NAME_TAKEN) => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes a snapshot of a machine with its memory, unless it is there.
    async fn frozen(
        &self,
        run: &RunFold,
        machine: &RunWorkspace,
        snapshot: String,
        cancel: &CancellationToken,
    ) -> Result<OwnedSnapshot, ToolError> {
        let (owner, workspace) = (Self::session(run)?, machine.workspace);
        let caller = OnBehalfOf { cancel: cancel.child_token(), ..OnBehalfOf::own(owner, MAKING) };
        let args = json!({
            "workspace_id": workspace, "action": "create", "name": snapshot, "include_memory": true,
        });
        let made: Result<IgnoredAny, _> =
            self.shared.tools.call(run.begun.id, &caller, "snapshot", args).await;
        match made {
            Err(error) if error.is(codes::SNAPSHOT_UNSUPPORTED) => Err(failed(format!(
                "`fork: true` is for virtual machines, and this one has no snapshots ({}): have runs work in one \
                 (`[session.workspace] isolation = \"vm\"`), or remove `fork`",
                error.message
            ))),
            Err(error) if !error.is(codes::SNAPSHOT_EXISTS) => Err(error),
            _ => Ok(OwnedSnapshot { workspace, owner, snapshot }),
        }
    }

    /// Keeps the machine of a forked try that failed; none where it cannot be.
    pub(super) async fn kept_machine(&self, key: NodeKey) -> Option<OwnedSnapshot> {
        let run = self.handle.state();
        let step = run.work()?.progress.plan().node(key.node)?.action.step.fork;
        let workspace = *run.contained.get(&try_name(key)).filter(|_| step == Some(true))?;
        let machine = RunWorkspace { workspace, root: String::new(), user: None };
        let never = CancellationToken::new();
        let kept = self.frozen(&run, &machine, FAILED.to_owned(), &never).await;
        kept.inspect_err(|error| {
            tracing::warn!(run = %run.begun.id, step = %try_name(key), %error, "its machine is not kept");
        })
        .ok()
    }

    /// Has the workspaces that are kept behind the end of a run for its retry stop, and end by themselves: machines of
    /// forked steps that failed, and its own where it did not succeed. Removes those that nobody needs any more.
    ///
    /// # Errors
    /// The first that could not be told.
    pub(super) async fn retire(
        &self,
        run: &RunFold,
        session: SessionId,
        limit: Duration,
    ) -> Result<BTreeSet<WorkspaceId>, ToolError> {
        let (id, tools) = (run.begun.id, &self.shared.tools);
        let machines = run.kept.values().filter(|kept| kept.owner == session);
        let machines = machines.map(|kept| (kept.workspace, self.shared.kept_secs));
        let secs = self.shared.keep_workspace_secs;
        let failed = !matches!(
            run.outcome(),
            None | Some(RunOutcome::Succeeded | RunOutcome::PartlySucceeded)
        );
        // A workflow is not retried.
        let own = own_workspace(run).filter(|_| failed && secs > 0 && run.machine.is_none());
        let caller = OnBehalfOf::own(session, limit);
        for (workspace, secs) in machines.chain(own.map(|own| (own, secs))) {
            let end =
                json!({ "workspace_id": workspace, "lifetime_secs": secs, "at_end": "destroy" });
            let told: Result<IgnoredAny, _> =
                tools.call_idempotent(id, &caller, "workspace_lifetime", end).await;
            match told {
                Err(error) if error.is(codes::WORKSPACE_NOT_FOUND) => continue,
                told => told?,
            };
            let stop = json!({ "workspace_id": workspace });
            let stopped: Result<IgnoredAny, _> =
                tools.call(id, &caller, "workspace_stop", stop).await;
            if let Err(error) = stopped {
                tracing::warn!(run = %id, %workspace, %error, "a kept workspace is not stopped");
            }
        }
        for stale in &run.stale {
            let caller = OnBehalfOf::own(stale.owner, limit);
            tools.remove(id, &caller, &stale.workspace.to_string()).await?;
        }
        Ok(run.kept.values().map(|kept| kept.workspace).chain(own).collect())
    }
}

/// Makes a fork of a failed step's machine for the session of a call to look at, which ends by itself.
///
/// # Errors
/// Those of `workspace_fork`.
pub(crate) async fn look_into(
    forks: &dyn WorkspaceForks,
    cx: &CallCx,
    kept: &OwnedSnapshot,
) -> Result<WorkspaceId, ToolError> {
    let name = format!("debug-{}", WorkspaceId::new().uuid().simple());
    forks.fork(cx, kept, &name, false, Some(LOOKING_SECS)).await
}
