//! Condition of the network: the faults that `hivekeep ps` shows.

use serde_json::json;

use super::{Backend, NetworkActor};
use crate::NetworkModeChoice;

/// Present faults. Empty when all is well.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// The kernel does not follow the plan.
    pub(super) kernel: Option<String>,
    /// Guests are not served names.
    pub(super) names: Option<String>,
    /// Chains of others that drop by policy.
    pub(super) obstacles: Vec<String>,
    /// Last told.
    told: Vec<String>,
}

impl NetworkActor {
    fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if let Some(Backend::User { reason }) = self.backend.as_deref()
            && self.shared.options.mode != NetworkModeChoice::User
        {
            reasons.push(format!("no bridge: {reason}"));
        }
        if let Some(Backend::Bridge { report }) = self.backend.as_deref() {
            reasons.extend(report.broken().map(|f| format!("not proven: {:?}", f.property)));
            let unknown = report.unknown();
            reasons.extend(unknown.map(|f| format!("not yet proven: {:?}", f.property)));
        }
        let Condition { kernel, names, obstacles, .. } = &self.condition;
        reasons.extend(kernel.clone());
        reasons.extend(names.as_ref().map(|why| format!("names are not served: {why}")));
        if self.durable.leaves_the_host() {
            let drops = |chain: &String| format!("`{chain}` of others drops by policy");
            reasons.extend(obstacles.iter().map(drops));
        }
        reasons.extend(self.held.lost().map(str::to_owned));
        reasons
    }

    /// Shows it, and tells of it when it changes.
    pub(super) fn say_condition(&mut self) {
        let reasons = self.reasons();
        let kind = match self.backend.as_deref() {
            Some(Backend::Bridge { .. }) => "bridge",
            Some(Backend::User { .. }) => "user mode",
            Some(Backend::Off { .. }) | None => "off",
        };
        let state = match reasons.is_empty() {
            true => format!("running, {kind}"),
            false => format!("degraded, {kind}: {}", reasons.join("; ")),
        };
        self.me.address.probe().set_state(state);
        if reasons == self.condition.told {
            return;
        }
        match reasons.is_empty() {
            true => self.shared.tell("network.recovered", "host", json!({})),
            false => self.shared.tell("network.degraded", "host", json!({ "reasons": reasons })),
        }
        self.condition.told = reasons;
    }
}
