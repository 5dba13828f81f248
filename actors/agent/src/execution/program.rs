//! Program in place of turns: a durable task in the execution's machine, with a gateway as its only way to a model. Its
//! end is the end of the iteration. The task goes on when the daemon dies; the next one listens again. In a fork it is
//! the task that its source began, which waits for an answer there.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use chrono::Utc;
use hivekeep_kernel::{
    CallCx, ExecutionId, Layer, SessionId, ToolError, WorkspaceId,
    codes::{INVALID_INPUT, TOO_LARGE},
};
use hivekeep_ports::{
    GuestHttp, ModelRelay, ModelUse, Places, ProgramConnections, TaskAssignment, TaskOutputs,
    TaskResult, TaskText, TaskWindow, Tasks,
};
use hivekeep_runtime::{
    guest_task::GuestTask,
    log::{Decision, LogError},
    runs::RunState,
    saga::SagaView,
};
use tokio::{sync::Mutex, time::Instant};

use super::{
    ExecutionSaga, ExecutionStep,
    forks::ForkedProgram,
    program_end::ProgramEnd,
    state::{ExecutionState, Record},
};
use crate::{
    codes,
    gateway::{Gateway, GatewayTerms, ProgramListener},
    programs::ProgramPlan,
};

/// Place that is the own workspace of a session.
const OWN_PLACE: &str = "session";
/// Bytes of a program's output that are kept of its end.
const OUTPUT_BYTES: u32 = 64 * 1024;
/// The same of what it writes to stderr.
const ERROR_BYTES: u32 = 4 * 1024;
/// Time for which a machine that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks at it.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time of a task.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Ports that a program needs. Some are offered by families and doors behind this one.
struct ProgramPorts {
    places: Arc<dyn Places>,
    tasks: Arc<dyn Tasks>,
    outputs: Arc<dyn TaskOutputs>,
    connections: Arc<dyn ProgramConnections>,
    http: Arc<dyn GuestHttp>,
    relay: Arc<dyn ModelRelay>,
}

/// A program of one iteration, and where it runs.
pub(super) struct ProgramRun<'s> {
    pub(super) saga: &'s ExecutionSaga,
    pub(super) state: &'s ExecutionState,
    pub(super) program: &'s ProgramPlan,
    ports: ProgramPorts,
    pub(super) task_id: String,
    /// Program that another execution began, and that runs in this one's machine.
    forked: Option<ForkedProgram>,
    workspace: OnceLock<WorkspaceId>,
}

/// Id of the task in which an execution runs its program.
pub(crate) fn program_task(id: ExecutionId, iteration: usize) -> String {
    format!("{id}-{iteration}")
}

impl ExecutionSaga {
    /// Runs the program of the iteration to its end, and records that.
    pub(super) async fn program(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(program) = &state.begun.plan.program else { return Ok(()) };
        let Some(iteration) = state.iterations.len().checked_sub(1) else { return Ok(()) };
        let ports = match self.program_ports().await {
            Ok(ports) => ports,
            Err(error) => return self.fail(error).await,
        };
        let forked = state.forked_program().cloned();
        let task_id = match &forked {
            Some(forked) => forked.task_id.clone(),
            None => program_task(state.begun.id, iteration),
        };
        let workspace = OnceLock::new();
        let run =
            ProgramRun { saga: self, state: &state, program, ports, task_id, forked, workspace };
        let calls = Mutex::new(());
        let working = async {
            tokio::select! {
                biased;
                ended = self.while_it_runs(&calls, run.run()) => Ok(ended?.map_err(Some)),
                late = self.late() => late.map(|()| Err(None)),
                failed = self.make_calls(&calls) => Err(failed),
            }
        };
        let ran = self.handle.cancelled().run_until_cancelled(working).await;
        match ran.transpose()? {
            // The cancellation is recorded.
            None => {
                run.stop().await;
                Ok(())
            }
            Some(Ok(end)) => {
                let end = Box::new(end);
                self.handle.record(Record::ProgramEnded { iteration, end, at: Utc::now() }).await?;
                run.forget().await;
                Ok(())
            }
            Some(Err(error)) => {
                self.unless_closing().await;
                run.stop().await;
                if self.handle.view(|view| view.state.end.is_some()) {
                    return Ok(());
                }
                let state = self.handle.state();
                if let Some((left, shortage)) = self.time_left(&state)
                    && left.is_zero()
                {
                    return self.fail(shortage.exhausted()).await;
                }
                match (self.left(&state), error) {
                    (Err(over), _) => self.out_of_time(over).await,
                    (Ok(_), Some(error)) => self.fail_iteration(error).await,
                    // The clocks differ by a moment.
                    (Ok(_), None) => {
                        let secs = state.begun.plan.limits.iteration_ms / 1_000;
                        self.fail_iteration(ToolError::deadline(Layer::Actor, secs)).await
                    }
                }
            }
        }
    }

    /// Ends when no time is left, or the execution is over. A wait for more budget takes no time of work, and its own end
    /// is recorded.
    async fn late(&self) -> Result<(), LogError> {
        let mut news = self.handle.watch();
        loop {
            let state = self.handle.state();
            let until = state.account.waiting().map(|wait| wait.until);
            let paid = self.time_left(&state).map_or(Duration::MAX, |(left, _)| left);
            let left = match until {
                Some(at) => (at - Utc::now()).to_std().unwrap_or_default(),
                None => self.left(&state).map_or(Duration::ZERO, |left| left.min(paid)),
            };
            if state.end.is_some() || until.is_none() && left.is_zero() {
                return Ok(());
            }
            let changed = |view: &SagaView<Self>| {
                let now = view.state.account.waiting().map(|wait| wait.until);
                now != until || view.state.end.is_some()
            };
            if left.is_zero() {
                let ends = |state: &ExecutionState| {
                    let over = state.woken(Utc::now());
                    Ok(over.map_or_else(Decision::nothing, Decision::record))
                };
                self.handle.decide::<LogError>(ends).await?;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                // The handle keeps it open.
                _ = news.wait_for(changed) => {}
            }
        }
    }

    /// Makes the calls of the program while it runs, as those of a model: counted, judged, and each recorded.
    async fn make_calls(&self, in_use: &Mutex<()>) -> LogError {
        let mut news = self.handle.watch();
        loop {
            // The handle keeps it open.
            let calls = |view: &SagaView<Self>| !view.state.program_steps().is_empty();
            let _always: bool = news.wait_for(calls).await.is_ok();
            let _in_use = in_use.lock().await;
            let steps = self.handle.view(|view| view.state.program_steps());
            let steps = steps.into_iter().map(async |step| match step {
                ExecutionStep::Admit => self.admit().await,
                ExecutionStep::Call(key) => self.call(key).await,
                ExecutionStep::Ask(key, judge) => self.ask(key, judge).await,
                ExecutionStep::Weigh(key) => self.weigh(key).await,
                _ => Ok(()),
            });
            if let Err(error) = futures::future::try_join_all(steps).await {
                return error;
            }
        }
    }

    /// Ports, once the daemon serves.
    async fn program_ports(&self) -> Result<ProgramPorts, ToolError> {
        let ports = &self.shared.daemon.ports;
        let until = Instant::now() + PATIENCE;
        let http = loop {
            match ports.need::<dyn GuestHttp>() {
                Err(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                found => break found?,
            }
        };
        Ok(ProgramPorts {
            http,
            places: ports.need()?,
            tasks: ports.need()?,
            outputs: ports.need()?,
            connections: ports.need()?,
            relay: ports.need()?,
        })
    }
}

impl ProgramRun<'_> {
    async fn run(&self) -> Result<ProgramEnd, ToolError> {
        let place = self.place().await?;
        let gateway: Arc<Gateway> = Gateway::new(
            self.terms(),
            self.ports.relay.clone(),
            self.saga.handle.clone(),
            self.saga.shared.clone(),
        );
        let listening = ProgramListener {
            session: self.host().0,
            user: self.state.begun.user,
            workspace: place,
            port: self.program.port(),
            connections: self.ports.connections.clone(),
            records: self.saga.handle.clone(),
            http: self.ports.http.clone(),
            handler: gateway,
        };
        let work = async {
            match self.program.acp {
                true => self.talk().await,
                false => self.end(self.follow(self.assignment()?).await?).await,
            }
        };
        tokio::select! {
            biased;
            error = listening.serve() => Err(error),
            end = work => end,
        }
    }

    /// Machine of the execution, which runs then.
    async fn place(&self) -> Result<WorkspaceId, ToolError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let span = tracing::info_span!("program", execution = %self.state.begun.id);
            let (session, name) = self.host();
            let cancel = self.saga.handle.cancelled().child_token();
            let cx = CallCx::internal(session, PATIENCE, cancel, span);
            match self.ports.places.workspace(&cx, Some(name)).await {
                Ok(place) => {
                    let _the_same = self.workspace.set(place.workspace);
                    return Ok(place.workspace);
                }
                Err(error) if error.retryable && Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Session whose the machine is, and the machine's name there.
    fn host(&self) -> (SessionId, &str) {
        match &self.program.place {
            Some(place) => (self.state.begun.session, &place.name),
            None => (ExecutionSaga::child(self.state), OWN_PLACE),
        }
    }

    fn terms(&self) -> GatewayTerms {
        let (provider, plan) = (&self.program.provider, &self.state.begun.plan);
        let models = self.saga.shared.models.configured().into_iter();
        let own =
            models.filter(|it| it.source.provider == *provider && it.usage == ModelUse::Generate);
        let asked = self.forked.iter().map(|forked| forked.model.clone());
        let model = self.program.model.clone();
        let models: BTreeSet<_> =
            own.map(|it| it.source.model).chain(asked).chain([model.clone()]).collect();
        GatewayTerms {
            api: self.program.api,
            provider: provider.clone(),
            model,
            forked: self.forked.clone(),
            models,
            payer: self.state.begun.payer,
            child: ExecutionSaga::child(self.state),
            limit: Duration::from_secs(plan.limits.model_secs),
            whole: self.program.whole,
        }
    }

    fn assignment(&self) -> Result<TaskAssignment, ToolError> {
        let prompt = self.state.iteration().map(|it| it.prompt.clone()).unwrap_or_default();
        let (command, env) = self.program.script(&prompt)?;
        Ok(TaskAssignment {
            message_id: match &self.forked {
                Some(forked) => forked.message_id.clone(),
                None => self.state.begun.id.to_string(),
            },
            task_id: self.task_id.clone(),
            command,
            workdir: self.program.place.as_ref().map(|place| place.root.clone()),
            env,
            // Its iteration ends it in time, without the waits for more budget.
            timeout_secs: LONGEST.as_secs(),
        })
    }

    /// Assigns the task, which is run once, and waits for its result. A machine that does not answer is looked for again.
    /// One of a fork has its task.
    async fn follow(&self, assignment: TaskAssignment) -> Result<TaskResult, ToolError> {
        let (mut assigned, mut until) = (self.forked.is_some(), None);
        loop {
            let looked = match assigned {
                false => {
                    let task = self.task(self.at()?, &assignment.message_id);
                    task.put(assignment.clone()).await
                }
                true => self.result(&assignment.message_id).await,
            };
            match looked {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => (assigned, until) = (true, None),
                Err(error) if error.is_any(&[INVALID_INPUT, TOO_LARGE, codes::PROGRAM_FAILED]) => {
                    return Err(error);
                }
                Err(error) => {
                    if Instant::now() >= *until.get_or_insert(Instant::now() + PATIENCE) {
                        return Err(error);
                    }
                    tokio::time::sleep(PAUSE).await;
                    self.place().await?;
                }
            }
        }
    }

    pub(super) fn at(&self) -> Result<WorkspaceId, ToolError> {
        let place = self.workspace.get().copied();
        place.ok_or_else(|| ToolError::internal("a program runs in no machine"))
    }

    fn task<'t>(&'t self, workspace: WorkspaceId, message: &'t str) -> GuestTask<'t> {
        GuestTask { tasks: &*self.ports.tasks, workspace, id: &self.task_id, message }
    }

    /// Waits for news, and looks for the result.
    async fn result(&self, message: &str) -> Result<Option<TaskResult>, ToolError> {
        let at = self.at()?;
        // Looked at before its result: one that has ended has that.
        let is_lost = match self.forked {
            Some(_) => !self.ports.tasks.board(at).await?.running.contains(&self.task_id),
            None => false,
        };
        let task = self.task(at, message);
        if !is_lost {
            return task.look().await;
        }
        if let Some(result) = task.result().await? {
            return Ok(Some(result));
        }
        let message = "the program that was forked does not run in the machine of the fork";
        Err(ToolError::new(Layer::Actor, codes::PROGRAM_FAILED, message)
            .next("fork from an earlier checkpoint, or run the agent again"))
    }

    /// End of the program, with the last of what it wrote.
    async fn end(&self, result: TaskResult) -> Result<ProgramEnd, ToolError> {
        let TaskResult { outcome, capture, .. } = result;
        let from = |text: &TaskText, most: u32| text.total_bytes.saturating_sub(most.into());
        let whole = !capture.stdout.truncated && !capture.stderr.truncated;
        let (stdout, stderr) = match whole {
            true => (capture.stdout.text, capture.stderr.text),
            false => {
                let window = TaskWindow {
                    task_id: self.task_id.clone(),
                    stdout_from: from(&capture.stdout, OUTPUT_BYTES),
                    stderr_from: from(&capture.stderr, ERROR_BYTES),
                    max_bytes: OUTPUT_BYTES,
                };
                let output = self.ports.outputs.output(self.at()?, window).await?;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (text(&output.stdout.bytes), text(&output.stderr.bytes))
            }
        };
        let cut = stderr.ceil_char_boundary(stderr.len().saturating_sub(ERROR_BYTES as usize));
        let output = self.program.result(&stdout);
        Ok(ProgramEnd { outcome, output, stderr: stderr[cut..].to_owned() })
    }

    /// Ends the program, as far as its machine can be asked.
    async fn stop(&self) {
        if self.program.acp {
            return self.hang_up().await;
        }
        // The program may not have been looked at since the daemon began: its machine stood still.
        let machines = &self.saga.shared.machines;
        let own = || match &self.program.place {
            Some(place) => Some(place.workspace),
            None => machines.own(self.state).map(|found| found.id),
        };
        let Some(at) = self.workspace.get().copied().or_else(own) else { return };
        self.task(at, "").stop().await;
    }

    /// Lets the machine forget the result, which is recorded.
    async fn forget(&self) {
        if self.program.acp {
            return self.hang_up().await;
        }
        let Some(at) = self.workspace.get() else { return };
        self.task(*at, "").forget().await;
    }
}
