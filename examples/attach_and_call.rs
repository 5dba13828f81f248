//! An MCP client in a page: attaches to the daemon over stdio and calls tools.
//!
//! ```text
//! cargo run --example attach_and_call -- hivekeep mcp
//! {"tool": "workspace_list", "arguments": {}}
//! ```
//!
//! The arguments are the server's command line, as in a client's configuration.
//! Each line of standard input is a call. Each call is answered with one line:
//! `{"result": ...}` with the structured result, or `{"error": ...}`. Before the
//! first of them comes one about the server. All calls go through one
//! attachment, so that it can be watched while the daemon is restarted.
#![allow(clippy::print_stdout)]

use std::process::Stdio;

use anyhow::{Context, Result};
use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, JsonObject},
    service::{RunningService, ServiceError},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    process::Command,
};

/// A line of standard input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    #[serde(default)]
    arguments: JsonObject,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().context("usage: attach_and_call SERVER [ARGUMENT]...")?;
    let mut server = Command::new(&program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    let input = server.stdin.take().context("the server has no standard input")?;
    let output = server.stdout.take().context("the server has no standard output")?;
    let about = Implementation::new("attach_and_call", env!("CARGO_PKG_VERSION"));
    let client = ClientConfig::new(ClientCapabilities::default(), about);
    let client = client.serve((output, input)).await.context("the handshake failed")?;

    println!("{}", introduction(&client).await?);
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let call: Call = serde_json::from_str(&line).context("a line is not a call")?;
        println!("{}", answer(&client, call).await?);
    }
    // Closes the server's standard input, which is how it is told to end.
    client.cancel().await?;
    server.wait().await?;
    Ok(())
}

/// What the server says of itself.
async fn introduction(client: &RunningService<RoleClient, ClientConfig>) -> Result<Value> {
    let about = client.peer_info().context("the server did not introduce itself")?;
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
    Ok(json!({
        "server": about.server_info,
        "protocol": about.protocol_version,
        "tools": names,
    }))
}

/// One call. An error is an answer too; only a lost connection ends the program.
async fn answer(client: &RunningService<RoleClient, ClientConfig>, call: Call) -> Result<Value> {
    let request = CallToolRequestParams::new(call.tool).with_arguments(call.arguments);
    match client.call_tool(request).await {
        Ok(result) if result.is_error == Some(true) => {
            // The first block is for people; the same follows as JSON.
            let text = result.content.iter().find_map(|block| block.as_text());
            Ok(json!({ "error": text.map(|block| &block.text) }))
        }
        Ok(result) => Ok(json!({ "result": result.structured_content })),
        Err(ServiceError::McpError(error)) => Ok(json!({ "error": error.message })),
        Err(error) => Err(error.into()),
    }
}
