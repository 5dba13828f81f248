//! Network access of a sandbox, by the policy of its workspace.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{BodyOf, gone_is_not_found};
use crate::{
    error::E2bError,
    state::{E2b, Owner},
};

/// Everything, as the SDKs write it.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Rules of a client.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in super::super) struct NetworkConfig {
    allow_out: Vec<String>,
    deny_out: Vec<String>,
    #[serde(rename = "allow_internet_access")]
    allow_internet: Option<bool>,
    /// Whether ports are reached without a token.
    pub(super) allow_public_traffic: Option<bool>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Network access of a workspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// `None` leaves it to the configuration.
    pub(super) allow_internet: Option<bool>,
    pub(super) egress_allow: Option<Vec<String>>,
}

impl NetworkConfig {
    /// The network access of a workspace that is no wider than the client's rules.
    ///
    /// # Errors
    /// For rules that a workspace's policy cannot express.
    pub(super) fn reach(
        config: Option<&Self>,
        allow_internet: Option<bool>,
    ) -> Result<Reach, E2bError> {
        // The SDKs send `true` by default: the configuration decides then.
        let closed = |allow: Option<bool>| allow.filter(|allow| !allow);
        let Some(config) = config else {
            return Ok(Reach { allow_internet: closed(allow_internet), egress_allow: None });
        };
        if let Some((name, _)) = config.other.iter().find(|(_, value)| !value.is_null()) {
            return Err(E2bError::invalid(format!(
                "`network.{name}` is not supported by this server"
            )));
        }
        let denied = |one: &String| EVERYTHING.contains(&&**one);
        if let Some(other) = config.deny_out.iter().find(|one| !denied(one)) {
            let why = format!(
                "`network.denyOut` of `{other}` is not supported by this server: deny 0.0.0.0/0 and allow what is needed"
            );
            return Err(E2bError::invalid(why));
        }
        let allow_internet = match config.deny_out.is_empty() {
            true => closed(config.allow_internet.or(allow_internet)),
            false => Some(false),
        };
        Ok(Reach { allow_internet, egress_allow: Some(config.allow_out.clone()) })
    }
}

/// `PUT /sandboxes/{id}/network`: what is left out is as the configuration has it.
pub(in super::super) async fn update_network(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    BodyOf(config): BodyOf<NetworkConfig>,
) -> Result<StatusCode, E2bError> {
    let sandbox = e2b.sandbox(&owner, &id).await?;
    let reach = NetworkConfig::reach(Some(&config), None)?;
    let usual = e2b.core.config.network.default_allow_internet;
    let asked = json!({
        "workspace_id": sandbox.name,
        "allow_internet": reach.allow_internet.or(config.allow_internet).unwrap_or(usual),
        "egress_allow": reach.egress_allow.unwrap_or_default(),
    });
    e2b.call(&owner, "network_policy", asked)
        .await
        .map_err(E2bError::from)
        .map_err(gone_is_not_found(&id))?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(config: Value) -> Result<Reach, E2bError> {
        let config: NetworkConfig = serde_json::from_value(config).expect("a configuration");
        NetworkConfig::reach(Some(&config), None)
    }

    #[test]
    fn a_policy_is_never_wider_than_the_rules() {
        let all =
            reach(json!({ "denyOut": ["0.0.0.0/0"], "allowOut": ["8.8.8.8"] })).expect("kept");
        let allow = Some(vec!["8.8.8.8".to_owned()]);
        assert_eq!(all, Reach { allow_internet: Some(false), egress_allow: allow });
        assert_eq!(reach(json!({})).expect("kept").allow_internet, None);
        for other in [
            json!({ "denyOut": ["8.8.8.8"] }),
            json!({ "rules": { "example.com": [] } }),
            json!({ "egressProxy": { "address": "x:1" } }),
        ] {
            assert!(reach(other.clone()).is_err(), "{other}");
        }
    }
}
