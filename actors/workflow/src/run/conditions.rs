//! Conditions of a run and of its steps.

use chrono::Utc;
use hivekeep_kernel::{Layer, ToolError, fault_point};
use hivekeep_manifest::dag::{DagPrecondition, DagPreconditionItem, DagPreconditions};
use hivekeep_plan::{
    progress::{Conditions, ProgressRecord},
    resolve::{Computation, TextField, evaluate},
};
use hivekeep_runtime::log::LogError;
use regex::Regex;
use tokio_util::sync::CancellationToken;

use super::{
    NodeLeft, RunFold, RunSaga,
    command::{CommandRequest, LONGEST_SECS},
    failure::failed,
    scope::{RunScopes, too_long, work_folder},
    script::{StepCommand, StepFolders, StepShell, script},
    state::RunWork,
};
use crate::codes;

/// Bytes of a command's output that become a value.
const OUTPUT_BYTES: usize = 1024 * 1024;

/// Surroundings of conditions.
pub(super) struct ConditionPlace<'p> {
    pub(super) state: &'p RunFold,
    pub(super) work: &'p RunWork,
    pub(super) scopes: &'p RunScopes,
    pub(super) shell: StepShell,
    /// First part of the names of their tasks.
    pub(super) name: String,
    /// Working directory, as commands have it.
    pub(super) folder: Option<String>,
    pub(super) fields: [TextField; 2],
    pub(super) cancel: &'p CancellationToken,
}

impl RunSaga {
    /// Judges the conditions of the run.
    pub(super) async fn gate(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(work) = state.work() else { return Ok(()) };
        let secrets = self.shared.secrets_of(&state).await;
        let (unread, secrets) = (secrets.as_ref().err().cloned(), secrets.unwrap_or_default());
        let masks = secrets.masks.clone();
        let scopes = RunScopes::of_root(&state, work, secrets);
        let dag = &state.begun.dag;
        let place = ConditionPlace {
            state: &state,
            work,
            scopes: &scopes,
            shell: StepShell::of(&Default::default(), dag, &|text| scopes.of_dag(work, text)),
            name: format!("gate-{}", state.attempt),
            folder: dag.working_dir.as_deref().map(|text| scopes.of_dag(work, text)),
            fields: [TextField::RootText, TextField::RootEval],
            cancel: self.handle.cancelled(),
        };
        let mut left = None;
        let judged = match unread {
            Some(error) => Err(error),
            None => self.judged(dag.preconditions.as_ref(), &place).await,
        };
        let conditions = match judged {
            _ if self.handle.cancelled().is_cancelled() => return Ok(()),
            Ok(true) => Conditions::Met,
            Ok(false) => Conditions::NotMet,
            Err(error) => {
                let error = Some(Box::new(error));
                left = Some(Box::new(masks.left(NodeLeft { error, ..NodeLeft::default() })));
                Conditions::Failed
            }
        };
        fault_point!("run.gated");
        self.moved(ProgressRecord::Gated { conditions, at: Utc::now() }, left).await?;
        self.forget(&state, &place.name);
        Ok(())
    }

    /// Whether all conditions hold. All are judged, in their order.
    ///
    /// # Errors
    /// When one cannot be judged.
    pub(super) async fn judged(
        &self,
        conditions: Option<&DagPreconditions>,
        place: &ConditionPlace<'_>,
    ) -> Result<bool, ToolError> {
        let mut all = true;
        for (number, condition) in listed(conditions).into_iter().enumerate() {
            let held = self.holds(&condition, number, place).await?;
            all &= held != condition.negate.unwrap_or_default();
        }
        Ok(all)
    }

    async fn holds(
        &self,
        condition: &DagPrecondition,
        number: usize,
        place: &ConditionPlace<'_>,
    ) -> Result<bool, ToolError> {
        let [text_field, eval_field] = place.fields;
        let resolve = |text: &str| place.scopes.resolve(place.work, text, text_field);
        let value = match (&condition.condition, &condition.eval, &condition.expected) {
            (Some(line), _, None) => {
                // The shell reads its own parts of a line.
                let line = place.scopes.resolve(place.work, line, TextField::Run)?;
                let ran = self.shell_line(&line, &number.to_string(), place).await;
                return Ok(ran?.0 == Some(0));
            }
            (Some(text), _, Some(_)) => resolve(text)?,
            (None, Some(text), _) => {
                let texts = place.scopes.texts(place.work);
                let parts = evaluate(text, eval_field, &texts).map_err(|_| too_long(text))?;
                let mut computation = Computation::new(parts);
                let (mut output, mut count) = (None, 0);
                while let Some(line) = computation.next(output.as_deref()) {
                    let name = format!("{number}-{count}");
                    let (status, said) = self.shell_line(&line, &name, place).await?;
                    if status != Some(0) {
                        let message = format!("`{line:.80}` of a condition ended with {status:?}");
                        return Err(ToolError::new(Layer::Actor, codes::STEP_FAILED, message));
                    }
                    (output, count) = (Some(said), count + 1);
                }
                computation.text()
            }
            (None, None, _) => return Ok(true),
        };
        let expected = condition.expected.as_deref().unwrap_or_default();
        matches(&value, expected)
    }

    /// Runs a line, for its status and what it writes.
    async fn shell_line(
        &self,
        line: &str,
        name: &str,
        place: &ConditionPlace<'_>,
    ) -> Result<(Option<i32>, String), ToolError> {
        let lines = hivekeep_plan::lower::StepLines::Commands(vec![line.to_owned()]);
        let own = format!("{}/{}-{name}", place.state.begun.folder, place.name);
        let run_folder = work_folder(place.state);
        let workspace = self.workspace(place.state, place.cancel).await?;
        let folders = StepFolders {
            own: &own,
            work: place.folder.as_deref().unwrap_or(&run_folder),
            makes_work: place.folder.is_none(),
            declares: true,
            stdout: None,
            stderr: None,
            more: &[],
            user: workspace.user.as_deref(),
        };
        let request = CommandRequest {
            name: format!("{}-{name}", place.name),
            script: script(&StepCommand::Lines(&lines, place.shell.clone()), &folders),
            env: place.scopes.env.clone(),
            timeout_secs: LONGEST_SECS,
        };
        let ran = self.command(place.state, request, place.cancel).await?;
        let said = self.output_of(&ran, true, OUTPUT_BYTES).await?;
        if said.len() > OUTPUT_BYTES {
            return Err(failed(format!("`{line:.80}` writes more than {OUTPUT_BYTES} bytes")));
        }
        Ok((ran.exit_code(), said))
    }
}

fn listed(conditions: Option<&DagPreconditions>) -> Vec<DagPrecondition> {
    let line = |line: &String| DagPrecondition {
        condition: Some(line.clone()),
        eval: None,
        expected: None,
        negate: None,
    };
    match conditions {
        None => Vec::new(),
        Some(DagPreconditions::Command(text)) => vec![line(text)],
        Some(DagPreconditions::More(list)) => {
            let item = |item: &DagPreconditionItem| match item {
                DagPreconditionItem::Command(text) => line(text),
                DagPreconditionItem::Detail(condition) => condition.clone(),
            };
            list.iter().map(item).collect()
        }
    }
}

/// Whether a line of a value is as it is expected; `re:` begins a regular expression.
///
/// # Errors
/// For an expression that is none.
pub(super) fn matches(value: &str, expected: &str) -> Result<bool, ToolError> {
    let mut lines = value.lines().chain(value.is_empty().then_some(""));
    match expected.strip_prefix("re:") {
        None => Ok(lines.any(|line| line == expected)),
        Some(pattern) => {
            let regex = Regex::new(pattern).map_err(|error| {
                let message = format!("`{pattern:.80}` is not a regular expression: {error}");
                ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
            })?;
            Ok(lines.any(|line| regex.is_match(line)))
        }
    }
}
