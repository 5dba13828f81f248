//! The HTTP door over tools that exist only to be tested: the official
//! conformance suite calls tools by fixed names.
//!
//! Everything between the wire and the tools is the daemon's own: the door with
//! its bearer token, Host and Origin checks, the MCP handler, sessions,
//! dispatcher, registry. Only the family of tools is another. Prints one line,
//! `{"url": ..., "token_file": ...}`, and serves until its standard input ends.
//!
//! ```text
//! cargo run --example conformance_server
//! ```
#![allow(clippy::print_stdout)]

mod content;
mod fixtures;
mod questions;
mod resources;
mod slow;
mod stage;

use std::io::Read;

use anyhow::Result;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<()> {
    let home = tempfile::tempdir()?;
    let stage = stage::Stage::new(home.path()).await?;
    let end = CancellationToken::new();
    let door = hivekeep_door_mcp::http::open(stage.core.clone(), end.clone()).await?;
    let about = serde_json::json!({
        "url": door.url,
        "token_file": stage.core.folders.token_file,
    });
    println!("{about}");
    std::thread::spawn(move || {
        // The end of input, or an input that cannot be read, are both the end.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        end.cancel();
    });
    door.serve().await;
    stage.end().await;
    Ok(())
}
