//! Section `[browser]`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hivekeep_runtime::{
    FamilyOptions,
    egress::{EgressLists, EgressRules},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// Value of `debug_url` that starts a Chrome of the daemon's own.
pub(crate) const LOCAL: &str = "local";
/// Most browsers that the operator opens.
const MAX_ATTACH: usize = 32;
/// Where distributions have Chrome, the first one first.
const PROGRAMS: [&str; 4] = [
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/usr/bin/google-chrome-stable",
    "/usr/bin/chromium",
];

/// Chrome sessions: who may have one, and what its pages may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Whether sessions may have browsers.
    pub enabled: bool,
    /// Program of Chrome or Chromium. Default: where distributions have it.
    pub program: Option<PathBuf>,
    /// Domains that pages may reach, each with all names below it. Empty: every domain.
    pub allow_domains: Vec<String>,
    /// Domains that they may not reach, each with all names below it; they win over `allow_domains`.
    pub deny_domains: Vec<String>,
    /// Networks that may be reached although they are not of the public internet: networks
    /// (`10.1.0.0/16`), addresses, or names of hosts whose addresses may be of any kind.
    pub allow_networks: Vec<String>,
    /// Ports that may be reached. Empty: every port.
    pub ports: Vec<u16>,
    /// Memory of a session's browser with all its processes, in MiB; one that takes more is ended.
    #[schemars(range(min = 256, max = 65_536))]
    pub memory_mb: u64,
    /// Browsers of all sessions at a time, of one user at most half of them.
    #[schemars(range(min = 1, max = 64))]
    pub max_browsers: usize,
    /// Minutes after which a browser that no call used is closed.
    #[schemars(range(min = 1, max = 1440))]
    pub idle_minutes: u64,
    /// Largest download in MiB, 32 at most; a larger one is cancelled.
    #[schemars(range(min = 1, max = 32))]
    pub download_mb: u64,
    /// Browsers that run elsewhere and that sessions may attach to: `[browser.attach.NAME]` with `url`.
    /// Their pages reach what that browser reaches.
    pub attach: BTreeMap<String, AttachOptions>,
}

/// A browser that runs elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachOptions {
    /// Its debugging address: `http://HOST:PORT`, or the `ws://` URL of its browser target.
    pub url: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            enabled: true,
            program: None,
            allow_domains: Vec::new(),
            deny_domains: Vec::new(),
            allow_networks: Vec::new(),
            ports: vec![80, 443],
            memory_mb: 2048,
            max_browsers: 4,
            idle_minutes: 30,
            download_mb: 32,
            attach: BTreeMap::new(),
        }
    }
}

impl Options {
    /// Rules of what is reached.
    pub(crate) fn rules(&self) -> Result<EgressRules, Vec<(&'static str, String)>> {
        EgressRules::new(EgressLists {
            allow_domains: &self.allow_domains,
            deny_domains: &self.deny_domains,
            allow_networks: &self.allow_networks,
            ports: &self.ports,
        })
    }

    /// Program that is started, where there is one.
    pub(crate) fn found_program(&self) -> Option<PathBuf> {
        match &self.program {
            Some(program) => program.is_file().then(|| program.clone()),
            None => PROGRAMS.map(Path::new).into_iter().find(|it| it.is_file()).map(Into::into),
        }
    }

    /// URL of a browser that the operator opened, by its name or by the URL.
    pub(crate) fn attach_url(&self, asked: &str) -> Option<&str> {
        let by_name = self.attach.get(asked);
        let found = by_name.or_else(|| self.attach.values().find(|known| known.url == asked));
        found.map(|known| known.url.as_str())
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.rules().err().unwrap_or_default();
        if self.program.as_ref().is_some_and(|program| !program.is_absolute()) {
            wrong.push(("program", "must be an absolute path".to_owned()));
        }
        if self.attach.len() > MAX_ATTACH {
            wrong.push(("attach", format!("has more than {MAX_ATTACH} browsers")));
        }
        for (name, known) in &self.attach {
            if name.is_empty() || name == LOCAL {
                wrong.push(("attach", format!("`{name}` is not a valid name of a browser")));
            }
            let parsed = Url::parse(&known.url).ok();
            if !parsed.is_some_and(|url| matches!(url.scheme(), "http" | "ws") && url.has_host()) {
                let why = format!("{name}.url: is not a valid http or ws URL");
                wrong.push(("attach", why));
            }
        }
        wrong
    }
}
