//! Workflows and DAGs: durable runs of plans, and the workflows that users and operators deploy.
//!
//! ```text
//! workflows                  the tools, and the registry of manifests
//! runs ─ run*                a run each, while it has something to do: its steps are tasks of a guest
//! questions                  questions to people of all runs that wait, as they stand in the approvals
//! dag-folders                looks at the files of watched folders
//! dag-schedules ─ schedule*  a DAG of those each whose time has come
//! ```
//! Texts are checked by `hivekeep-manifest`, those of workflows kept by `hivekeep-manifest-registry`, and lowered and
//! resolved by `hivekeep-plan`; runs are begun, kept and gone on with by [`hivekeep_runtime::runs`]. A step runs a
//! command, a program of the agents family, a tool, a DAG or a loop, or asks a model or a person. The states of a workflow are nodes
//! of such a plan, too.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod dag_file;
mod dags;
mod families;
mod folders;
mod jq;
mod machine;
mod options;
mod people;
mod place_text;
mod run;
mod schedule;
mod secrets;
mod service;
mod webhooks;
mod workflows;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::{
    CallCx, ErrorCode, Layer, RestartPolicy, RunId, Service, ServiceActor, SessionId, ToolError,
    ToolInfo, User, codes::RUN_OVER, lock,
};
use hivekeep_manifest_registry::RegisteredManifest;
use hivekeep_plan::progress::RunOutcome;
use hivekeep_ports::{RunFeeds, Webhooks};
use hivekeep_runtime::{
    Child, Daemon, Family, Mounted,
    log::Sourced as _,
    runs::{RunCaller, RunEvents, Runs},
    saga::SagaView,
};

use folders::LOOK_EVERY;
pub use hivekeep_plan::resolve::FormValues;
pub use jq::{JQ_ARGUMENT, jq_main};
pub use machine::{MachineRequest, MachineStatus, Workflows};
pub use options::{Options, QueueOptions, SecretOptions};
pub use run::{AnswerEffect, HELD, RunPlace, RunRequest, RunTrigger, StepAnswer};
use run::{DeskActor, RunFold, RunRecord, RunSaga, RunShared, answered, node_named};
use service::WorkflowService;
use workflows::DeployedWorkflow;

/// Family of the tools of DAGs and of their runs; six actors below the root. Needs the ports
/// [`ChildSessions`](hivekeep_ports::ChildSessions), [`Places`](hivekeep_ports::Places),
/// [`PlaceFiles`](hivekeep_ports::PlaceFiles), [`Tasks`](hivekeep_ports::Tasks) and
/// [`TaskOutputs`](hivekeep_ports::TaskOutputs), for folders [`PlaceFolders`](hivekeep_ports::PlaceFolders), and the
/// limit of calls that wait; looks for
/// [`Executions`](hivekeep_ports::Executions) and [`Models`](hivekeep_ports::Models) when they are needed.
pub struct WorkflowFamily;

impl Family for WorkflowFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- dag_start runs a DAG, which is one YAML file of steps; dag_runs waits for its end and shows its steps, dag_logs \
what they wrote, dag_control stops and retries.
- aegis.workflow.search finds a workflow for a task, aegis.workflow.run runs it, aegis.workflow.wait waits for its \
result; aegis.workflow.create deploys one from its manifest. aegis.execute.intent has a program written and run.";

    const HOLDS: &'static [&'static str] = &[HELD, DeployedWorkflow::HELD];

    fn tools() -> Vec<&'static ToolInfo> {
        let groups = <WorkflowService as Service>::TOOLS;
        groups.iter().flat_map(|group| group.rows.iter().map(|row| &row.0)).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let (service, children) = WorkflowService::open(daemon, &options).await?;
        let address = daemon.address("workflows", RestartPolicy::ENTITY);
        let mut mounted = Mounted::default();
        mounted.children.extend(children);
        let watch = daemon.address("dag-folders", RestartPolicy::ENTITY);
        let watched = (service.folders.clone(), service.schedules.clone());
        let mounted =
            mounted.periodic(&watch, LOOK_EVERY, watched, |(folders, schedules)| async move {
                folders.look(&schedules).await;
            });
        let service = Arc::new(service);
        daemon.ports.offer::<dyn RunFeeds>(service.clone());
        daemon.ports.offer::<dyn Webhooks>(service.clone());
        Ok(mounted.serving::<ServiceActor<WorkflowService>>(&address, service))
    }
}

/// Runs of DAGs. Cheap to clone; clones are one.
#[derive(Clone)]
pub struct DagRuns(Runs<RunSaga>, Arc<RunShared>);

impl DagRuns {
    /// Reads all runs of the journal. The children are the actor that goes on with them, `runs` below the root, and
    /// the one that puts their questions to people, `questions`.
    ///
    /// # Errors
    /// `state_unreadable`; `internal` where a family that runs need is not there.
    pub async fn open(daemon: &Daemon, options: &Options) -> Result<(Self, [Child; 2]), ToolError> {
        let shared = Arc::new(RunShared::of(daemon, options)?);
        let (runs, child) = Runs::open(daemon, "runs", options.runs(), shared.clone()).await?;
        let _the_first = shared.runs.set(runs.downgrade());
        let desk = daemon.address("questions", RestartPolicy::ESSENTIAL);
        let desk = Child::new::<DeskActor>(desk, shared.clone());
        Ok((Self(runs, shared), [child, desk]))
    }

    /// Begins a run, which is durable when this returns.
    ///
    /// # Errors
    /// `dag_invalid`, `too_many_runs`, `daemon_stopping`, `journal_failed`.
    pub async fn begin(&self, request: RunRequest) -> Result<(), ToolError> {
        self.0.begin(request.id, request.begun()?).await
    }

    /// Begins another run of the text of one, with its parameters, for a session.
    ///
    /// # Errors
    /// As [`Self::begin`]; `dag_invalid` for a run that is a part of another.
    pub(crate) async fn begin_again(
        &self,
        of: &RunFold,
        id: RunId,
        (user, session): (User, SessionId),
    ) -> Result<(), ToolError> {
        if of.begun.body.is_some() {
            let message = "the run is an item of a loop, and belongs to that";
            return Err(ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                .next("begin the run again whose step the loop is"));
        }
        self.0.begin(id, of.begun.again(id, user, session)).await
    }

    /// Reads a run with its records. One that is over keeps little in memory: it is added up from them.
    ///
    /// # Errors
    /// `run_not_found`; when the stream cannot be read.
    pub(crate) async fn told(
        &self,
        caller: RunCaller,
        id: &str,
    ) -> Result<(SagaView<RunSaga>, Vec<RunRecord>), ToolError> {
        let mut view = self.0.get(caller, id)?;
        let records = self.0.records(caller, id).await?;
        let unreadable = |_: RunRecord| ToolError::internal("records of a run that do not follow");
        let mut all = records.iter().cloned();
        let first = all.next().ok_or_else(|| ToolError::internal("a run without records"))?;
        let mut state = RunFold::begin(first).map_err(unreadable)?;
        for record in all {
            state.apply(record).map_err(unreadable)?;
        }
        view.state = state;
        Ok((view, records))
    }

    /// Outcome of a run; `None` while it goes on.
    ///
    /// # Errors
    /// `run_not_found`.
    pub fn outcome(&self, caller: RunCaller, id: RunId) -> Result<Option<RunOutcome>, ToolError> {
        self.0.get(caller, &id.to_string()).map(|view| view.state.outcome())
    }

    /// Waits until a run is over, at most `limit` and the call's time; `None` if it is not over.
    ///
    /// # Errors
    /// `run_not_found`; those of [`Runs::wait`].
    pub async fn wait(
        &self,
        cx: &CallCx,
        id: RunId,
        limit: Duration,
    ) -> Result<Option<RunOutcome>, ToolError> {
        let (view, _) = self.0.wait(cx, &id.to_string(), limit).await?;
        Ok(view.state.outcome())
    }

    /// Reads the events of a run: at most `limit` after the first `offset`.
    ///
    /// # Errors
    /// `run_not_found`; when the stream cannot be read.
    pub async fn events(
        &self,
        caller: RunCaller,
        id: RunId,
        offset: usize,
        limit: usize,
    ) -> Result<RunEvents, ToolError> {
        self.0.events(caller, &id.to_string(), offset, limit).await
    }

    /// Stops a run: answers when that is durable, and false when nothing was left to stop.
    ///
    /// # Errors
    /// `run_not_found`, `journal_failed`.
    pub async fn stop(&self, caller: RunCaller, id: RunId) -> Result<bool, ToolError> {
        self.0.cancel(caller, &id.to_string()).await
    }

    /// Has a run that is over go on with another attempt.
    ///
    /// # Errors
    /// `run_not_found`, `too_many_runs`; `busy` for one that is not over; `dag_invalid` where nothing is to be done
    /// again.
    pub async fn retry(
        &self,
        caller: RunCaller,
        id: RunId,
        from: hivekeep_plan::progress::RetryFrom,
    ) -> Result<(), ToolError> {
        self.0.reopen(caller, &id.to_string(), move |state| state.retried(from)).await
    }

    /// Answers a step that waits for a person: a human task by its id, an approval by the step's id or name. The run
    /// goes on, and nobody is asked any more.
    ///
    /// # Errors
    /// `run_not_found`, `step_not_waiting`, `answered_otherwise`, `invalid_input`, `too_large`, `journal_failed`;
    /// `busy` where it is pushed back while a step works that would be done again.
    pub async fn answer(
        &self,
        caller: RunCaller,
        id: RunId,
        step: &str,
        answer: StepAnswer,
    ) -> Result<AnswerEffect, ToolError> {
        let (step, by, effect) = (step.trim().to_owned(), caller.user.to_string(), Arc::default());
        let decide = {
            let effect: Arc<Mutex<Option<AnswerEffect>>> = Arc::clone(&effect);
            move |state: &RunFold| {
                let node = node_named(state, &step)?;
                let (decision, done) = answered(state, (node, None), &answer, &by)?;
                *lock(&effect) = Some(done);
                Ok(decision)
            }
        };
        let told = match self.0.tell(caller, &id.to_string(), decide.clone()).await {
            Err(error) if error.is(RUN_OVER) => {
                // The same answer as before is no error.
                let again = self.0.get(caller, &id.to_string()).map(|view| decide(&view.state))?;
                let differs = |other: &ToolError| other.is(codes::ANSWERED_OTHERWISE);
                again.map(drop).map_err(|other| if differs(&other) { other } else { error })
            }
            told => told,
        };
        self.1.desk.look();
        told?;
        let effect = lock(&effect).take();
        Ok(effect.unwrap_or(AnswerEffect::Taken))
    }
}

#[cfg(test)]
mod tests;
