//! Programs such as codex that a step runs, as executions of the agents family: each has an id that its try comes to,
//! so that it is begun once and found again, whatever died meanwhile.

use std::time::Duration;

use hivekeep_kernel::{CallCx, ExecutionId, Layer, ToolError, codes};
use hivekeep_plan::{
    progress::NodeOutcome,
    resolve::{TextField, resolve_value},
};
use hivekeep_ports::{ExecutionOrder, ExecutionResult, Executions, OrderedAgent, OrderedProgram};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    NodeLeft, RunSaga,
    failure::failed,
    harness::{HarnessCall, ProgramCall, harness_calls},
    node_try::{NodeEnd, NodeTry},
    outputs::StepOutput,
    place::{PATIENCE, PAUSE},
    scope::{too_long, work_folder},
    script::StepCommand,
};
use crate::secrets::without_secrets;

/// Time limit of one attempt to begin an execution.
const BEGINNING: Duration = Duration::from_secs(60);
/// Time limit of the end of an execution that is cancelled.
const STOPPING: Duration = Duration::from_secs(60);

impl RunSaga {
    /// Runs the program that a step names, and those that stand in for it, until one succeeds.
    ///
    /// # Errors
    /// `step_failed` for settings that cannot be obeyed; those of a machine that is not there.
    pub(super) async fn run_harness(
        &self,
        of: &NodeTry<'_>,
        with: Map<String, Value>,
    ) -> Result<NodeEnd, ToolError> {
        let (dag, mut ended) = (&of.state.begun.dag, None);
        let of_dag = Value::Object(dag.harness.clone().unwrap_or_default());
        let of_dag = resolve_value(&of_dag, TextField::StepText, &of.scopes.texts(of.work));
        let Value::Object(mut settings) = of_dag.map_err(|_| too_long("harness"))? else {
            return Err(ToolError::internal("settings that are no object"));
        };
        settings.extend(with);
        for (call, number) in harness_calls(dag, &settings)?.iter().zip(0u16..) {
            let one = match call {
                HarnessCall::Command { program, args, stdin } => {
                    let stdin = stdin.as_deref();
                    let command = StepCommand::Program { program, args, stdin };
                    self.run_as(of, format!("{}-{number}", of.name), &command).await?
                }
                HarnessCall::Program(call) => self.run_program(of, call, number).await?,
            };
            if one.end.outcome != NodeOutcome::Failed {
                return Ok(one);
            }
            if self.shared.daemon.closing.is_cancelled() {
                // The next daemon looks at what has become of it.
                return std::future::pending().await;
            }
            ended = Some(one);
        }
        ended.ok_or_else(|| failed("it names no program".to_owned()))
    }

    /// Runs a program of the agents family to its end; where the step is cut short it is cancelled.
    async fn run_program(
        &self,
        of: &NodeTry<'_>,
        call: &ProgramCall,
        number: u16,
    ) -> Result<NodeEnd, ToolError> {
        let executions = self.shared.daemon.ports.need::<dyn Executions>()?;
        let (key, cancel) = (of.key, self.cancel_of(of.state, of.key));
        let place = u64::from(key.node.0) << 48 | u64::from(key.tries) << 16 | u64::from(number);
        let id = ExecutionId::of_run(of.state.begun.id, place);
        let begun = match self.order(of, call, id).await {
            Ok(order) => self.begin_order(of, &*executions, order).await,
            Err(error) => Err(error),
        };
        let ended = match begun {
            Ok(()) => cancel.run_until_cancelled(executions.ended(id)).await.transpose()?,
            Err(_) if cancel.is_cancelled() => None,
            Err(error) => return Ok(NodeEnd::failed(error)),
        };
        let error = match ended {
            Some(ExecutionResult::Completed { output, .. }) => {
                let (_, workspace) = &self.environment(of).await?;
                let from = StepOutput::Program { text: &output, workspace, folder: &of.folder };
                return self.spoke(of, from, NodeLeft::default()).await;
            }
            Some(ExecutionResult::Failed { error, .. }) => error,
            Some(ExecutionResult::Cancelled) => {
                failed("somebody cancelled its execution".to_owned())
            }
            None => {
                stop(&*executions, id).await?;
                return Ok(NodeEnd::of(NodeOutcome::Aborted));
            }
        };
        Ok(NodeEnd::failed(error.detail("execution_id", id.to_string())))
    }

    async fn order(
        &self,
        of: &NodeTry<'_>,
        call: &ProgramCall,
        id: ExecutionId,
    ) -> Result<ExecutionOrder, ToolError> {
        let ProgramCall { program, model, prompt, arguments } = call;
        of.keeps_secrets(&json!([model, prompt, arguments]))?;
        let (place, workspace) = self.environment(of).await?;
        let folder = self.folder(of)?.unwrap_or_else(|| work_folder(of.state));
        let secs = of.node.step.timeout_sec.filter(|secs| *secs > 0);
        let program = OrderedProgram {
            program: program.clone(),
            model: model.clone(),
            place,
            workspace: workspace.workspace,
            root: workspace.root,
            folder,
            home: format!("{}/home", of.folder),
            env: without_secrets(&of.scopes.env, &of.scopes.secrets.masks),
            arguments: arguments.clone(),
        };
        let prompt = Value::String(prompt.clone());
        Ok(ExecutionOrder {
            id,
            agent: OrderedAgent::Program(Box::new(program)),
            intent: None,
            input: [("prompt".to_owned(), prompt)].into_iter().collect(),
            judges: Vec::new(),
            max_iterations: None,
            limit: secs.map(Duration::from_secs),
        })
    }

    /// Begins an execution, unless an earlier incarnation did. A place for it is waited for until there is one. A stop
    /// of the step drops no attempt: nobody would know whether it had begun.
    async fn begin_order(
        &self,
        of: &NodeTry<'_>,
        executions: &dyn Executions,
        order: ExecutionOrder,
    ) -> Result<(), ToolError> {
        let (session, cancel) = (Self::session(of.state)?, self.cancel_of(of.state, of.key));
        let until = Instant::now() + PATIENCE;
        loop {
            if cancel.is_cancelled() {
                return Err(ToolError::cancelled());
            }
            let span = tracing::info_span!("order", run = %of.state.begun.id, step = %of.name);
            let cx = CallCx::internal(session, BEGINNING, cancel.child_token(), span);
            match executions.begin(&cx, order.clone()).await {
                Err(error) if error.is(codes::TOO_MANY_RUNS) => {}
                Err(error) if error.retryable && Instant::now() < until => {}
                begun => return begun,
            }
            let _paused = tokio::time::timeout(PAUSE, cancel.cancelled()).await;
        }
    }
}

/// Cancels an execution, if it was begun, and waits for its end.
async fn stop(executions: &dyn Executions, id: ExecutionId) -> Result<(), ToolError> {
    let stopped = async {
        executions.cancel(id).await?;
        executions.ended(id).await.map(drop)
    };
    match tokio::time::timeout(STOPPING, stopped).await {
        Ok(Err(error)) if error.layer != Layer::Resolve => Err(error),
        // An execution that was never begun needs no stop.
        Ok(_) => Ok(()),
        Err(_) => Err(ToolError::deadline(Layer::Actor, STOPPING.as_secs())),
    }
}
