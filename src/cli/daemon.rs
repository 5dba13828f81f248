//! `hivekeep daemon`, `status` and `stop`.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CliContext, CommandFailure, client::Client, output, reach::Unreachable};
use crate::{
    control::{ControlMethod, DaemonStatus},
    daemon::{self, StopMode},
};

/// Run the daemon in the foreground.
///
/// One daemon runs per run directory. SIGTERM and SIGINT stop it in order and
/// leave workspaces running; a second signal ends it at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep daemon
  hivekeep daemon --set daemon.log_level=debug
  systemctl start hivekeep          # with docs/hivekeep.service

Exit codes: 0 stopped in order, 2 configuration refused, 3 state unreadable
(nothing was changed), 4 another daemon runs, 1 anything else.")]
pub struct Args {
    /// Stop the workspaces when the daemon stops.
    #[arg(long)]
    stop_workspaces: bool,
    /// Lead a session of its own, apart from the terminal; used by `hivekeep mcp`.
    #[arg(long, hide = true)]
    detached: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    if args.detached {
        // Fails only for a process that leads one already.
        let _leader_already = rustix::process::setsid();
    }
    let mut loaded = context.load()?;
    if args.stop_workspaces {
        loaded.config.daemon.stop_workspaces = true;
    }
    let stopping = match loaded.config.daemon.stop_workspaces {
        true => StopMode::WithWorkspaces,
        false => StopMode::LeaveWorkspaces,
    };
    Ok(daemon::run(loaded, stopping)?)
}

/// Show the running daemon in a few words.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 5 when no daemon runs.")]
pub struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn status(context: &CliContext, args: StatusArgs) -> Result<(), CommandFailure> {
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

/// Stop the daemon in order; workspaces are left running.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep stop                     # workspaces go on, and are taken up again
  hivekeep stop --stop-workspaces")]
pub struct StopArgs {
    /// Stop the workspaces too.
    #[arg(long)]
    stop_workspaces: bool,
    /// How long to wait for the daemon's end, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    wait_secs: u64,
}

pub(super) fn stop(context: &CliContext, args: StopArgs) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let mut client = match Client::connect(&context.reach(&loaded)) {
        Ok(client) => client,
        Err(Unreachable::NotRunning(_)) => {
            eprintln!("hivekeep: no daemon runs");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    client.get(ControlMethod::Stop { workspaces: args.stop_workspaces.then_some(true) })?;
    let pid = client.pid.unwrap_or_default();
    // The lock is let go of by the kernel at the very end of the process.
    let (lock, until) =
        (loaded.folders.lock_file(), Instant::now() + Duration::from_secs(args.wait_secs));
    while is_held(&lock) {
        if Instant::now() >= until {
            return Err(CommandFailure::Other(format!(
                "the daemon (pid {pid}) is still stopping after {} s; see `hivekeep logs`",
                args.wait_secs
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_held(lock: &std::path::Path) -> bool {
    let Ok(file) = std::fs::File::open(lock) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}
