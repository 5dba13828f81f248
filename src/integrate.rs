//! Integration with agent clients: what `hivekeep integrate` would change in a client's own files,
//! as values, and the way to do it.
//!
//! A client is a row of [`Client::place`]: where its configuration is, in what format an MCP server stands
//! in it, and where it looks for skills; the pages where each documents its files are named in decision 0075.
//! Files are edited as text with everything else kept ([`format`]) and written whole ([`change`]).

mod change;
mod format;

use std::path::{Path, PathBuf};

use format::Format;

pub use change::{Change, Refused};

/// Name of the server, of the skill and of the plugin.
const NAME: &str = "hivekeep";
const SKILL: &str = include_str!("integrate/files/SKILL.md");
const PLUGIN: &str = include_str!("integrate/files/plugin.json");
const HOOKS: &str = include_str!("integrate/files/hooks.json");

/// Changes that connect a client with this program.
///
/// # Errors
/// When a file cannot be read or does not make sense.
pub fn connect(client: Client, homes: &Homes, program: &Path) -> Result<Vec<Change>, Refused> {
    let program = program.to_str().ok_or_else(|| Refused::not_text(program))?;
    let place = client.place(homes);
    let mut changes = vec![Change::edit(&place.config, |before| {
        place.format.with_server(before, place.servers, program, place.fields)
    })?];
    for (file, content) in skill_files(&place.skill, client, program) {
        changes.push(Change::edit(&file, |_| Ok(Some(content)))?);
    }
    Ok(changes.into_iter().filter(Change::is_any).collect())
}

/// Changes that take all of it back.
///
/// # Errors
/// As [`connect`].
pub fn disconnect(client: Client, homes: &Homes, program: &Path) -> Result<Vec<Change>, Refused> {
    let program = program.to_str().ok_or_else(|| Refused::not_text(program))?;
    let place = client.place(homes);
    let mut changes = vec![Change::edit(&place.config, |before| {
        place.format.without_server(before, place.servers)
    })?];
    if !shared(client, homes)? {
        for (file, ours) in skill_files(&place.skill, client, program) {
            changes.push(Change::removal(&file, &ours, &place.skill)?);
        }
    }
    Ok(changes.into_iter().filter(Change::is_any).collect())
}

/// True when another client that is connected reads the same skill.
fn shared(client: Client, homes: &Homes) -> Result<bool, Refused> {
    let skill = client.place(homes).skill;
    for other in Client::all().filter(|other| *other != client) {
        let place = other.place(homes);
        if place.skill == skill && place.format.has_server(&place.config, place.servers)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Files below the skill's folder. Claude Code takes a folder with a manifest for a plugin, which
/// has its skills one level below.
fn skill_files(folder: &Path, client: Client, program: &str) -> Vec<(PathBuf, String)> {
    if client != Client::ClaudeCode {
        return vec![(folder.join("SKILL.md"), SKILL.to_owned())];
    }
    vec![
        (folder.join(".claude-plugin/plugin.json"), PLUGIN.to_owned()),
        (folder.join("hooks/hooks.json"), hooks(program)),
        (folder.join("skills").join(NAME).join("SKILL.md"), SKILL.to_owned()),
    ]
}

/// The hooks, with this program as their command.
fn hooks(program: &str) -> String {
    HOOKS.replace("\"HIVEKEEP\"", &serde_json::json!(program).to_string())
}

/// An agent client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Client {
    /// Claude Code: its user's servers, and a plugin with the skill.
    ClaudeCode,
    /// Codex: its `config.toml`, and a skill.
    Codex,
    /// Cursor: its `mcp.json`, and a skill.
    Cursor,
    /// Visual Studio Code: its user's `mcp.json`, and a skill.
    Vscode,
    /// Zed: its `settings.json`, and a skill.
    Zed,
}

/// Folders that clients' places are below.
#[derive(Debug, Clone)]
pub struct Homes {
    /// The user's home.
    pub home: PathBuf,
    /// Configurations by the XDG base directory specification.
    pub config: PathBuf,
    /// Claude Code's folder where it was moved (`CLAUDE_CONFIG_DIR`).
    pub claude: Option<PathBuf>,
    /// Codex's folder where it was moved (`CODEX_HOME`).
    pub codex: Option<PathBuf>,
}

impl Homes {
    /// Folders by the environment of this process, as the clients read it.
    ///
    /// # Errors
    /// Without `HOME`.
    pub fn from_env() -> Result<Self, Refused> {
        let folder = |name| {
            let value = std::env::var_os(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let home = folder("HOME").ok_or(Refused::NoHome)?;
        Ok(Self {
            config: folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            claude: folder("CLAUDE_CONFIG_DIR"),
            codex: folder("CODEX_HOME"),
            home,
        })
    }
}

/// Where a client has what is changed.
#[derive(Debug)]
struct Place {
    config: PathBuf,
    format: Format,
    /// The key above all servers.
    servers: &'static str,
    /// Fields of a server beside `command` and `args`.
    fields: &'static [(&'static str, &'static str)],
    /// Folder of the skill.
    skill: PathBuf,
}

impl Client {
    /// All clients.
    fn all() -> impl Iterator<Item = Self> {
        [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::Vscode, Self::Zed].into_iter()
    }

    fn place(self, homes: &Homes) -> Place {
        let Homes { home, config, claude, codex } = homes;
        let skill = |folder: &str| home.join(folder).join("skills").join(NAME);
        let (format, fields) = (Format::Json, &[][..]);
        match self {
            Self::ClaudeCode => Place {
                config: claude.as_ref().unwrap_or(home).join(".claude.json"),
                format,
                servers: "mcpServers",
                fields: &[("type", "stdio")],
                skill: match claude {
                    Some(claude) => claude.join("skills").join(NAME),
                    None => skill(".claude"),
                },
            },
            Self::Codex => Place {
                config: codex.clone().unwrap_or_else(|| home.join(".codex")).join("config.toml"),
                format: Format::Toml,
                servers: "mcp_servers",
                fields,
                skill: skill(".agents"),
            },
            Self::Cursor => Place {
                config: home.join(".cursor/mcp.json"),
                format,
                servers: "mcpServers",
                fields,
                skill: skill(".cursor"),
            },
            Self::Vscode => Place {
                config: config.join("Code/User/mcp.json"),
                format,
                servers: "servers",
                fields: &[("type", "stdio")],
                skill: skill(".copilot"),
            },
            Self::Zed => Place {
                config: config.join("zed/settings.json"),
                format,
                servers: "context_servers",
                fields,
                skill: skill(".agents"),
            },
        }
    }
}

#[cfg(test)]
mod tests;
