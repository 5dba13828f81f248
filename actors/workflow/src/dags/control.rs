//! Changes of a run by its owner.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, RunId, ToolError};
use hivekeep_plan::progress::RetryFrom;
use hivekeep_ports::WorkspaceForks;

use super::{
    Answer,
    show::{find, status},
    types::{DagAction, DagControl, DagControlled},
};
use crate::{
    AnswerEffect, FormValues, RunTrigger, StepAnswer, codes, people::refuse_agents, run::look_into,
    service::WorkflowService,
};

/// Step that an action is on.
fn named(step: &Option<String>) -> Answer<&str> {
    step.as_deref()
        .ok_or_else(|| ToolError::invalid("`step` is missing").next("name the step of the run"))
}

fn nothing_kept(step: &str) -> ToolError {
    ToolError::invalid(format!("no machine of the step `{step:.80}` is kept")).next(
        "a step with `fork: true` leaves its machine when it fails; dag_logs shows what it wrote",
    )
}

impl WorkflowService {
    pub(super) async fn dag_control(
        self: Arc<Self>,
        cx: CallCx,
        input: DagControl,
    ) -> Answer<DagControlled> {
        let (caller, runs) = (self.run_caller(&cx), &self.runs.0);
        let (id, action) = (input.run_id.as_str(), input.action);
        let view = runs.get(caller, id)?;
        let (mut run_id, mut workspace_id) = (view.state.begun.id, None);
        let changed = match action {
            DagAction::Stop => runs.cancel(caller, id).await?,
            DagAction::Reschedule => {
                run_id = RunId::new();
                let (view, _) = self.runs.told(caller, id).await?;
                // The new run is its caller's, whosever the other one was.
                let owner = (self.sessions.caller(cx.session)?, cx.session);
                self.runs.begin_again(&view.state, run_id, owner).await?;
                true
            }
            DagAction::Debug => {
                let step = named(&input.step)?;
                let node = find(&view.state, step)?;
                let kept = view.state.kept.get(&node).ok_or_else(|| nothing_kept(step))?;
                let forks = self.daemon.ports.need::<dyn WorkspaceForks>()?;
                workspace_id = Some(look_into(&*forks, &cx, kept).await?);
                true
            }
            DagAction::Approve | DagAction::Reject | DagAction::PushBack => {
                refuse_agents(&cx)?;
                let (step, reason) = (named(&input.step)?, input.reason.clone());
                let values = match (&input.values, &input.texts) {
                    (_, Some(texts)) => FormValues::Texts(texts.clone()),
                    (values, None) => FormValues::Typed(values.clone().unwrap_or_default()),
                };
                let answer = match action {
                    DagAction::Approve => StepAnswer::Approve { values },
                    DagAction::Reject => StepAnswer::Reject { reason },
                    _ => StepAnswer::PushBack { values, reason },
                };
                let effect = self.runs.answer(caller, run_id, step, answer).await?;
                effect == AnswerEffect::Taken
            }
            DagAction::Retry
            | DagAction::RetryFailed
            | DagAction::RetryStep
            | DagAction::RetryFrom => {
                let from = match action {
                    DagAction::Retry => RetryFrom::Beginning,
                    DagAction::RetryFailed => RetryFrom::Failed,
                    action => {
                        let behind = action == DagAction::RetryFrom;
                        let node = find(&view.state, named(&input.step)?)?;
                        RetryFrom::Node { node, behind }
                    }
                };
                if let RunTrigger::Parent { run, .. } = view.state.begun.trigger {
                    let message = format!("the run is of a step of the run {run}");
                    return Err(ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                        .next("retry that one: it does again what failed here"));
                }
                runs.reopen(caller, id, move |state| state.retried(from)).await?;
                true
            }
        };
        let view = runs.get(caller, &run_id.to_string())?;
        Ok(DagControlled { run_id, workspace_id, changed, status: status(&view) })
    }
}
