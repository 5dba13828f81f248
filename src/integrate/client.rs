//! Clients: where each documents its files. The pages are named in decision 0075.

use std::path::{Path, PathBuf};

use super::{NAME, change::Refused, change::read, json, toml};

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

/// Format of a client's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON, with comments where the client has them.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// The text with the server in it.
    ///
    /// # Errors
    /// When the text is none of this format, or something else stands where the server would.
    pub(super) fn with_server(
        self,
        before: &str,
        servers: &str,
        program: &str,
        fields: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let text = match self {
            Self::Json => json::with_server(before, [servers, NAME], program, fields),
            Self::Toml => toml::with_server(before, [servers, NAME], program),
        };
        text.map(Some)
    }

    /// The text without the server; nothing when nothing else is in it.
    ///
    /// # Errors
    /// As [`Self::with_server`].
    pub(super) fn without_server(
        self,
        before: &str,
        servers: &str,
    ) -> Result<Option<String>, String> {
        match self {
            Self::Json => json::without_server(before, [servers, NAME]),
            Self::Toml => toml::without_server(before, [servers, NAME]),
        }
    }

    /// True when the server stands in this file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn has_server(self, file: &Path, servers: &str) -> Result<bool, Refused> {
        let Some(text) = read(file)? else { return Ok(false) };
        // A text that cannot be parsed counts as one without the server.
        let without = self.without_server(&text, servers).unwrap_or_else(|_| Some(text.clone()));
        Ok(without != Some(text))
    }
}

/// Where a client has what is changed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) config: PathBuf,
    pub(super) format: Format,
    /// The key above all servers.
    pub(super) servers: &'static str,
    /// Fields of a server beside `command` and `args`.
    pub(super) fields: &'static [(&'static str, &'static str)],
    /// Folder of the skill.
    pub(super) skill: PathBuf,
}

impl Client {
    /// All clients.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::Vscode, Self::Zed].into_iter()
    }

    pub(super) fn place(self, homes: &Homes) -> Place {
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
