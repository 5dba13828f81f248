//! Integration with agent clients: what `hivekeep integrate` would change in a client's own files,
//! as values, and the way to do it.
//!
//! A client is a row of [`client`]: where its configuration is, in what format an MCP server stands
//! in it, and where it looks for skills. Files are edited as text with everything else kept
//! ([`json`], [`toml`]) and written whole ([`change`]).

mod change;
mod client;
mod json;
mod toml;

use std::path::{Path, PathBuf};

pub use change::{Change, Refused};
pub use client::{Client, Homes};

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

#[cfg(test)]
mod tests;
