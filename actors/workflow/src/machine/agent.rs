//! Agents of a state: executions under ids that were recorded before, one or several side by side.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use hivekeep_kernel::{CallCx, ToolError, codes};
use hivekeep_manifest::{
    common::{JsonObject, OutputHandler},
    workflow::{PanelJudge, ParallelAgent, WorkflowState},
};
use hivekeep_plan::machine::{PanelAnswer, StateOutput, StateResult, StateStatus};
use hivekeep_ports::{ExecutionOrder, ExecutionResult, Executions, OrderedAgent, OrderedJudge};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    visit::{StateVisit, unrendered},
    work::within,
};
use crate::run::{MAKING, PATIENCE, PAUSE, RunSaga, failed};

/// Time limit of the end of an execution that is cancelled.
const CANCELLING: Duration = Duration::from_secs(60);
/// Iterations of an agent with judges whose state names no bound.
const ITERATIONS: u64 = 10;
/// Score from which on a validator lets the input of an agent pass.
const PASSES: f64 = 0.7;
/// Seconds of an agent beside others that names no time, and of a receiver.
const PANEL_SECS: u64 = 60;
const HANDLER_SECS: u64 = 300;

/// Work of an agent, with its texts rendered.
struct AgentWork {
    /// Place among the executions of the state.
    place: usize,
    agent: String,
    intent: Option<String>,
    input: String,
    judges: Vec<OrderedJudge>,
    max_iterations: Option<u64>,
}

impl RunSaga {
    pub(super) async fn agent(
        &self,
        at: &StateVisit<'_>,
        cancel: &CancellationToken,
    ) -> Result<StateOutput, ToolError> {
        let WorkflowState::Agent {
            agent,
            input,
            intent,
            judges,
            max_iterations,
            pre_execution_validator,
            ..
        } = at.state
        else {
            return Err(ToolError::internal("a state of another kind"));
        };
        let judges = at.judges(judges.as_deref().unwrap_or_default())?;
        let work = AgentWork {
            place: 0,
            agent: at.rendered("agent", agent)?,
            intent: intent.as_ref().map(|text| at.rendered("intent", text)).transpose()?,
            input: at.scope().input(input).map_err(|why| unrendered("input", &why))?,
            max_iterations: max_iterations.or((!judges.is_empty()).then_some(ITERATIONS)),
            judges,
        };
        if let Some(validator) = pre_execution_validator {
            let agent = at.rendered("pre_execution_validator", validator)?;
            let asks = AgentWork::plain(1, agent, work.input.clone());
            let verdict = agent_output(self.execute(at, asks, cancel).await?);
            let is_valid = match &verdict.result {
                StateResult::Agent { output, .. } => output.get("valid") != Some(&json!(false)),
                _ => true,
            };
            let scores = verdict.score().is_none_or(|score| score >= PASSES);
            if verdict.status == StateStatus::Failed || !is_valid || !scores {
                return Ok(verdict.failed("its validator did not let the input pass"));
            }
        }
        Ok(agent_output(self.execute(at, work, cancel).await?))
    }

    pub(super) async fn panel(
        &self,
        at: &StateVisit<'_>,
        cancel: &CancellationToken,
    ) -> Result<StateOutput, ToolError> {
        let WorkflowState::ParallelAgents { agents, consensus, judges_for_parallel, .. } = at.state
        else {
            return Err(ToolError::internal("a state of another kind"));
        };
        let judges = at.judges(judges_for_parallel.as_deref().unwrap_or_default())?;
        let answers = agents.iter().enumerate().map(async |(place, one)| {
            self.panel_answer(at, (place, one), judges.clone(), cancel).await
        });
        let answers = join_all(answers).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(StateOutput::panel(consensus, answers))
    }

    /// Answer of an agent beside others. One that fails, or has no time left, gives none.
    async fn panel_answer(
        &self,
        at: &StateVisit<'_>,
        (place, one): (usize, &ParallelAgent),
        judges: Vec<OrderedJudge>,
        cancel: &CancellationToken,
    ) -> Result<PanelAnswer, ToolError> {
        let weight = one.weight.unwrap_or(1.0);
        let agent = at.rendered("agents.agent", &one.agent)?;
        let input = at.scope().input(&one.input).map_err(|why| unrendered("agents.input", &why))?;
        let work = AgentWork { judges, ..AgentWork::plain(place, agent.clone(), input) };
        let ends_at = after(at, one.timeout_seconds.unwrap_or(PANEL_SECS));
        let (text, judged) = match self.execute_until(at, work, ends_at, cancel).await? {
            ExecutionResult::Completed { output, judged } => (Some(output), judged),
            ExecutionResult::Failed { judged, .. } => (None, judged),
            ExecutionResult::Cancelled => (None, None),
        };
        let mut answer = PanelAnswer::new(&agent, weight, text.as_deref());
        if let Some(judged) = judged {
            (answer.score, answer.confidence) = (Some(judged.score), Some(judged.confidence));
        }
        Ok(answer)
    }

    /// Output of a state, once its receiver has it.
    pub(super) async fn handled(
        &self,
        at: &StateVisit<'_>,
        output: StateOutput,
        cancel: &CancellationToken,
    ) -> Result<StateOutput, ToolError> {
        let (WorkflowState::Agent { output_handler, .. }
        | WorkflowState::ParallelAgents { output_handler, .. }
        | WorkflowState::ContainerRun { output_handler, .. }
        | WorkflowState::ParallelContainerRun { output_handler, .. }) = at.state
        else {
            return Ok(output);
        };
        let Some(OutputHandler::Agent { agent_id, input_template, timeout_seconds, required }) =
            output_handler.as_ref().filter(|_| output.status == StateStatus::Succeeded)
        else {
            return Ok(output);
        };
        let value = output.to_value().get("output").cloned().unwrap_or_default();
        let template = input_template.as_deref().unwrap_or("{{output}}");
        let input = at.scope().render_handler(template, &value);
        let work = AgentWork::plain(
            at.machine.executions.len().saturating_sub(1),
            at.rendered("output_handler.agent_id", agent_id)?,
            input.map_err(|why| unrendered("output_handler.input_template", &why))?,
        );
        let ends_at =
            Utc::now().checked_add_signed(seconds(timeout_seconds.unwrap_or(HANDLER_SECS)));
        let why = match self.execute_until(at, work, ends_at, cancel).await? {
            ExecutionResult::Completed { .. } => return Ok(output),
            ExecutionResult::Failed { error, .. } => error.message,
            ExecutionResult::Cancelled => "it was cancelled".to_owned(),
        };
        match required {
            true => Ok(output.failed(format!("the agent that its output is for failed: {why}"))),
            false => Ok(output),
        }
    }

    /// Has an agent work to its end, at most to a time. Whatever goes wrong with it is its failure.
    ///
    /// # Errors
    /// When `cancel` fires.
    async fn execute_until(
        &self,
        at: &StateVisit<'_>,
        work: AgentWork,
        ends_at: Option<DateTime<Utc>>,
        cancel: &CancellationToken,
    ) -> Result<ExecutionResult, ToolError> {
        let done = within(ends_at, cancel, async |cancel| self.execute(at, work, &cancel).await);
        match done.await {
            Some(Ok(result)) => Ok(result),
            Some(Err(error)) if cancel.is_cancelled() => Err(error),
            Some(Err(error)) => Ok(ExecutionResult::Failed { error, judged: None }),
            None => {
                let error = failed("its time is over".to_owned());
                Ok(ExecutionResult::Failed { error, judged: None })
            }
        }
    }

    /// Has an agent work to its end. One that an earlier incarnation began is found by its id; when `cancel` fires it is
    /// cancelled.
    async fn execute(
        &self,
        at: &StateVisit<'_>,
        work: AgentWork,
        cancel: &CancellationToken,
    ) -> Result<ExecutionResult, ToolError> {
        let (port, id) =
            (self.shared.daemon.ports.need::<dyn Executions>()?, at.execution(work.place)?);
        let (run, session) = (at.run.begun.id, Self::session(at.run)?);
        let order = ExecutionOrder {
            id,
            agent: OrderedAgent::Deployed { name: work.agent, version: None },
            intent: work.intent,
            input: agent_input(work.input),
            judges: work.judges,
            max_iterations: work.max_iterations.and_then(|most| usize::try_from(most).ok()),
            limit: None,
        };
        let until = Instant::now() + PATIENCE;
        loop {
            let span = tracing::info_span!("agent", %run);
            let cx = CallCx::internal(session, MAKING, cancel.child_token(), span);
            match port.begin(&cx, order.clone()).await {
                Ok(()) => break,
                // A place is waited for until there is one.
                Err(error) if error.is(codes::TOO_MANY_RUNS) => {}
                Err(error) if error.retryable && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            if tokio::time::timeout(PAUSE, cancel.cancelled()).await.is_ok() {
                return Err(ToolError::cancelled());
            }
        }
        match cancel.run_until_cancelled(port.ended(id)).await {
            Some(ended) => ended,
            None => {
                port.cancel(id).await?;
                let _told = tokio::time::timeout(CANCELLING, port.ended(id)).await;
                Err(ToolError::cancelled())
            }
        }
    }
}

impl AgentWork {
    fn plain(place: usize, agent: String, input: String) -> Self {
        let (intent, judges, max_iterations) = (None, Vec::new(), None);
        Self { place, agent, intent, input, judges, max_iterations }
    }
}

impl StateVisit<'_> {
    fn judges(&self, judges: &[PanelJudge]) -> Result<Vec<OrderedJudge>, ToolError> {
        let judge = |judge: &PanelJudge| {
            let criteria = judge.input_template.as_ref();
            Ok(OrderedJudge {
                agent: self.rendered("judges.agent_id", &judge.agent_id)?,
                criteria: criteria
                    .map(|text| self.rendered("judges.input_template", text))
                    .transpose()?,
                weight: judge.weight.unwrap_or(1.0),
            })
        };
        judges.iter().map(judge).collect()
    }
}

/// Time so many seconds behind the beginning of a state's work.
fn after(at: &StateVisit<'_>, secs: u64) -> Option<DateTime<Utc>> {
    at.machine.moved_at.checked_add_signed(seconds(secs))
}

fn seconds(secs: u64) -> TimeDelta {
    let secs = i64::try_from(secs).ok().and_then(TimeDelta::try_seconds);
    secs.unwrap_or(TimeDelta::MAX)
}

/// Input of an agent: the object that a text is, or the text as the request of the user.
fn agent_input(text: String) -> JsonObject {
    match serde_json::from_str(&text) {
        Ok(Value::Object(input)) => input,
        _ => JsonObject::from_iter([("prompt".to_owned(), Value::String(text))]),
    }
}

fn agent_output(result: ExecutionResult) -> StateOutput {
    let (text, judged, error) = match result {
        ExecutionResult::Completed { output, judged } => (output, judged, None),
        ExecutionResult::Failed { error, judged } => (String::new(), judged, Some(error.message)),
        ExecutionResult::Cancelled => {
            (String::new(), None, Some("its execution was cancelled".to_owned()))
        }
    };
    let score = judged.as_ref().map(|it| (it.score, it.confidence));
    let output = StateOutput::agent(&text, score, judged.map(|it| it.scores).unwrap_or_default());
    error.map_or(output.clone(), |error| output.failed(error))
}
