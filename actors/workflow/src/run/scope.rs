//! Values that the texts of a step may refer to.

use std::collections::BTreeMap;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_plan::{
    plan::{NodeIndex, NodeRole},
    progress::NodePhase,
    resolve::{
        ItemScope, NamedTexts, StepValues, TextField, TextScopes, TextTooLong, managed_env,
        resolve, resolve_env,
    },
};

use super::{
    RunFold,
    answers::PushBack,
    records::NodeLeft,
    state::{RunWork, before},
};
use crate::{codes, secrets::RunSecrets};

/// Scopes of a step, or of the DAG itself.
#[derive(Clone)]
pub(super) struct RunScopes {
    pub(super) env: NamedTexts,
    pub(super) context: NamedTexts,
    pub(super) steps: Option<BTreeMap<String, StepValues>>,
    pub(super) items: Vec<ItemScope>,
    /// Secrets that are in the environment.
    pub(super) secrets: RunSecrets,
}

impl RunScopes {
    /// Scopes of the DAG's own texts.
    pub(super) fn of_root(state: &RunFold, work: &RunWork, secrets: RunSecrets) -> Self {
        let items = state.begun.body.iter().flat_map(|body| body.items.clone()).collect();
        let mut env = work.beginning.env.clone();
        secrets.extend(&mut env);
        Self { env, context: context(state), steps: None, items, secrets }
    }

    /// Scopes of what a loop's body leaves: all steps of the body, and what is around it.
    pub(super) fn of_end(state: &RunFold, work: &RunWork) -> Self {
        let all = work
            .progress
            .plan()
            .indexed()
            .filter_map(|(at, node)| Some((node.id.clone()?, values(state, work, at)?)));
        let around = state.begun.body.iter().flat_map(|body| body.steps.clone());
        Self {
            steps: Some(around.chain(all).collect()),
            ..Self::of_root(state, work, RunSecrets::default())
        }
    }

    /// Scopes of a node's texts, with its own environment.
    ///
    /// # Errors
    /// `step_failed` where a text becomes too long.
    pub(super) fn of_node(
        state: &RunFold,
        work: &RunWork,
        node: NodeIndex,
        folder: &str,
        secrets: RunSecrets,
    ) -> Result<Self, ToolError> {
        let mut scopes = Self::of_root(state, work, secrets);
        let Some(planned) = work.progress.plan().node(node) else { return Ok(scopes) };
        scopes.context.insert("step.name".to_owned(), planned.name.clone());
        scopes
            .context
            .insert("paths.step_output_file".to_owned(), super::script::output_file(folder));
        let before = before(work, node);
        for at in &before {
            if let Some(left) = state.left.get(at) {
                scopes.env.extend(left.variables.clone());
            }
        }
        if let Some(iteration) = state.pushed_back.get(&node) {
            let all = state.push_backs.get(..*iteration).unwrap_or_default();
            scopes.env.extend(PushBack::variables(all, &planned.action));
            scopes.context.insert("pushback.iteration".to_owned(), iteration.to_string());
            let stdout = state.left.get(&node).and_then(|left| left.stdout_file.clone());
            let stdout = stdout.map(|it| ("pushback.previous_stdout_file".to_owned(), it));
            scopes.context.extend(stdout);
        }
        if planned.role == NodeRole::Wait {
            let waiting = work.progress.waiting();
            let names = waiting.filter_map(|key| Some(&*work.progress.plan().node(key.node)?.name));
            let names: Vec<_> = names.collect();
            scopes.env.insert("DAG_WAITING_STEPS".to_owned(), names.join(","));
        }
        let values = before.into_iter().filter_map(|at| {
            let id = work.progress.plan().node(at)?.id.clone()?;
            Some((id, values(state, work, at)?))
        });
        let around = state.begun.body.iter().flat_map(|body| body.steps.clone());
        scopes.steps = Some(around.chain(values).collect());
        let mut env = std::mem::take(&mut scopes.env);
        env.extend(managed_env(&scopes.context));
        let own = planned.action.step.env.as_ref().map(|env| env.pairs()).unwrap_or_default();
        let resolved = resolve_env(own, TextField::StepText, &scopes.texts(work), &mut env);
        resolved.map_err(|name| too_long(&format!("env.{name}")))?;
        env.extend(managed_env(&scopes.context));
        scopes.env = env;
        Ok(scopes)
    }

    pub(super) fn texts<'s>(&'s self, work: &'s RunWork) -> TextScopes<'s> {
        TextScopes {
            consts: Some(&work.beginning.consts),
            params: Some(&work.beginning.params),
            env: Some(&self.env),
            context: Some(&self.context),
            steps: self.steps.as_ref(),
            items: &self.items,
            ..TextScopes::default()
        }
    }

    /// Resolves a text of a field.
    ///
    /// # Errors
    /// `step_failed` where it becomes too long.
    pub(super) fn resolve(
        &self,
        work: &RunWork,
        text: &str,
        field: TextField,
    ) -> Result<String, ToolError> {
        resolve(text, field, &self.texts(work)).map_err(|TextTooLong| too_long(text))
    }
}

impl RunScopes {
    /// Text of the DAG itself; one that becomes too long stays as it is written.
    pub(super) fn of_dag(&self, work: &RunWork, text: &str) -> String {
        resolve(text, TextField::RootText, &self.texts(work)).unwrap_or_else(|_| text.to_owned())
    }
}

pub(super) fn too_long(text: &str) -> ToolError {
    let message = format!("with its values `{text:.80}` is longer than 1 MiB");
    ToolError::new(Layer::Actor, codes::STEP_FAILED, message)
        .next("hand large values over in files")
}

pub(super) fn context(state: &RunFold) -> NamedTexts {
    let begun = &state.begun;
    let fields = [
        ("dag.name", begun.name.clone()),
        ("run.id", begun.id.to_string()),
        ("paths.work_dir", work_folder(state)),
        ("paths.artifacts_dir", artifacts_folder(state)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Working directory of a run whose DAG names none.
pub(super) fn work_folder(state: &RunFold) -> String {
    format!("{}/work", state.begun.folder)
}

/// Folder of a run for files that it leaves to people.
pub(super) fn artifacts_folder(state: &RunFold) -> String {
    format!("{}/artifacts", state.begun.folder)
}

fn values(state: &RunFold, work: &RunWork, at: NodeIndex) -> Option<StepValues> {
    let NodePhase::Ended(result) = &work.progress.node(at)?.phase else { return None };
    let left = state.left.get(&at).cloned().unwrap_or_default();
    let NodeLeft { outputs, output, published, stdout_file, stderr_file, .. } = (*left).clone();
    let exit_status = result.exit_code;
    Some(StepValues { outputs, output, published, stdout_file, stderr_file, exit_status })
}
