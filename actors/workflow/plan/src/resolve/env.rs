//! Environments: entries that are resolved in order, and the variables that the run's context gives.

use super::{MAX_RESOLVED_BYTES, NamedTexts, TextField, TextScopes, TextTooLong, resolve};

/// Variables with the fields of the context that they have the values of.
const MANAGED: [(&str, &str); 12] = [
    ("DAG_NAME", "dag.name"),
    ("DAG_RUN_ID", "run.id"),
    ("DAG_RUN_LOG_FILE", "paths.log_file"),
    ("DAG_RUN_WORK_DIR", "paths.work_dir"),
    ("DAG_RUN_ARTIFACTS_DIR", "paths.artifacts_dir"),
    ("DAG_RUN_STATUS", "run.status"),
    ("DAG_RUN_STEP_NAME", "step.name"),
    ("DAG_RUN_STEP_STDOUT_FILE", "paths.step_stdout_file"),
    ("DAG_RUN_STEP_STDERR_FILE", "paths.step_stderr_file"),
    ("DAGU_OUTPUT_FILE", "paths.step_output_file"),
    ("DAG_PUSHBACK_ITERATION", "pushback.iteration"),
    ("DAG_PUSHBACK_PREVIOUS_STDOUT_FILE", "pushback.previous_stdout_file"),
];

/// Variables that a context gives; a field that is not there gives none.
pub fn managed_env(context: &NamedTexts) -> NamedTexts {
    let given = MANAGED.iter().filter_map(|(name, field)| {
        context.get(*field).map(|value| ((*name).to_owned(), value.clone()))
    });
    given.collect()
}

/// Resolves entries in order and adds them to `env`: each reads what is there before it.
///
/// # Errors
/// Name of the entry with which the entries, in all, become too long.
pub fn resolve_env<'e>(
    entries: impl IntoIterator<Item = (&'e str, impl AsRef<str>)>,
    field: TextField,
    scopes: &TextScopes<'_>,
    env: &mut NamedTexts,
) -> Result<(), String> {
    let mut room = TextRoom::default();
    for (name, text) in entries {
        let scopes = TextScopes { env: Some(&*env), ..*scopes };
        let value = resolve(text.as_ref(), field, &scopes).and_then(|value| room.take(value));
        env.insert(name.to_owned(), value.map_err(|_| name.to_owned())?);
    }
    Ok(())
}

/// Bytes that texts of a kind may still have in all.
#[derive(Debug)]
pub(super) struct TextRoom(usize);

impl Default for TextRoom {
    fn default() -> Self {
        Self(MAX_RESOLVED_BYTES)
    }
}

impl TextRoom {
    /// Passes a text for which there is room.
    pub(super) fn take(&mut self, text: String) -> Result<String, TextTooLong> {
        self.0 = self.0.checked_sub(text.len()).ok_or(TextTooLong)?;
        Ok(text)
    }
}
