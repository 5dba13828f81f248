//! Section `[web]`.

use std::path::PathBuf;

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::egress::EgressPolicy;

/// Longest time of a search that its tool's own limit leaves room for.
const MAX_SEARCH_SECS: u64 = 100;

/// Fetches and searches that sessions may make through the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Whether sessions may fetch pages and search. The host does it on their behalf.
    pub enabled: bool,
    /// Whether each fetch has to name a workspace of the session, by whose network policy it is judged too.
    pub fetch_for_workspaces_only: bool,
    /// Domains that may be fetched from, each with all names below it. Empty: every domain.
    pub allow_domains: Vec<String>,
    /// Domains that may not be fetched from, each with all names below it; they win over `allow_domains`.
    pub deny_domains: Vec<String>,
    /// Networks that may be fetched from although they are not of the public internet: networks
    /// (`10.1.0.0/16`), addresses, or names of hosts whose addresses may be of any kind.
    pub allow_networks: Vec<String>,
    /// Ports that may be fetched from. Empty: every port.
    pub ports: Vec<u16>,
    /// HTTP proxy for every request, without user and password. It resolves the names, so that it must
    /// keep sessions from private addresses. Proxies of the environment are not used.
    pub proxy: Option<String>,
    /// File with certificates (PEM) of authorities that are trusted beside the host's. Read at the start.
    pub ca_file: Option<PathBuf>,
    /// URL that the user agent names, for whoever wonders who fetches.
    pub contact_url: Option<String>,
    /// Largest body of an answer in MiB, decompressed.
    #[schemars(range(min = 1, max = 1024))]
    pub max_body_mb: usize,
    /// Time of a search, with its repetitions and all providers.
    #[schemars(range(min = 1, max = MAX_SEARCH_SECS))]
    pub search_timeout_secs: u64,
    /// Providers of searches, asked in this order until one answers, none by default. Each is a table:
    /// `[[web.providers]]` with `kind` (`searxng`, `brave` or `duckduckgo`), for SearXNG the `url` of the
    /// instance, and for Brave either `key_file` or `key_env`. A query is sent to them as it is.
    pub providers: Vec<ProviderOptions>,
}

/// Provider of searches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderOptions {
    /// Search service: SearXNG, Brave or DuckDuckGo.
    pub kind: ProviderKind,
    /// Where it is, if not where everybody's is: the root of an instance, or the address that is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// File that holds its key, read anew for each search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Variable of the daemon's environment that holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
}

/// Kind of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// An instance of SearXNG whose settings allow the format `json`.
    Searxng,
    /// Brave's API.
    Brave,
    /// DuckDuckGo's page without scripts.
    Duckduckgo,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            fetch_for_workspaces_only: false,
            allow_domains: Vec::new(),
            deny_domains: Vec::new(),
            allow_networks: Vec::new(),
            ports: vec![80, 443],
            proxy: None,
            ca_file: None,
            contact_url: None,
            max_body_mb: 8,
            search_timeout_secs: 30,
            providers: Vec::new(),
        }
    }
}

impl Options {
    /// Largest body of an answer.
    pub(crate) fn max_body_bytes(&self) -> usize {
        self.max_body_mb.saturating_mul(1024 * 1024)
    }

    /// Name that requests carry.
    pub(crate) fn user_agent(&self) -> String {
        let name = concat!("hivekeep/", env!("CARGO_PKG_VERSION"));
        match &self.contact_url {
            Some(url) => format!("{name} (+{url})"),
            None => name.to_owned(),
        }
    }
}

impl ProviderOptions {
    /// Reason why the settings cannot work; `None` if they can.
    fn problem(&self) -> Option<&'static str> {
        let key = usize::from(self.key_file.is_some()) + usize::from(self.key_env.is_some());
        let url = self.url.as_deref().map(is_web);
        match (self.kind, url, key) {
            (_, Some(false), _) => Some("`url` is not a valid http or https URL"),
            (ProviderKind::Searxng, None, _) => Some("`url` of the instance is missing"),
            (ProviderKind::Brave, _, 0 | 2..) => Some("give either `key_file` or `key_env`"),
            (ProviderKind::Searxng | ProviderKind::Duckduckgo, _, 1..) => Some("it takes no key"),
            _ if self.key_file.as_ref().is_some_and(|path| !path.is_absolute()) => {
                Some("`key_file` must be an absolute path")
            }
            _ => None,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = EgressPolicy::new(self).err().unwrap_or_default();
        let mut add = |key, why: &str| wrong.push((key, why.to_owned()));
        for (key, url) in [("proxy", &self.proxy), ("contact_url", &self.contact_url)] {
            if url.as_deref().is_some_and(|url| !is_web(url)) {
                add(key, "is not a valid http or https URL without user and password");
            }
        }
        if self.ca_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            add("ca_file", "must be an absolute path");
        }
        for (nth, provider) in (1..).zip(&self.providers) {
            if let Some(why) = provider.problem() {
                add("providers", &format!("entry {nth}: {why}"));
            }
        }
        wrong
    }
}

/// True for an http or https URL without credentials that a header can carry.
fn is_web(url: &str) -> bool {
    let plain = url.is_ascii() && !url.contains(|c: char| c.is_control());
    let parsed = Url::parse(url).ok().filter(|_| plain);
    parsed.is_some_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
    })
}
