//! `hivekeep status`.

use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::doors::control::{ControlMethod, DaemonStatus};

/// Show the running daemon in a few words.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 5 when no daemon runs.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let status: DaemonStatus = context.client()?.get_as(ControlMethod::Status {})?;
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
         HTTP API    {}\n\
         E2B         {}\n\
         port URLs   {}\n\
         state       {}\n\
         journal     {}\n\
         events      {}\n\
         log         {} ({} of at most {})\n",
        status.version,
        status.pid,
        output::age(status.uptime()),
        output::bytes(status.rss_bytes),
        status.actors,
        status.tools,
        status.connections,
        status.socket,
        status.mcp_http.as_deref().unwrap_or("off"),
        status.http_api.as_deref().unwrap_or("off"),
        status.e2b.as_deref().unwrap_or("off"),
        status.port_urls.as_deref().unwrap_or("off"),
        status.state_dir,
        journal(&status.journal),
        events(&status.journal),
        status.log_file,
        output::bytes(status.logs.bytes),
        output::bytes(status.logs.most_bytes),
    );
    Ok(output::text(&text)?)
}

/// `3.1 MiB live, 9.4 MiB dead, 812 streams; compacted 2 times, last at ... from ... to ...`.
fn journal(journal: &Value) -> String {
    let size = |part: &Value, name: &str| output::bytes(part[name].as_u64().unwrap_or_default());
    let mut text = format!(
        "{} live, {} dead, {} streams",
        size(journal, "live_bytes"),
        size(journal, "dead_bytes"),
        journal["streams"]
    );
    if let (Some(at), last) = (journal["compacted"]["at"].as_str(), &journal["compacted"]) {
        let (before, after) = (size(last, "before_bytes"), size(last, "after_bytes"));
        text += &format!("; compacted at {at} from {before} to {after}");
    }
    if journal["compacting"] == true {
        text += "; being compacted";
    }
    if let Some(why) = journal["compaction_given_up"].as_str() {
        text += &format!("; not compacted: {why}");
    }
    text
}

fn events(journal: &Value) -> String {
    let number = |name: &str| journal[name].as_u64().unwrap_or_default();
    let kept = (number("last_event") + 1).saturating_sub(number("oldest_event"));
    format!(
        "{kept} kept of at most {}, {} since the first",
        number("events_kept"),
        number("last_event")
    )
}
