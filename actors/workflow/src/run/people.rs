//! Answers of people to steps that wait for them: human tasks, and approvals of what a step did.

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError, codes::BUSY};
use hivekeep_manifest::{common::JsonObject, dag::DagApproval};
use hivekeep_plan::{
    lower::StepWork,
    plan::{NodeIndex, PlanNode},
    progress::{NodeKey, NodeOutcome, NodePhase, ProgressRecord, TryEnd},
    resolve::{FormValues, TaskForm, TextField},
};
use hivekeep_runtime::log::Decision;
use serde_json::{Value, json};

use super::{
    NodeLeft, RunFold, RunRecord, RunSaga,
    answers::{GivenAnswer, NodeWait, PersonAnswer},
    failure::failed,
    node_try::{NodeEnd, NodeTry},
    outputs::most_bytes,
};
use crate::codes;

/// Action that does nothing but ask.
pub(super) const TASK: &str = "human.task";

/// Answer of a person to a step that waits for one.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAnswer {
    /// Yes, with the values that are asked for.
    Approve {
        /// Values of the form, or of the approval's `input`.
        values: FormValues,
    },
    /// No: the run ends as rejected.
    Reject {
        /// Reason, for people.
        reason: Option<String>,
    },
    /// Not yet: the step is done again, with all from the step on that its approval names.
    PushBack {
        /// Values of the approval's `input`, variables of the steps that are done again.
        values: FormValues,
        /// Reason, for people and for those steps.
        reason: Option<String>,
    },
}

/// Effect of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEffect {
    /// The run goes on with it.
    Taken,
    /// The step was answered so before.
    Repeated,
}

/// Values that a step asks a person for.
pub(super) enum StepForm<'s> {
    Task(TaskForm),
    Approval(&'s DagApproval),
}

impl<'s> StepForm<'s> {
    /// Form of a step; none of one that asks nobody.
    pub(super) fn of(work: &'s StepWork) -> Option<Self> {
        match &work.step.approval {
            Some(approval) => Some(Self::Approval(approval)),
            None => (work.action == TASK).then(|| Self::Task(TaskForm::of(work.with.get("form")))),
        }
    }

    /// Values as a form. Of an approval that is refused none is needed.
    pub(super) fn form(&self, approves: bool) -> TaskForm {
        let approval = match self {
            Self::Task(form) => return form.clone(),
            Self::Approval(approval) => approval,
        };
        let required: Vec<_> = approval.required.iter().flatten().filter(|_| approves).collect();
        let field = |name: &String| {
            let least = u8::from(required.contains(&name));
            (name.clone(), json!({ "type": "string", "minLength": least }))
        };
        let properties: JsonObject = approval.input.iter().flatten().map(field).collect();
        // Whoever pushes back may say what nobody asked for.
        let is_open = approval.input.is_none() && !approves;
        TaskForm::of(Some(&json!({
            "properties": properties, "required": required, "additionalProperties": is_open,
        })))
    }
}

impl RunSaga {
    /// Question of a human task.
    ///
    /// # Errors
    /// `step_failed` where its prompt becomes too long.
    pub(super) fn task(&self, of: &NodeTry<'_>) -> Result<NodeLeft, ToolError> {
        let prompt = of.node.with.get("prompt").and_then(Value::as_str).unwrap_or_default();
        let prompt = of.scopes.resolve(of.work, prompt, TextField::StepText)?;
        let waits = Some(Box::new(NodeWait { prompt, exit_code: None }));
        Ok(NodeLeft { waits, ..NodeLeft::default() })
    }

    /// Question with which a try waits behind what it did; none for a step that asks nobody.
    pub(super) fn asks(&self, of: &NodeTry<'_>, done: &NodeEnd) -> Option<NodeWait> {
        let approval = of.node.step.approval.as_ref()?;
        let succeeded = done.end.outcome == NodeOutcome::Succeeded && !done.end.again;
        succeeded.then(|| NodeWait {
            prompt: approval.prompt.clone().unwrap_or_default(),
            exit_code: done.end.exit_code,
        })
    }
}

/// Node of a step by its id or its name.
///
/// # Errors
/// `step_not_waiting` where there is none.
pub(crate) fn node_named(state: &RunFold, step: &str) -> Result<NodeIndex, ToolError> {
    let named = |node: &PlanNode<StepWork>| node.id.as_deref() == Some(step) || node.name == step;
    let plan = state.work().map(|work| work.progress.plan());
    let found = plan.and_then(|plan| plan.indexed().find(|(_, node)| named(node)));
    found.map(|(at, _)| at).ok_or_else(|| not_waiting(step))
}

/// Record of an answer, of one try or of whichever waits, and what the answer does.
///
/// # Errors
/// `step_not_waiting`, `answered_otherwise`; `invalid_input` for values that are not those of the form, and for a
/// push-back of a human task; `too_large`; `busy` while a step works that would be done again.
pub(crate) fn answered(
    state: &RunFold,
    (node, tries): (NodeIndex, Option<u32>),
    answer: &StepAnswer,
    by: &str,
) -> Result<(Decision<RunRecord>, AnswerEffect), ToolError> {
    let plan = state.work().map(|work| (work, work.progress.plan()));
    let found = plan.and_then(|(work, plan)| {
        let planned = plan.node(node)?;
        Some((work, planned, work.progress.node(node)?, StepForm::of(&planned.action)?))
    });
    let Some((work, planned, progress, form)) = found else { return Err(not_waiting("it")) };
    let given = checked(state, planned, &form, answer)?;
    let waits = progress.phase == NodePhase::Waits;
    if !waits || tries.is_some_and(|tries| tries != progress.tries) {
        let earlier = state.left.get(&node).and_then(|left| left.answer.as_deref());
        return match earlier.filter(|_| !waits) {
            Some(earlier) if earlier.given == given => {
                Ok((Decision::nothing(), AnswerEffect::Repeated))
            }
            Some(earlier) => Err(otherwise(&planned.name, &earlier.by)),
            None => Err(not_waiting(&planned.name)),
        };
    }
    let (key, at) = (NodeKey { node, tries: progress.tries }, Utc::now());
    let mut left = state.left.get(&node).map(|left| (**left).clone()).unwrap_or_default();
    let exit_code = left.waits.take().and_then(|waits| waits.exit_code);
    let ended = |outcome| {
        let end = TryEnd { outcome, exit_code, said: false, again: false, last: false };
        ProgressRecord::Ended { key, end, at }
    };
    let progress = match &given {
        GivenAnswer::Approved { values } => {
            let outputs = form.form(true).outputs(values);
            match form {
                StepForm::Task(_) => left.outputs = outputs,
                StepForm::Approval(_) => left.variables.extend(outputs),
            }
            ended(NodeOutcome::Succeeded)
        }
        GivenAnswer::Rejected { reason } => {
            let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            left.error = Some(Box::new(failed(format!("{by} rejected it{why}"))));
            ended(NodeOutcome::Rejected)
        }
        GivenAnswer::PushedBack { .. } => ProgressRecord::PushedBack { key, at },
    };
    if work.progress.clone().apply(&progress).is_err() {
        let message = format!("a step works that is done again behind `{:.80}`", planned.name);
        return Err(ToolError::new(Layer::Actor, BUSY, message)
            .next("answer again when that step has ended; nothing was changed")
            .retryable());
    }
    left.answer = Some(Box::new(PersonAnswer { by: by.to_owned(), given }));
    let record = RunRecord::Moved { progress, left: Some(Box::new(left)) };
    Ok((Decision::record(record), AnswerEffect::Taken))
}

/// Answer with its values as the form takes them.
fn checked(
    state: &RunFold,
    node: &PlanNode<StepWork>,
    form: &StepForm<'_>,
    answer: &StepAnswer,
) -> Result<GivenAnswer, ToolError> {
    let name = &node.name;
    let taken = |values: &FormValues, approves| {
        let taken = form.form(approves).take(values);
        let values = taken.map_err(|error| ToolError::invalid(format!("`{name:.80}`: {error}")))?;
        let (bytes, most) = (json!(values).to_string().len(), most_bytes(state));
        match bytes > most {
            true => {
                let message =
                    format!("the values for `{name:.80}` have {bytes} bytes, {most} are allowed");
                Err(ToolError::new(Layer::Actor, hivekeep_kernel::codes::TOO_LARGE, message))
            }
            false => Ok(values),
        }
    };
    Ok(match answer {
        StepAnswer::Approve { values } => GivenAnswer::Approved { values: taken(values, true)? },
        StepAnswer::Reject { reason } => GivenAnswer::Rejected { reason: reason.clone() },
        StepAnswer::PushBack { values, reason } if node.back_to.is_some() => {
            let (values, reason) = (taken(values, false)?, reason.clone());
            GivenAnswer::PushedBack { values, reason }
        }
        StepAnswer::PushBack { .. } => {
            let message = format!("`{name:.80}` has no `approval`, and cannot be pushed back");
            return Err(ToolError::invalid(message));
        }
    })
}

fn not_waiting(step: &str) -> ToolError {
    let message = format!("no step of the run that is named `{step:.80}` waits for a person");
    ToolError::new(Layer::Actor, codes::STEP_NOT_WAITING, message)
}

fn otherwise(step: &str, by: &str) -> ToolError {
    let message = format!("`{step:.80}` was answered with different input by {by}");
    ToolError::new(Layer::Actor, codes::ANSWERED_OTHERWISE, message)
}
