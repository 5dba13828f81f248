//! Creation of a sandbox, from an image or a snapshot.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    BodyOf,
    network::NetworkConfig,
    sandbox::{AT_END, AUTO_RESUME, METADATA, PUBLIC_PORTS, REQUEST, Sandbox, TEMPLATE},
    snapshots::Template,
};
use crate::{
    error::{E2bError, Kind},
    state::{E2b, Owner},
};

/// Longest key of a request that is repeated.
const KEY_CHARS: usize = 200;

/// Body of a request for a new sandbox.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct NewSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<u64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    allow_internet: Option<bool>,
    network: Option<NetworkConfig>,
    /// Here each sandbox has a token, whatever is asked for.
    #[serde(rename = "secure")]
    _secure: Option<bool>,
    /// The SDKs themselves start the gateway for them, a program of the template.
    #[serde(rename = "mcp")]
    _mcp: Option<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

impl NewSandbox {
    fn check(&self) -> Result<(), E2bError> {
        let has = |value: &Value| match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(members) => !members.is_empty(),
            _ => true,
        };
        match self.other.iter().find(|(_, value)| has(value)) {
            Some((name, _)) => {
                Err(E2bError::invalid(format!("`{name}` is not supported by this server")))
            }
            None => Ok(()),
        }
    }

    /// Digest of a request, by which a repeated one is known from another one with the same key.
    fn digest(&self) -> Result<String, E2bError> {
        let json =
            serde_json::to_vec(self).map_err(|error| E2bError::invalid(error.to_string()))?;
        Ok(blake3::hash(&json).to_hex().to_string())
    }

    fn at_end(&self) -> &'static str {
        match (self.auto_pause, self.auto_pause_memory) {
            (Some(true), Some(false)) => "stop",
            (Some(true), _) => "park",
            _ => "destroy",
        }
    }

    fn labels(&self, public_ports: bool) -> BTreeMap<String, String> {
        let metadata = self.metadata.iter().flatten();
        let mut labels: BTreeMap<_, _> =
            metadata.map(|(name, value)| (format!("{METADATA}{name}"), value.clone())).collect();
        labels.insert(TEMPLATE.to_owned(), self.template.clone());
        labels.insert(AT_END.to_owned(), self.at_end().to_owned());
        let asked = self.network.as_ref().and_then(|network| network.allow_public_traffic);
        labels.insert(PUBLIC_PORTS.to_owned(), asked.unwrap_or(public_ports).to_string());
        if self.auto_resume.is_some_and(|auto| auto.enabled) {
            labels.insert(AUTO_RESUME.to_owned(), "true".to_owned());
        }
        labels
    }
}

/// Name of a new sandbox: a label of a host. The same for a request that is repeated with its key.
pub(super) fn new_name(owner: &Owner, key: Option<&str>) -> Result<String, E2bError> {
    /// 80 bits, in hexadecimal.
    const CHARS: usize = 20;
    let hash = match key {
        Some(key) => blake3::hash(format!("{}\0{key}", owner.credential).as_bytes()),
        None => {
            let mut random = [0; 32];
            let failed = |error: getrandom::Error| E2bError::new(Kind::Internal, error.to_string());
            getrandom::fill(&mut random).map_err(failed)?;
            blake3::hash(&random)
        }
    };
    Ok(format!("i{}", &hash.to_hex()[..CHARS]))
}

impl E2b {
    /// Seconds that a sandbox may live.
    pub(super) fn lifetime(&self, asked: Option<u64>) -> Result<u64, E2bError> {
        let secs = asked.unwrap_or(self.options.lifetime_secs);
        let most = self.options.max_lifetime_secs;
        match secs <= most {
            true => Ok(secs),
            false => {
                Err(E2bError::invalid(format!("Timeout cannot be greater than {most} seconds")))
            }
        }
    }

    async fn make(
        &self,
        owner: &Owner,
        name: &str,
        wanted: &NewSandbox,
        digest: Option<String>,
    ) -> Result<Value, E2bError> {
        let mut labels = wanted.labels(self.options.public_ports);
        labels.extend(digest.map(|digest| (REQUEST.to_owned(), digest)));
        let mut asked = json!({
            "lifetime_secs": self.lifetime(wanted.timeout)?.max(1), "at_end": wanted.at_end(),
            "labels": labels,
        });
        let mut reach = NetworkConfig::reach(wanted.network.as_ref(), wanted.allow_internet)?;
        if let Some(allow) = reach.allow_internet {
            asked["allow_internet"] = allow.into();
        }
        let made = match self.template(owner, &wanted.template).await? {
            Template::Image(image) => {
                asked["name"] = name.into();
                // A new workspace has no rules, and a daemon may have no network to make rules for.
                reach.egress_allow.take_if(|allow| allow.is_empty());
                asked["base_image"] = image.into();
                if let Some(isolation) = self.options.isolation {
                    asked["isolation"] = json!(isolation);
                }
                self.call(owner, "workspace_create", asked).await
            }
            Template::Snapshot { sandbox, snapshot } => {
                asked["new_name"] = name.into();
                asked["workspace_id"] = sandbox.into();
                asked["snapshot_name"] = snapshot.into();
                self.call(owner, "workspace_fork", asked).await
            }
        };
        made.map_err(|error| {
            let error = E2bError::from(error).of_control();
            match error.kind {
                Kind::NotFound => {
                    let why =
                        format!("template '{}' not found: {}", wanted.template, error.message);
                    E2bError::new(Kind::NotFound, why)
                }
                _ => error,
            }
        })?;
        if let Err(error) = self.finish(owner, name, wanted, reach.egress_allow).await {
            // The new sandbox is nobody's yet. A sandbox that cannot be removed ends by its lifetime.
            let asked = json!({ "workspace_id": name });
            if let Err(error) = self.call(owner, "workspace_destroy", asked).await {
                tracing::warn!(%error, sandbox = name, "a sandbox that is not whole stays until its end");
            }
            return Err(error);
        }
        self.reached(owner, name, &wanted.template)
    }

    /// Gives a new sandbox what its creation does not take: variables and allowed egress.
    async fn finish(
        &self,
        owner: &Owner,
        name: &str,
        wanted: &NewSandbox,
        egress_allow: Option<Vec<String>>,
    ) -> Result<(), E2bError> {
        if wanted.env_vars.iter().flatten().next().is_some() {
            let asked = json!({ "workspace_id": name, "vars": wanted.env_vars });
            self.call(owner, "set_env", asked).await?;
        }
        if let Some(allow) = egress_allow {
            let asked = json!({ "workspace_id": name, "egress_allow": allow });
            self.call(owner, "network_policy", asked).await?;
        }
        Ok(())
    }
}

async fn created(
    e2b: &E2b,
    owner: &Owner,
    headers: &HeaderMap,
    wanted: NewSandbox,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    wanted.check()?;
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    if key.is_some_and(|key| key.len() > KEY_CHARS) {
        return Err(E2bError::invalid("`Idempotency-Key` is too long"));
    }
    let name = new_name(owner, key)?;
    let digest = key.map(|_| wanted.digest()).transpose()?;
    match e2b.make(owner, &name, &wanted, digest.clone()).await {
        Ok(made) => Ok((StatusCode::CREATED, Json(made))),
        // The request was made before, with the same key.
        Err(error) if error.kind == Kind::AlreadyExists && key.is_some() => {
            let there: Sandbox = e2b.sandbox(owner, &name).await.map_err(|_| {
                let why = "the first request with this key is still being carried out";
                E2bError::new(Kind::Unavailable, why)
            })?;
            // Sandboxes of earlier versions lack the label of their request.
            if there.labels.get(REQUEST).is_some_and(|made_by| Some(made_by) != digest.as_ref()) {
                let why = "the key was used for another request: choose another key for each one";
                return Err(E2bError::new(Kind::AlreadyExists, why));
            }
            let mut reach = NetworkConfig::reach(wanted.network.as_ref(), wanted.allow_internet)?;
            reach.egress_allow.take_if(|allow| allow.is_empty());
            let env = wanted.env_vars.iter().flatten().map(|(name, _)| &**name);
            if there.lacks(env, reach.egress_allow.is_some()) {
                e2b.finish(owner, &name, &wanted, reach.egress_allow).await?;
            }
            Ok((StatusCode::CREATED, Json(e2b.reached(owner, &name, there.template())?)))
        }
        Err(error) => Err(error),
    }
}

/// `POST /sandboxes`.
pub(in super::super) async fn create(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    headers: HeaderMap,
    BodyOf(wanted): BodyOf<NewSandbox>,
) -> Result<(StatusCode, Json<Value>), E2bError> {
    created(&e2b, &owner, &headers, wanted).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        let check = |body: Value| serde_json::from_value::<NewSandbox>(body).expect("one").check();
        assert!(check(json!({ "templateID": "base", "iam": null, "volumeMounts": [] })).is_ok());
        let refused = check(json!({ "templateID": "base", "iam": { "tokens": {} } }));
        assert!(refused.expect_err("refused").message.contains("`iam`"));
        let refused = check(json!({ "templateID": "base", "volumeMounts": [{ "name": "v" }] }));
        assert!(refused.is_err());
    }

    #[test]
    fn a_request_is_told_from_another_one() {
        let digest = |body: Value| {
            let wanted = serde_json::from_value::<NewSandbox>(body).expect("one");
            wanted.digest().expect("a digest")
        };
        let one = digest(json!({ "templateID": "base", "metadata": { "a": "1", "b": "2" } }));
        let again = json!({ "metadata": { "b": "2", "a": "1" }, "templateID": "base" });
        assert_eq!(digest(again), one);
        for other in [
            json!({ "templateID": "other", "metadata": { "a": "1", "b": "2" } }),
            json!({ "templateID": "base", "metadata": { "a": "1" } }),
            json!({ "templateID": "base", "metadata": { "a": "1", "b": "2" }, "timeout": 7 }),
        ] {
            assert_ne!(digest(other.clone()), one, "{other}");
        }
    }

    #[test]
    fn the_end_is_as_it_was_asked_for() {
        let at_end =
            |body: Value| serde_json::from_value::<NewSandbox>(body).expect("one").at_end();
        assert_eq!(at_end(json!({})), "destroy");
        assert_eq!(at_end(json!({ "autoPause": false })), "destroy");
        assert_eq!(at_end(json!({ "autoPause": true })), "park");
        assert_eq!(at_end(json!({ "autoPause": true, "autoPauseMemory": false })), "stop");
    }
}
