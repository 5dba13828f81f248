//! Flow of a run: what its state may name, and which state is next.

use std::collections::BTreeMap;

use hivekeep_manifest::{
    common::{JsonObject, Labels},
    workflow::{TransitionCondition, WorkflowSpec, WorkflowState},
};
use hivekeep_runtime::template::{self, TemplateHelpers, TemplateValue, TextTemplate};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    blackboard::Blackboard,
    condition,
    output::{StateOutput, StateStatus, value_of},
};

/// Run at one of its states.
#[derive(Debug, Clone, Copy)]
pub struct MachineView<'m> {
    /// Definition of the workflow.
    pub spec: &'m WorkflowSpec,
    /// Blackboard; when the state has ended, with its output.
    pub blackboard: &'m Blackboard,
    /// Name of the state.
    pub state: &'m str,
    /// Visits of each state so far, this one's among them.
    pub visits: &'m BTreeMap<String, u64>,
    /// Transitions so far.
    pub transitions: u64,
    /// Feedback of the transition that led here.
    pub feedback: Option<&'m str>,
}

/// State that is next, or how the run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineNext {
    /// A state is entered.
    Enter {
        /// Its name.
        state: String,
        /// Feedback for it, rendered.
        feedback: Option<String>,
    },
    /// The run has ended well.
    Completed,
    /// The run has failed.
    Failed {
        /// Kind of the failure.
        failure: MachineFailure,
        /// Reason, for people.
        message: String,
    },
}

/// Kind of a failure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineFailure {
    /// No condition holds.
    NoTransition,
    /// An expression is neither true nor false.
    ExpressionFailed,
    /// A template cannot be rendered.
    TemplateFailed,
    /// A state without transitions failed.
    StateFailed,
    /// The blackboard does not take a value: [`Blackboard::put_output`].
    BlackboardRefused,
    /// The final output cannot be made: [`super::final_output`].
    OutputInvalid,
    /// A state would be visited too often.
    VisitsExceeded,
    /// There would be too many transitions.
    TransitionsExceeded,
}

/// State that follows one which has ended with an output: that of the first transition whose condition holds.
pub fn next(view: &MachineView<'_>, output: &StateOutput) -> MachineNext {
    let failed = |failure, message| MachineNext::Failed { failure, message };
    let transitions = view.spec.states.get(view.state).map(|state| state.transitions());
    let transitions = transitions.unwrap_or_default();
    if transitions.is_empty() {
        return match output.status {
            StateStatus::Succeeded => MachineNext::Completed,
            StateStatus::Failed => {
                let why = output.reason().map(|why| format!(": {why}")).unwrap_or_default();
                let message = format!("`{}` failed, and nothing follows it{why}", view.state);
                failed(MachineFailure::StateFailed, message)
            }
        };
    }
    let scope = view.scope();
    let mut taken = None;
    for (index, transition) in transitions.iter().enumerate() {
        match condition::holds(transition, output, view.spec, &scope.names) {
            Ok(false) => {}
            Ok(true) => {
                taken = Some((index, transition));
                break;
            }
            Err(why) => {
                let message =
                    format!("the expression of `{}`, transition {index}: {why}", view.state);
                return failed(MachineFailure::ExpressionFailed, message);
            }
        }
    }
    let Some((index, transition)) = taken else {
        let message = format!("no condition of `{}` holds for its output", view.state);
        return failed(MachineFailure::NoTransition, message);
    };
    let most = view.spec.max_total_transitions();
    if view.transitions >= most {
        let message = format!("the run has made all of its transitions: {most}");
        return failed(MachineFailure::TransitionsExceeded, message);
    }
    let target = &transition.target;
    let most = view.spec.states.get(target).map_or(0, |state| state.max_state_visits());
    if view.visits.get(target).copied().unwrap_or_default() >= most {
        let message = format!("`{target}` has had all of its visits: {most}");
        return failed(MachineFailure::VisitsExceeded, message);
    }
    let feedback = transition.feedback.as_deref().map(|feedback| scope.render(feedback));
    match feedback.transpose() {
        Ok(feedback) => MachineNext::Enter { state: target.clone(), feedback },
        Err(why) => {
            let message = format!("the feedback of `{}`, transition {index}: {why}", view.state);
            failed(MachineFailure::TemplateFailed, message)
        }
    }
}

/// Whether an answer leads somewhere from a state that waits for a person.
pub fn takes_response(spec: &WorkflowSpec, state: &WorkflowState, response: &str) -> bool {
    let output = StateOutput::human(response, false);
    let leads = |transition| condition::holds(transition, &output, spec, &[]).unwrap_or_default();
    let mut ways = state.transitions().iter();
    let is_human = matches!(state, WorkflowState::Human { .. });
    // An expression is not judged before its state has ended.
    is_human
        && (state.transitions().is_empty()
            || ways.any(|way| way.condition == TransitionCondition::Custom || leads(way)))
}

impl<'m> MachineView<'m> {
    /// Values that texts of the state may name.
    pub fn scope(&self) -> MachineScope<'m> {
        let Self { blackboard, state, visits, feedback, .. } = *self;
        let mut names: Vec<_> =
            blackboard.keys().map(|(key, value)| TemplateValue::new(key, value)).collect();
        let visit = visits.get(state).copied().unwrap_or_default();
        let feedback = feedback.unwrap_or_default();
        let at = json!({ "name": state, "visit": visit, "feedback": feedback });
        names.extend([
            TemplateValue::new("blackboard", blackboard.values()),
            TemplateValue::new("input", blackboard.input()),
            TemplateValue::text("intent", blackboard.intent()),
            TemplateValue::shown("state", at, state),
            TemplateValue::text("feedback", feedback),
        ]);
        names.extend(blackboard.human().map(|human| TemplateValue::new("human", human)));
        MachineScope { names, feedback }
    }
}

/// Values that texts of a state may name.
#[derive(Debug, Clone)]
pub struct MachineScope<'m> {
    names: Vec<TemplateValue<'m>>,
    feedback: &'m str,
}

impl MachineScope<'_> {
    /// Renders a template.
    ///
    /// # Errors
    /// In words, as for a name that is not there.
    pub fn render(&self, text: &str) -> Result<String, String> {
        TextTemplate::parse(text, TemplateHelpers::Values)?.render(&self.names)
    }

    /// Renders a command, whose values stay text.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn command(&self, text: &str) -> Result<String, String> {
        TextTemplate::parse(text, TemplateHelpers::Values)?.render_command(&self.names)
    }

    /// Renders a template of an output's handler, which names the output too.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_handler(&self, text: &str, output: &Value) -> Result<String, String> {
        let mut names = self.names.clone();
        names.push(TemplateValue::new("output", output));
        TextTemplate::parse(text, TemplateHelpers::Values)?.render(&names)
    }

    /// Value of a template that is one name alone, the rendered text of any other.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn value(&self, text: &str) -> Result<Value, String> {
        TextTemplate::parse(text, TemplateHelpers::Values)?.value(&self.names)
    }

    /// Renders the input of an agent, behind which the feedback stands unless the template names it.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn input(&self, text: &str) -> Result<String, String> {
        let input = self.render(text)?;
        match self.feedback.is_empty() || template::names(text, "feedback") {
            true => Ok(input),
            false => Ok(format!("{input}\n\n{}", self.feedback)),
        }
    }

    /// Input of another workflow: JSON where the rendered text is an object or a list, else an object with the text
    /// as `input`.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn child_input(&self, text: &str) -> Result<Value, String> {
        Ok(match self.value(text)? {
            Value::String(text) => match value_of(&text) {
                Value::String(text) => json!({ "input": text }),
                value => value,
            },
            value @ (Value::Object(_) | Value::Array(_)) => value,
            value => json!({ "input": value }),
        })
    }

    /// Keys that a state sets which updates the blackboard, with their values.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn update(&self, env: &Labels) -> Result<JsonObject, String> {
        let set = |(key, text): (&String, &String)| {
            let value = self.value(text).map_err(|why| format!("`{key:.80}`: {why}"))?;
            Ok((key.clone(), value))
        };
        env.iter().map(set).collect()
    }
}
