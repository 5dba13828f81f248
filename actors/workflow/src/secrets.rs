//! Secrets of runs: a DAG names them, and their values are read when a step starts. What is recorded is the name.

mod masks;

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, Mutex},
};

use hivekeep_kernel::{Layer, ToolError, User, lock, secret::SecretString};
use hivekeep_manifest::dag::{DagManifest, DagSecret};
use hivekeep_plan::resolve::NamedTexts;
use hivekeep_runtime::read_secret;

use crate::{codes, options::SecretOptions};
pub(crate) use masks::{SecretMasks, head_of};

/// Most secrets of a DAG.
const MOST: usize = 100;
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
pub(crate) type SecretKey = (User, Option<String>, String);

/// Values of a run's secrets as they are now. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RunSecrets {
    pub(crate) env: Arc<NamedTexts>,
    pub(crate) masks: SecretMasks,
}

/// Place of a secret's value.
pub(crate) enum SecretSource<'d> {
    /// Name that the operator has for it.
    Named(&'d str),
    /// File of the run's place.
    File(&'d str),
}

impl SecretSource<'_> {
    /// Source of a secret; `None` for a store that is not here.
    pub(crate) fn of(secret: &DagSecret) -> Option<SecretSource<'_>> {
        let DagSecret { reference, provider, key, options, .. } = secret;
        match (reference, provider.as_deref(), key) {
            _ if options.as_ref().is_some_and(|options| !options.is_empty()) => None,
            (Some(name), ..) => Some(SecretSource::Named(name)),
            (None, Some("env"), Some(key)) => Some(SecretSource::Named(key)),
            (None, Some("file"), Some(key)) => Some(SecretSource::File(key)),
            _ => None,
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

    pub(crate) async fn named(&self, name: &str, user: User) -> Result<String, ToolError> {
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

    pub(crate) fn note(&self, key: SecretKey, value: &str) {
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

    /// Masks of all values that secrets are known to have had; `None` where one has none.
    pub(crate) fn masks(&self, keys: Vec<SecretKey>) -> Option<SecretMasks> {
        let known = lock(&self.known);
        let values: Option<Vec<_>> = keys.iter().map(|key| known.get(key)).collect();
        Some(SecretMasks::new(values?.into_iter().flatten()))
    }
}

pub(crate) fn unreadable(why: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::SECRET_UNREADABLE, why)
        .next("have the operator give it to you under `workflow.secrets`, or put the file there")
}

/// Environment without the variables that have a secret in their values.
pub(crate) fn without_secrets(env: &NamedTexts, masks: &SecretMasks) -> NamedTexts {
    let is_plain = |text: &String| !masks.finds_in(&serde_json::Value::String(text.clone()));
    env.iter().filter(|(_, text)| is_plain(text)).map(|(k, v)| (k.clone(), v.clone())).collect()
}
