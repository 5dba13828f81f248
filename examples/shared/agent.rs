//! An agent as the examples play it: an MCP client with a session of its own, attached over stdio.

use std::{ffi::OsString, path::PathBuf, process::Stdio};

use anyhow::{Context, Result, bail};
use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, JsonObject},
    service::RunningService,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// An attached client. Dropped without [`Agent::leave`], its server ends with it.
pub struct Agent {
    client: RunningService<RoleClient, ClientConfig>,
    server: Child,
}

impl Agent {
    /// Attaches to the daemon by the command line that follows the example's own name, as it would
    /// stand in a client's configuration. Without one it is `hivekeep mcp`, of this build if there
    /// is one. A daemon that does not run is started by it.
    pub async fn attach(name: &'static str) -> Result<Self> {
        let words: Vec<_> = std::env::args_os().skip(1).collect();
        let (program, arguments) = match words.split_first() {
            Some((program, arguments)) => (program.clone(), arguments.to_vec()),
            None => (hivekeep(), vec!["mcp".into()]),
        };
        let mut server = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's interruption is for the example alone: it still has to clean up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.to_string_lossy()))?;
        let input = server.stdin.take().context("the server has no standard input")?;
        let output = server.stdout.take().context("the server has no standard output")?;
        let about = Implementation::new(name, env!("CARGO_PKG_VERSION"));
        let client = ClientConfig::new(ClientCapabilities::default(), about);
        let client = client.serve((output, input)).await.context("the handshake failed")?;
        Ok(Self { client, server })
    }

    /// A call that has to succeed; its structured result.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> Result<Value> {
        let action = arguments["action"].as_str().unwrap_or_default().to_owned();
        let Value::Object(arguments) = arguments else { bail!("{tool}: arguments are an object") };
        self.ask(tool, arguments).await.with_context(|| format!("{tool} {action}"))
    }

    async fn ask(&self, tool: &'static str, arguments: JsonObject) -> Result<Value> {
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = self.client.call_tool(request).await?;
        if result.is_error == Some(true) {
            // The first block is for people; the same follows as JSON.
            let text = result.content.iter().find_map(|block| block.as_text());
            bail!("{}", text.map_or("an error without words", |block| block.text.as_str()));
        }
        result.structured_content.context("it answered nothing")
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
    pub async fn leave(mut self) -> Result<()> {
        self.client.cancel().await?;
        self.server.wait().await?;
        Ok(())
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
