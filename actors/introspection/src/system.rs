//! Facts about the daemon on this host, and its configuration. Paths of the host are hidden in answers that
//! leave the operator's command line.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use hivekeep_kernel::{CallCx, ToolError};
use hivekeep_ports::NetworkMode;
use hivekeep_runtime::{Finding, introspection::ConfigValue};
use regex::Regex;
use serde_json::Value;

use crate::{
    service::{IntrospectionService, is_operator},
    tools::{
        ConfigInForce, ConfigSetting, FamilyRow, HostPart, MissingPart, SystemConfig, SystemFacts,
        SystemHealth, SystemInfo,
    },
};

/// Longest wait for the network's self-test.
const NETWORK_PATIENCE: Duration = Duration::from_secs(5);
/// States of an actor that a person should look at, by their first word.
const TROUBLE: [&str; 4] = ["gave_up", "restarting", "crashed", "failed"];
/// Shown in place of a path.
const HIDDEN_PATH: &str = "[path of the host]";
/// An absolute path: a slash that begins a word, and what follows to the word's end. In `https://x/y`
/// and `a/b` no slash does.
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(^|[^\w/.\-~])(/[\w.@+\-][^\s"'`),;:\]}>]*)"#)
        .expect("a literal that a test uses")
});

type Answer<T> = Result<T, ToolError>;

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

/// Text without paths of the host.
fn hide(text: &str) -> String {
    PATH.replace_all(text, format!("${{1}}{HIDDEN_PATH}")).into_owned()
}

/// Value whose texts have no paths of the host; keys of mappings count as texts.
fn hide_in(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(hide(&text)),
        Value::Array(items) => items.into_iter().map(hide_in).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (hide(&key), hide_in(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_and_the_rest_stays() {
        for (text, shown) in [
            ("/srv/notes", "[path of the host]"),
            ("/srv/notes (3 GiB free)", "[path of the host] (3 GiB free)"),
            ("cannot open `/etc/a.pem`: no", "cannot open `[path of the host]`: no"),
            ("path=/x/y,/z", "path=[path of the host],[path of the host]"),
            ("https://example.org/a/b", "https://example.org/a/b"),
            ("docker.io/library/bash:5", "docker.io/library/bash:5"),
            ("3/4 and a / b", "3/4 and a / b"),
            ("", ""),
        ] {
            assert_eq!(hide(text), shown);
        }
    }
}
