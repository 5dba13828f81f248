//! Secrets of runs: a DAG names them, and their values are read when a step starts. What is recorded is the name.

mod masks;

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use hivekeep_kernel::{Layer, ToolError, User, codes::NOT_FOUND, lock, secret::SecretString};
use hivekeep_manifest::dag::{DagManifest, DagSecret};
use hivekeep_plan::resolve::NamedTexts;
use hivekeep_runtime::{OnBehalfOf, read_secret};
use serde::Deserialize;
use serde_json::json;

use crate::{
    RunPlace, codes,
    options::SecretOptions,
    run::{RunFold, RunSaga, RunShared},
};
pub(crate) use masks::{SecretMasks, head_of};

/// Most secrets of a DAG.
const MOST: usize = 100;
/// Largest file of a place that is a secret.
const FILE_BYTES: u64 = 64 * 1024;
/// Time limit of reading one.
const READING: Duration = Duration::from_secs(60);
/// Values of one secret that are masked: it may be another one while the logs of earlier steps are there.
const MOST_VALUES: usize = 16;
/// Secrets whose values are known.
const MOST_KNOWN: usize = 10_000;

/// Secrets that the operator has put there, and the values that were read.
#[derive(Default)]
pub(crate) struct SecretStore {
    named: BTreeMap<String, SecretOptions>,
    known: Mutex<BTreeMap<SecretKey, Vec<SecretString>>>,
}

/// Secret as a user names it, of a place for a file of that.
type SecretKey = (User, Option<String>, String);

/// Values of a run's secrets as they are now. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RunSecrets {
    env: Arc<NamedTexts>,
    pub(crate) masks: SecretMasks,
}

/// Place of a secret's value.
enum SecretSource<'d> {
    /// Name that the operator has for it.
    Named(&'d str),
    /// File of the run's place.
    File(&'d str),
}

impl SecretSource<'_> {
    /// Source of a secret; `None` for a store that is not here.
    fn of(secret: &DagSecret) -> Option<SecretSource<'_>> {
        let DagSecret { reference, provider, key, options, .. } = secret;
        match (reference, provider.as_deref(), key) {
            _ if options.as_ref().is_some_and(|options| !options.is_empty()) => None,
            (Some(name), ..) => Some(SecretSource::Named(name)),
            (None, Some("env"), Some(key)) => Some(SecretSource::Named(key)),
            (None, Some("file"), Some(key)) => Some(SecretSource::File(key)),
            _ => None,
        }
    }

    fn key(&self, state: &RunFold) -> SecretKey {
        let user = state.begun.user;
        match self {
            Self::Named(name) => (user, None, (*name).to_owned()),
            Self::File(path) => {
                (user, Some(state.begun.place.name().to_owned()), (*path).to_owned())
            }
        }
    }
}

/// The first secret of a DAG that no run can have, as it is named to people, with what to do instead.
pub(crate) fn secret_not_here(dag: &DagManifest) -> Option<String> {
    let all = dag.secrets.as_deref().unwrap_or_default();
    if all.len() > MOST {
        return Some(format!("{} `secrets` ({MOST} are allowed)", all.len()));
    }
    let other = all.iter().find(|secret| SecretSource::of(secret).is_none())?;
    let provider = other.provider.as_deref().unwrap_or("options");
    Some(format!(
        "`secrets` of `{provider:.80}` (have the operator put `{:.80}` into `workflow.secrets`, and name it by `ref`)",
        other.name
    ))
}

impl RunSecrets {
    /// Puts the values into an environment.
    pub(crate) fn extend(&self, env: &mut NamedTexts) {
        env.extend(self.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
}

impl SecretStore {
    pub(crate) fn new(named: BTreeMap<String, SecretOptions>) -> Self {
        Self { named, ..Self::default() }
    }

    async fn named(&self, name: &str, user: User) -> Result<String, ToolError> {
        let found = self.named.get(name).filter(|secret| secret.users.contains(&user));
        let Some(SecretOptions { file, env: variable, .. }) = found else {
            return Err(unreadable(format!("`{name:.80}` is not there for {user}")));
        };
        match (file, variable) {
            (Some(file), _) => read_secret(file).await.map_err(unreadable),
            (None, Some(variable)) => {
                env::var(variable).ok().filter(|it| !it.is_empty()).ok_or_else(|| {
                    unreadable(format!("`{name:.80}`: the daemon's environment lacks `{variable}`"))
                })
            }
            (None, None) => Err(unreadable(format!("`{name:.80}` has neither `file` nor `env`"))),
        }
    }

    fn note(&self, key: SecretKey, value: &str) {
        let mut known = lock(&self.known);
        if known.len() >= MOST_KNOWN && !known.contains_key(&key) {
            known.pop_first();
        }
        let values = known.entry(key).or_default();
        if !values.iter().any(|one| one.expose() == value) {
            values.truncate(MOST_VALUES - 1);
            values.insert(0, SecretString::new(value));
        }
    }

    /// Masks of all values that the secrets of a run are known to have had; `None` where one has none.
    fn masks(&self, state: &RunFold) -> Option<SecretMasks> {
        let known = lock(&self.known);
        let mut values = Vec::new();
        for secret in state.begun.dag.secrets.iter().flatten() {
            values.extend(known.get(&SecretSource::of(secret)?.key(state))?);
        }
        Some(SecretMasks::new(values))
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
                self.secrets.note(source.key(state), &value);
            }
            env.insert(secret.name.clone(), value);
        }
        let masks = self.secrets.masks(state).unwrap_or_default();
        Ok(RunSecrets { env: Arc::new(env), masks })
    }

    /// Masks of what a run has written, whatever its secrets are now.
    ///
    /// # Errors
    /// `secret_unreadable` where a secret that it may have written is not known.
    pub(crate) async fn masks_of(&self, state: &RunFold) -> Result<SecretMasks, ToolError> {
        match (self.secrets_of(state).await, self.secrets.masks(state)) {
            (Ok(secrets), _) => Ok(secrets.masks),
            (Err(_), Some(masks)) => Ok(masks),
            (Err(error), None) => Err(error),
        }
    }

    /// Text of a file of the run's place.
    async fn secret_file(&self, state: &RunFold, path: &str) -> Result<String, ToolError> {
        #[derive(Deserialize)]
        struct Content {
            content: String,
            #[serde(default)]
            next_offset: Option<u64>,
        }
        let (RunPlace::Folder(place) | RunPlace::Workspace(place)) = &state.begun.place else {
            return Err(unreadable(format!("`{path:.80}`: the run's workspace is new, and empty")));
        };
        let caller = OnBehalfOf::own(RunSaga::place_session(state)?, READING);
        let args = json!({ "place": place, "path": path, "limit": FILE_BYTES });
        let read = self.tools.call_idempotent(state.begun.id, &caller, "fs.read", args).await;
        let Content { content, next_offset } = read.map_err(|error| match error.is(NOT_FOUND) {
            true => unreadable(format!("there is no file `{path:.80}` in the run's place")),
            false => error,
        })?;
        let text = content.trim_end_matches(['\r', '\n']);
        match next_offset.is_some() || text.is_empty() || text.contains('\0') {
            true => Err(unreadable(format!("`{path:.80}` has no text of 1 to {FILE_BYTES} bytes"))),
            false => Ok(text.to_owned()),
        }
    }
}

fn unreadable(why: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::SECRET_UNREADABLE, why)
        .next("have the operator give it to you under `workflow.secrets`, or put the file there")
}

/// Environment without the variables that have a secret in their values.
pub(crate) fn without_secrets(env: &NamedTexts, masks: &SecretMasks) -> NamedTexts {
    let is_plain = |text: &String| !masks.finds_in(&serde_json::Value::String(text.clone()));
    env.iter().filter(|(_, text)| is_plain(text)).map(|(k, v)| (k.clone(), v.clone())).collect()
}
