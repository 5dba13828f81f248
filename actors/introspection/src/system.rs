//! Facts about the daemon on this host, and its configuration.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, ToolError, ports::NetworkMode};
use hivekeep_runtime::{Finding, introspection::ConfigValue};
use serde_json::Value;

use crate::{
    host_paths::{hide, hide_in},
    service::{IntrospectionService, is_operator},
    tools::{
        ConfigInForce, ConfigSetting, FamilyRow, HostPart, MissingPart, SystemConfig, SystemFacts,
        SystemHealth, SystemInfo,
    },
};

type Answer<T> = Result<T, ToolError>;

/// Longest wait for the network's self-test.
const NETWORK_PATIENCE: Duration = Duration::from_secs(5);
/// States of an actor that a person should look at, by their first word.
const TROUBLE: [&str; 4] = ["gave_up", "restarting", "crashed", "failed"];

impl IntrospectionService {
    pub(crate) async fn system_info(
        self: Arc<Self>,
        cx: CallCx,
        _: SystemInfo,
    ) -> Answer<SystemFacts> {
        let shown = |text: String| if is_operator(&cx) { text } else { hide(&text) };
        let (network, found) = tokio::join!(self.network_mode(), self.daemon.findings());
        let families = self.families();
        let troubled_actors = self.troubled_actors();
        let (good, bad): (Vec<_>, Vec<_>) = found.into_iter().partition(|finding| finding.ok);
        let sound = troubled_actors.is_empty() && !bad.iter().any(|finding| finding.needed);
        let mut capabilities: Vec<_> = families.iter().map(|family| family.name.clone()).collect();
        capabilities.extend(good.iter().map(|finding| finding.what.clone()));
        let missing = |finding: Finding| MissingPart {
            name: finding.what,
            needed: finding.needed,
            detail: shown(finding.detail),
            remedy: finding.remedy.map(shown),
        };
        let mut missing: Vec<_> = bad.into_iter().map(missing).collect();
        missing.sort_by_key(|part| !part.needed);
        let part =
            |finding: Finding| HostPart { name: finding.what, detail: shown(finding.detail) };
        Ok(SystemFacts {
            version: self.daemon.version().to_owned(),
            status: if sound { SystemHealth::Healthy } else { SystemHealth::Unhealthy },
            uptime_secs: self.daemon.uptime().as_secs(),
            capabilities,
            missing,
            network: network.map(|mode| told(mode, &shown)),
            host: good.into_iter().map(part).collect(),
            families,
            troubled_actors,
        })
    }

    pub(crate) async fn system_config(
        self: Arc<Self>,
        cx: CallCx,
        _: SystemConfig,
    ) -> Answer<ConfigInForce> {
        let operator = is_operator(&cx);
        let value = |value: Value| if operator { value } else { hide_in(value) };
        let text = |text: String| if operator { text } else { hide(&text) };
        let set = |one: &ConfigValue| ConfigSetting {
            key: text(one.key.clone()),
            value: value(one.value.clone()),
            source: text(one.source.clone()),
        };
        let whole = value(self.daemon.config().clone());
        Ok(ConfigInForce {
            config_path: self.daemon.config_file().map(text),
            content_yaml: format!("{whole:#}"),
            set: self.daemon.config_set().iter().map(set).collect(),
        })
    }

    async fn network_mode(&self) -> Option<NetworkMode> {
        let network = self.network()?;
        tokio::time::timeout(NETWORK_PATIENCE, network.mode()).await.ok()?.ok()
    }

    fn families(&self) -> Vec<FamilyRow> {
        let mut families: Vec<FamilyRow> = Vec::new();
        for tool in self.daemon.tools() {
            let at = families.iter().position(|family| family.name == tool.family);
            let at = at.unwrap_or_else(|| {
                families.push(FamilyRow { name: tool.family.to_owned(), tools: Vec::new() });
                families.len() - 1
            });
            families[at].tools.push(tool.name.to_owned());
        }
        families
    }

    /// Actors of the first rank in trouble; others belong to sessions.
    fn troubled_actors(&self) -> Vec<String> {
        let rows = self.census.rows().into_iter();
        rows.filter(|row| row.path.matches('/').count() <= 1)
            .filter(|row| TROUBLE.iter().any(|word| row.state.starts_with(word)))
            .map(|row| row.path)
            .collect()
    }
}

fn told(mode: NetworkMode, shown: &impl Fn(String) -> String) -> NetworkMode {
    match mode {
        NetworkMode::User { reason } => NetworkMode::User { reason: shown(reason) },
        NetworkMode::Off { reason } => NetworkMode::Off { reason: shown(reason) },
        NetworkMode::Bridge => NetworkMode::Bridge,
    }
}
