//! Section `[source]`.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use hivekeep_kernel::Tier;
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// Most servers.
const MAX_SERVERS: usize = 64;

/// Other MCP servers whose tools are offered beside the daemon's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Servers by name: `[source.servers.files]` with `command` or `url`. Their tools are named
    /// `mcp__files__TOOL`; `policy.sources` says how far they are trusted.
    pub servers: BTreeMap<ServerName, ServerOptions>,
}

/// Name of a server: 1 to 24 of a-z, 0-9 and single `_`, beginning with a letter.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct ServerName(String);

impl ServerName {
    /// Text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ServerName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let good = (1..=24).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(plain)
            && !text.contains("__")
            && !text.ends_with('_');
        match good {
            true => Ok(Self(text)),
            false => Err(format!(
                "`{text:.40}` is not a valid name of a server: 1 to 24 of a-z, 0-9 and single `_`, \
                 beginning with a letter"
            )),
        }
    }
}

impl From<ServerName> for String {
    fn from(name: ServerName) -> Self {
        name.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Surroundings of a server's process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    /// Namespaces of its own: the host's programs read-only, a home of its own, what `folders` names.
    #[default]
    Namespaces,
    /// The daemon's own user, files and network.
    None,
}

/// A server: a program that speaks over its standard streams, or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerOptions {
    /// False keeps the server's tools away without forgetting how it is reached.
    pub enabled: bool,
    /// Program and arguments of a server over stdio.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// URL of a server over streamable HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Variables of the program. It gets no others but `PATH`, `HOME`, `LANG` and `TERM`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables whose values are read from files at each start, for credentials.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env_files: BTreeMap<String, PathBuf>,
    /// File with the bearer token for `url`, read at each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// File with certificates (PEM) of authorities that are trusted beside the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// Sandbox of the program: `namespaces`, or `none` for the daemon's own surroundings.
    pub sandbox: SandboxKind,
    /// Whether the sandbox has the host's network.
    pub network: bool,
    /// Folders of the host that the sandbox has at their own paths: read-only as `/data:ro`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// Memory of all processes in the sandbox together, in MiB; where the host has no cgroup v2, of each one's
    /// data.
    pub memory_mb: u64,
    /// Processes and threads in the sandbox, where the host has cgroup v2 or the daemon is root.
    pub max_processes: u64,
    /// Whether what the server says of its tools (only reads, destroys nothing) is believed. If not, each
    /// counts as one that may destroy and reaches outside.
    pub trust_annotations: bool,
    /// Users who may call its tools: `user`, `system` (the users of `policy.system_users`) or `operator`.
    pub tier: Tier,
    /// Time for its start with the handshake and the list of its tools, in seconds.
    pub start_timeout_secs: u64,
    /// Time for a call, in seconds.
    pub timeout_secs: u64,
    /// Largest result that reaches a caller whole, in KiB; a larger one is kept as an artifact.
    pub max_result_kb: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            command: Vec::new(),
            url: None,
            env: BTreeMap::new(),
            env_files: BTreeMap::new(),
            token_file: None,
            ca_file: None,
            sandbox: SandboxKind::default(),
            network: false,
            folders: Vec::new(),
            memory_mb: 4096,
            max_processes: 1024,
            trust_annotations: false,
            tier: Tier::User,
            start_timeout_secs: 60,
            timeout_secs: 60,
            max_result_kb: 4096,
        }
    }
}

impl ServerOptions {
    /// Problems of the settings: key and reason of each.
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut add = |key, why: &str| wrong.push((key, why.to_owned()));
        match (self.command.first(), &self.url) {
            (Some(_), Some(_)) => add("url", "give either `command` or `url`"),
            (None, None) => add("command", "give `command` or `url`"),
            (Some(program), None) if program.is_empty() => add("command", "names no program"),
            (None, Some(url)) if !is_web(url) => {
                add("url", "is not a valid http or https URL without user and password");
            }
            _ => {}
        }
        for variable in self.env.keys().chain(self.env_files.keys()) {
            if variable.is_empty() || variable.contains(['=', '\0']) {
                add("env", "has a name that is not valid for a variable");
            }
        }
        let files = self.env_files.values().chain(&self.token_file).chain(&self.ca_file);
        if files.into_iter().any(|path| !path.is_absolute()) {
            add("token_file", "files must have absolute paths");
        }
        for folder in &self.folders {
            let path = folder.strip_suffix(":ro").unwrap_or(folder);
            if !path.starts_with('/') || path == "/" || path.split('/').any(|part| part == "..") {
                add("folders", &format!("`{path:.80}` is not an absolute path below `/`"));
            }
        }
        for (key, value, most) in [
            ("start_timeout_secs", self.start_timeout_secs, 600),
            ("timeout_secs", self.timeout_secs, 3_600),
            ("max_result_kb", self.max_result_kb as u64, 65_536),
            ("memory_mb", self.memory_mb, 1_048_576),
            ("max_processes", self.max_processes, 65_536),
        ] {
            if !(1..=most).contains(&value) {
                add(key, &format!("must be between 1 and {most}"));
            }
        }
        wrong
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.servers.len() > MAX_SERVERS {
            wrong.push(("servers", format!("has more than {MAX_SERVERS} servers")));
        }
        for (name, server) in &self.servers {
            let of = |(key, why)| ("servers", format!("{name}.{key}: {why}"));
            wrong.extend(server.problems().into_iter().map(of));
        }
        wrong
    }
}

fn is_web(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
}
