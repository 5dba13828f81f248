//! A sandbox as the SDKs see it: a workspace with labels.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeZone as _, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    access::TokenKind,
    error::E2bError,
    state::{E2b, Owner},
};

/// Beginning of the labels that are a sandbox's metadata.
pub(super) const METADATA: &str = "e2b.metadata.";
/// Label with the template that it was made from.
pub(super) const TEMPLATE: &str = "e2b.template";
/// Label of a sandbox that wakes when it is asked for something.
pub(super) const AUTO_RESUME: &str = "e2b.auto_resume";
/// Label of a sandbox whose ports are reached without a token.
pub(in super::super) const PUBLIC_PORTS: &str = "e2b.public_ports";
/// Label with the digest of the request that made the sandbox, where that has a key.
pub(super) const REQUEST: &str = "e2b.request";
/// Label with the action at the sandbox's end, which the workspace forgets once it has happened.
pub(super) const AT_END: &str = "e2b.at_end";
/// Version of the published data plane whose features this one has.
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
    idle_park_secs: Option<u64>,
    /// Action at the end, as it is set now.
    #[serde(rename = "at_end")]
    end_set: Option<String>,
    #[serde(default)]
    pub(super) snapshots: Vec<Snapshot>,
    network: Option<Network>,
    /// Use of the host, while the sandbox runs.
    pub(super) machine: Option<Machine>,
    pub(super) disk_used_bytes: Option<u64>,
    pub(super) disk_volsize_bytes: Option<u64>,
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

/// Resources of the host that a sandbox uses.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Machine {
    pub(super) memory_bytes: Option<u64>,
    pub(super) cpu_ms: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Snapshot {
    pub(super) name: String,
}

impl Sandbox {
    /// False for a sandbox that is over, or not yet there. One that is stopped and shall be removed, or has
    /// no end though it was to be removed at it, was killed and is kept for its snapshots.
    pub(super) fn is_there(&self) -> bool {
        let destroyed = self.at_end() == "destroy";
        match &*self.state {
            "creating" | "failed" | "destroying" => false,
            "stopped" if self.end_set.as_deref() == Some("destroy") => false,
            "stopped" => !(self.ends_at.is_none() && destroyed),
            _ => !(self.ends_at.is_some_and(|at| at <= Utc::now()) && destroyed),
        }
    }

    /// Whether the sandbox lacks something that its creation adds to the workspace: these variables, or a
    /// list of allowed egress. A daemon that was killed in the middle leaves it so.
    pub(super) fn lacks<'n>(&self, mut env: impl Iterator<Item = &'n str>, egress: bool) -> bool {
        let reaches = self.network.as_ref().is_some_and(|network| !network.egress_allow.is_empty());
        env.any(|name| !self.env.contains_key(name)) || (egress && !reaches)
    }

    /// Action at the sandbox's end. Workspaces that were not made here stop.
    pub(super) fn at_end(&self) -> &str {
        self.labels.get(AT_END).map_or("stop", String::as_str)
    }

    pub(in super::super) fn is_running(&self) -> bool {
        matches!(&*self.state, "running" | "starting" | "host_disk_full")
    }

    /// Whether the sandbox was made here, was paused, and has been woken by something else since: it is
    /// paused again when it is idle.
    pub(super) fn awaits_a_client(&self) -> bool {
        let endless = self.ends_at.is_none() && self.idle_park_secs.is_some_and(|secs| secs > 0);
        endless && self.labels.contains_key(AT_END) && self.is_running()
    }

    pub(super) fn is_vm(&self) -> bool {
        self.isolation == "vm"
    }

    pub(super) fn vcpus(&self) -> u32 {
        self.resources.vcpus
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.resources.memory_mb << 20
    }

    pub(super) fn metadata(&self) -> BTreeMap<&str, &str> {
        let labels = self.labels.iter();
        labels.filter_map(|(name, value)| Some((name.strip_prefix(METADATA)?, &**value))).collect()
    }

    pub(super) fn template(&self) -> &str {
        self.labels.get(TEMPLATE).map_or(&*self.base_image, String::as_str)
    }

    fn on_timeout(&self) -> &'static str {
        if self.at_end() == "destroy" { "kill" } else { "pause" }
    }

    /// The sandbox as a row of a list.
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
    /// Domain and tokens by which a client reaches a sandbox.
    ///
    /// # Errors
    /// For a sandbox that is gone.
    pub(super) fn reached(
        &self,
        owner: &Owner,
        id: &str,
        template: &str,
    ) -> Result<Value, E2bError> {
        let workspace = self.workspace(id).map_err(E2bError::of_control)?.id;
        let token = |kind| self.tokens.of(kind, owner.credential, workspace);
        Ok(json!({
            "sandboxID": id, "templateID": template, "alias": template, "clientID": "hivekeep",
            "envdVersion": ENVD_VERSION, "envdAccessToken": token(TokenKind::Access),
            "trafficAccessToken": token(TokenKind::Traffic), "domain": self.domain,
        }))
    }

    /// All fields of a sandbox that a client gets.
    ///
    /// # Errors
    /// As [`Self::reached`].
    pub(super) fn detail(&self, owner: &Owner, sandbox: &Sandbox) -> Result<Value, E2bError> {
        let mut told = sandbox.row();
        let reached = self.reached(owner, &sandbox.name, sandbox.template())?;
        for key in ["envdAccessToken", "domain"] {
            told[key] = reached[key].clone();
        }
        let auto_resume = sandbox.labels.contains_key(AUTO_RESUME);
        told["lifecycle"] = json!({ "onTimeout": sandbox.on_timeout(), "autoResume": auto_resume });
        if let Some(network) = &sandbox.network {
            told["allowInternetAccess"] = network.allow_internet.into();
            told["network"] = json!({ "allowOut": network.egress_allow });
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(more: Value) -> Sandbox {
        let mut row = json!({
            "name": "i1", "state": "running", "owned": true, "created_at": "2026-01-01T00:00:00Z",
            "resources": { "vcpus": 2, "memory_mb": 512, "disk_gb": 4 }, "isolation": "vm",
            "labels": {
                "e2b.template": "base", "e2b.metadata.a": "b", "e2b.at_end": "destroy", "other": "c",
            },
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
    fn what_a_killed_daemon_did_not_give_it_is_found() {
        let whole = sandbox(
            json!({ "env": { "A": "" }, "network": { "allow_internet": true, "egress_allow": ["a"] } }),
        );
        assert!(!whole.lacks(["A"].into_iter(), true));
        assert!(whole.lacks(["A", "B"].into_iter(), true));
        let bare = sandbox(json!({}));
        assert!(bare.lacks(["A"].into_iter(), false) && bare.lacks([].into_iter(), true));
        assert!(!bare.lacks([].into_iter(), false));
    }

    #[test]
    fn only_one_that_was_paused_awaits_a_client() {
        assert!(sandbox(json!({ "idle_park_secs": 300 })).awaits_a_client());
        for other in [
            json!({}),
            json!({ "idle_park_secs": 0 }),
            json!({ "idle_park_secs": 300, "ends_at": "9000-01-01T00:00:00Z" }),
            json!({ "idle_park_secs": 300, "state": "parked" }),
            json!({ "idle_park_secs": 300, "labels": {} }),
        ] {
            assert!(!sandbox(other.clone()).awaits_a_client(), "{other}");
        }
    }

    #[test]
    fn what_is_over_is_not_there() {
        assert!(!sandbox(json!({ "ends_at": "2026-01-01T00:01:00Z" })).is_there());
        assert!(!sandbox(json!({ "state": "failed" })).is_there());
        assert!(!sandbox(json!({ "state": "stopped" })).is_there(), "kept for its snapshots");
        let later = json!({
            "state": "stopped", "ends_at": "9000-01-01T00:00:00Z", "at_end": "stop",
        });
        assert!(sandbox(later).is_there(), "paused without its memory");
        let pausing = json!({ "state": "stopped", "labels": { "e2b.at_end": "stop" } });
        assert!(sandbox(pausing).is_there(), "at its end");
        assert_eq!(sandbox(json!({ "state": "parked" })).row()["state"], "paused");
    }
}
