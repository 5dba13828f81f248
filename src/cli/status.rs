//! `hivekeep status`.

use super::{Context, Failure, output};
use crate::doors::control::{Status, Wanted};

/// Show the running daemon in a few words.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 5 when no daemon runs.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let status: Status = context.client()?.get_as(Wanted::Status {})?;
    if args.json {
        return Ok(output::json(&status)?);
    }
    let troubled = match status.troubled.len() {
        0 => "all well".to_owned(),
        _ => format!("in trouble: {}", status.troubled.join(", ")),
    };
    let text = format!(
        "hivekeep {} (pid {}) serves since {}\n\
         memory      {}\n\
         actors      {} ({troubled})\n\
         tools       {}\n\
         clients     {}\n\
         socket      {}\n\
         MCP (HTTP)  {}\n\
         state       {}\n\
         log         {}\n",
        status.version,
        status.pid,
        output::age(status.uptime()),
        output::bytes(status.rss_bytes),
        status.actors,
        status.tools,
        status.connections,
        status.socket,
        status.mcp_http.as_deref().unwrap_or("off"),
        status.state_dir,
        status.log_file,
    );
    Ok(output::text(&text)?)
}
