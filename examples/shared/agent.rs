//! An agent as the examples play it: an MCP client with a session of its own, attached over stdio.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Context, Result, bail};
use hivekeep_mcp_client::Client;
use serde_json::{Value, json};
use tokio::process::Command;

/// An attached client. Dropped without [`Agent::leave`], its server ends with it.
pub struct Agent(Client);

impl Agent {
    /// Attaches to the daemon by the command line that follows the example's own name, as it would
    /// stand in a client's configuration. Without one it is `hivekeep mcp`, of this build if there
    /// is one. A daemon that does not run is started by it.
    pub async fn attach(name: &str) -> Result<Self> {
        let words: Vec<_> = std::env::args_os().skip(1).collect();
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) => (program.clone(), arguments.to_vec()),
            None => (hivekeep(), vec!["mcp".into()]),
        };
        let mut server = Command::new(&program);
        // A terminal's interruption is for the example alone: it still has to clean up.
        server.args(arguments).process_group(0);
        let client = Client::spawn(name, server).await;
        Ok(Self(client.with_context(|| format!("attach to {}", program.to_string_lossy()))?))
    }

    /// A call that has to succeed; its structured result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        Ok(self.0.call(tool, arguments).await?)
    }

    /// Runs a command in a workspace, which has to exit with 0; what it wrote.
    pub async fn exec(&self, workspace: &str, command: &str) -> Result<String> {
        let call = json!({ "workspace_id": workspace, "command": command });
        let done = self.call("exec", call).await?;
        let (stdout, stderr) = (text(&done["stdout"]), text(&done["stderr"]));
        if done["exit_code"] != 0 {
            bail!("`{command}` exited with {}: {stdout}{stderr}", done["exit_code"]);
        }
        Ok(stdout.to_owned())
    }

    /// Ends the attachment and waits for the server.
    pub async fn leave(self) -> Result<()> {
        Ok(self.0.leave().await?)
    }
}

/// A text in an answer; empty when it is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// This build's program, or the one that is installed.
fn hivekeep() -> OsString {
    let built = || -> Option<PathBuf> {
        // Examples lie in a folder beside it.
        let program = std::env::current_exe().ok()?.parent()?.parent()?.join("hivekeep");
        program.is_file().then_some(program)
    };
    built().map_or_else(|| "hivekeep".into(), PathBuf::into_os_string)
}
