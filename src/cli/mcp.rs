//! `hivekeep mcp`: an MCP server on standard input and output, which is a pump
//! to the daemon's socket.

mod link;
mod memory;
mod pump;

use std::{fs::File, io, os::fd::AsFd, time::Duration};

use hivekeep_door_server::hello::ToolNames;
use hivekeep_kernel::SessionId;

use super::{CliContext, CommandFailure};

/// Attach an MCP client over standard input and output.
///
/// Starts the daemon if none runs. Nothing but MCP is written to standard
/// output. When the daemon restarts, the attachment and its session go on.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep mcp
  hivekeep mcp --toolset execution,files --tool-names underscored
  hivekeep mcp --toolset auto,web    # few tools at first, more when they are loaded
  hivekeep mcp --no-spawn            # under systemd: fail if the daemon is down")]
pub struct Args {
    /// Show only these families of tools (see `hivekeep tools`). With `auto` all can be called, and few
    /// are listed at first: enough for a day's work, those to find and load others, and the families
    /// named beside it.
    #[arg(long, value_delimiter = ',', value_name = "FAMILY")]
    toolset: Option<Vec<String>>,
    /// The form in which tool names are listed; both forms can be called.
    #[arg(long, value_enum, default_value_t)]
    tool_names: ToolNames,
    /// List output schemas too, for a client that checks results or makes code of them.
    #[arg(long)]
    output_schemas: bool,
    /// Go on with this session, and own its workspaces.
    #[arg(long, value_name = "SESSION")]
    resume: Option<SessionId>,
    /// Fail when no daemon runs, instead of starting one.
    #[arg(long)]
    no_spawn: bool,
    /// How long a starting daemon may take, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    start_secs: u64,
    /// How long a waiting client waits for a daemon that was lost, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    reconnect_secs: u64,
    /// How long answers are waited for after the end of the input, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECS")]
    drain_secs: u64,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let loaded = context.load()?;
    let terms = pump::Terms {
        toolset: args.toolset,
        tool_names: args.tool_names,
        output_schemas: args.output_schemas,
        resume: args.resume,
        spawn: !args.no_spawn,
        start_patience: Duration::from_secs(args.start_secs),
        reconnect_patience: Duration::from_secs(args.reconnect_secs),
        drain_patience: Duration::from_secs(args.drain_secs),
        max_line_bytes: loaded.config.daemon.max_message_bytes(),
    };
    let (input, output) = take_stdio()?;
    pump::run(context.reach(&loaded), terms, input, output)?;
    Ok(())
}

/// Size that an unprivileged process may give a pipe (`/proc/sys/fs/pipe-max-size`).
const OUTPUT_PIPE_BYTES: usize = 1024 * 1024;

/// Standard input and output, unbuffered: the pump writes whole lines at once.
/// What anything else prints goes to standard error from here on.
pub(super) fn take_stdio() -> io::Result<(File, File)> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    // A large answer goes in fewer turns. What is no pipe, or may not be larger, stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&output, OUTPUT_PIPE_BYTES);
    Ok((input, output))
}
