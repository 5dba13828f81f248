//! Values of a run's secrets, and masks of what it has written.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{ToolError, codes::NOT_FOUND};
use hivekeep_plan::resolve::NamedTexts;
use hivekeep_ports::TaskCapture;
use hivekeep_runtime::OnBehalfOf;

use super::{NodeLeft, RunFold, RunPlace, RunSaga, RunShared};
use crate::{
    place_text::place_text,
    secrets::{RunSecrets, SecretKey, SecretMasks, SecretSource, unreadable},
};

/// Largest file of a place that is a secret.
const FILE_BYTES: usize = 64 * 1024;
/// Time limit of reading one.
const READING: Duration = Duration::from_secs(60);

fn key(source: &SecretSource<'_>, state: &RunFold) -> SecretKey {
    let user = state.begun.user;
    match source {
        SecretSource::Named(name) => (user, None, (*name).to_owned()),
        SecretSource::File(path) => {
            (user, Some(state.begun.place.name().to_owned()), (*path).to_owned())
        }
    }
}

impl RunShared {
    /// Values of a run's secrets, read now. Legal once its session is open.
    ///
    /// # Errors
    /// `secret_unreadable`.
    pub(crate) async fn secrets_of(&self, state: &RunFold) -> Result<RunSecrets, ToolError> {
        let declared = state.begun.dag.secrets.as_deref().unwrap_or_default();
        if declared.is_empty() {
            return Ok(RunSecrets::default());
        }
        let mut env = NamedTexts::new();
        for secret in declared {
            let source = SecretSource::of(secret);
            let value = match &source {
                Some(SecretSource::Named(name)) => self.secrets.named(name, state.begun.user).await,
                Some(SecretSource::File(path)) => self.secret_file(state, path).await,
                None => Err(unreadable("its store is not here".to_owned())),
            };
            let value = value.map_err(|mut error| {
                error.message = format!("the secret `{:.80}`: {}", secret.name, error.message);
                error
            })?;
            if let Some(source) = source {
                self.secrets.note(key(&source, state), &value);
            }
            env.insert(secret.name.clone(), value);
        }
        let masks = self.known_masks(state).unwrap_or_default();
        Ok(RunSecrets { env: Arc::new(env), masks })
    }

    /// Masks of what a run has written, whatever its secrets are now.
    ///
    /// # Errors
    /// `secret_unreadable` where a secret that it may have written is not known.
    pub(crate) async fn masks_of(&self, state: &RunFold) -> Result<SecretMasks, ToolError> {
        match (self.secrets_of(state).await, self.known_masks(state)) {
            (Ok(secrets), _) => Ok(secrets.masks),
            (Err(_), Some(masks)) => Ok(masks),
            (Err(error), None) => Err(error),
        }
    }

    fn known_masks(&self, state: &RunFold) -> Option<SecretMasks> {
        let declared = state.begun.dag.secrets.iter().flatten();
        let keys = declared.map(|secret| Some(key(&SecretSource::of(secret)?, state)));
        self.secrets.masks(keys.collect::<Option<_>>()?)
    }

    /// Text of a file of the run's place.
    async fn secret_file(&self, state: &RunFold, path: &str) -> Result<String, ToolError> {
        let (RunPlace::Folder(place) | RunPlace::Workspace(place)) = &state.begun.place else {
            return Err(unreadable(format!("`{path:.80}`: the run's workspace is new, and empty")));
        };
        let caller = OnBehalfOf::own(RunSaga::place_session(state)?, READING);
        let file = (place.as_str(), path);
        let read = place_text(&self.tools, state.begun.id, &caller, file, FILE_BYTES).await;
        let content = read.map_err(|error| match error.is(NOT_FOUND) {
            true => unreadable(format!("there is no file `{path:.80}` in the run's place")),
            false => error,
        })?;
        let text = content.as_deref().unwrap_or_default().trim_end_matches(['\r', '\n']);
        match text.is_empty() || text.contains('\0') {
            true => Err(unreadable(format!("`{path:.80}` has no text of 1 to {FILE_BYTES} bytes"))),
            false => Ok(text.to_owned()),
        }
    }
}

impl SecretMasks {
    /// Values and texts of a node as they are recorded.
    pub(crate) fn left(&self, mut left: NodeLeft) -> NodeLeft {
        if self.is_empty() {
            return left;
        }
        left.outputs.values_mut().chain(left.variables.values_mut()).for_each(|it| self.text(it));
        left.output.iter_mut().chain(&mut left.published).for_each(|value| self.value(value));
        left.stdout_file.iter_mut().chain(&mut left.stderr_file).for_each(|it| self.text(it));
        if let Some(TaskCapture { stdout, stderr, .. }) = left.logs.as_deref_mut() {
            self.stream(stdout);
            self.stream(stderr);
        }
        left.waits.iter_mut().for_each(|waits| self.text(&mut waits.prompt));
        left.error.iter_mut().for_each(|error| self.error(error));
        left
    }
}
