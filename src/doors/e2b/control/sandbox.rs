//! A sandbox as the SDKs see it: a workspace with labels.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeZone as _, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::doors::e2b::state::{E2b, Owner};

/// Beginning of the labels that are a sandbox's metadata.
pub(super) const METADATA: &str = "e2b.metadata.";
/// Label with the template that it was made from.
pub(super) const TEMPLATE: &str = "e2b.template";
/// Label of one that wakes when it is asked for something.
pub(super) const AUTO_RESUME: &str = "e2b.auto_resume";
/// Label of one that was killed, and is kept for its snapshots.
pub(super) const PUT_AWAY: &str = "e2b.put_away";
/// What the data plane can do: what the published one of this version can.
pub(super) const ENVD_VERSION: &str = "0.6.4";

/// A workspace as its tools tell it.
#[derive(Debug, Clone, Deserialize)]
pub(in super::super) struct Sandbox {
    pub(super) name: String,
    pub(in super::super) state: String,
    pub(super) owned: bool,
    pub(super) created_at: DateTime<Utc>,
    #[serde(default)]
    base_image: String,
    resources: Size,
    pub(super) isolation: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) ends_at: Option<DateTime<Utc>>,
    pub(super) at_end: Option<String>,
    #[serde(default)]
    pub(super) snapshots: Vec<Snapshot>,
    network: Option<Network>,
    #[serde(default)]
    pub(in super::super) env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Size {
    vcpus: u32,
    memory_mb: u64,
    disk_gb: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct Network {
    allow_internet: bool,
    #[serde(default)]
    egress_allow: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Snapshot {
    pub(super) name: String,
}

impl Sandbox {
    /// False for one that is over, or not yet there.
    pub(super) fn is_there(&self) -> bool {
        let over = matches!(&*self.state, "creating" | "failed" | "destroying");
        // One whose lifetime is over and that shall be removed is kept only until that is done, or for snapshots.
        let ended = self.at_end.as_deref() != Some("pause")
            && self.at_end.as_deref() != Some("park")
            && self.ends_at.is_some_and(|at| at <= Utc::now())
            && self.labels.contains_key(TEMPLATE);
        !over && !ended && !self.labels.contains_key(PUT_AWAY)
    }

    pub(in super::super) fn is_running(&self) -> bool {
        matches!(&*self.state, "running" | "starting" | "host_disk_full")
    }

    pub(super) fn is_vm(&self) -> bool {
        self.isolation == "vm"
    }

    pub(super) fn metadata(&self) -> BTreeMap<&str, &str> {
        let labels = self.labels.iter();
        labels.filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, &**value))).collect()
    }

    pub(super) fn template(&self) -> &str {
        self.labels.get(TEMPLATE).map_or(&*self.base_image, String::as_str)
    }

    fn on_timeout(&self) -> &'static str {
        match self.at_end.as_deref() {
            Some("pause" | "park") => "pause",
            _ => "kill",
        }
    }

    /// As a row of a list.
    pub(super) fn row(&self) -> Value {
        // Workspaces without an end live on.
        let never = Utc.with_ymd_and_hms(9999, 12, 31, 0, 0, 0).single();
        json!({
            "sandboxID": self.name, "templateID": self.template(), "alias": self.template(),
            "clientID": "hivekeep", "startedAt": self.created_at,
            "endAt": self.ends_at.or(never), "cpuCount": self.resources.vcpus,
            "memoryMB": self.resources.memory_mb, "diskSizeMB": self.resources.disk_gb * 1024,
            "state": if self.is_running() { "running" } else { "paused" },
            "envdVersion": ENVD_VERSION, "metadata": self.metadata(),
        })
    }
}

impl E2b {
    /// What a client needs to reach a sandbox.
    pub(super) fn reached(&self, owner: &Owner, id: &str, template: &str) -> Value {
        json!({
            "sandboxID": id, "templateID": template, "alias": template, "clientID": "hivekeep",
            "envdVersion": ENVD_VERSION, "envdAccessToken": self.tokens.of(owner.credential, id),
            "trafficAccessToken": self.tokens.of(owner.credential, id), "domain": self.domain,
        })
    }

    /// All that a client is told of a sandbox.
    pub(super) fn detail(&self, owner: &Owner, sandbox: &Sandbox) -> Value {
        let mut told = sandbox.row();
        let reached = self.reached(owner, &sandbox.name, sandbox.template());
        for key in ["envdAccessToken", "domain"] {
            told[key] = reached[key].clone();
        }
        let auto_resume = sandbox.labels.contains_key(AUTO_RESUME);
        told["lifecycle"] = json!({ "onTimeout": sandbox.on_timeout(), "autoResume": auto_resume });
        if let Some(network) = &sandbox.network {
            told["allowInternetAccess"] = network.allow_internet.into();
            told["network"] = json!({ "allowOut": network.egress_allow });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(more: Value) -> Sandbox {
        let mut row = json!({
            "name": "i1", "state": "running", "owned": true, "created_at": "2026-01-01T00:00:00Z",
            "resources": { "vcpus": 2, "memory_mb": 512, "disk_gb": 4 }, "isolation": "vm",
            "labels": { "e2b.template": "base", "e2b.metadata.a": "b", "other": "c" },
        });
        row.as_object_mut().expect("one").append(more.as_object().cloned().as_mut().expect("one"));
        serde_json::from_value(row).expect("a sandbox")
    }

    #[test]
    fn metadata_are_labels_of_their_own() {
        let row = sandbox(json!({})).row();
        assert_eq!(row["metadata"], json!({ "a": "b" }));
        assert_eq!((&row["templateID"], &row["diskSizeMB"]), (&json!("base"), &json!(4096)));
        assert_eq!(row["endAt"], "9999-12-31T00:00:00Z");
    }

    #[test]
    fn what_is_over_is_not_there() {
        let past = json!({ "ends_at": "2026-01-01T00:01:00Z", "at_end": "destroy" });
        assert!(!sandbox(past.clone()).is_there());
        let mut paused = past;
        paused["at_end"] = "pause".into();
        assert!(sandbox(paused).is_there(), "it is paused");
        assert!(!sandbox(json!({ "state": "failed" })).is_there());
        assert!(!sandbox(json!({ "labels": { "e2b.put_away": "" } })).is_there());
        assert_eq!(sandbox(json!({ "state": "parked" })).row()["state"], "paused");
    }
}
