//! Commands and processes in the place of a session.
//!
//! A service without state of its own: the port `Places` says which workspace a call works in, the port
//! `CommandRunner` runs programs there by the workspace's own execution and jobs. What is judged here is what
//! may be run, by an allow list over the parsed command line.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod commands;
mod interpreter;
mod options;
mod programs;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Mounted};

use commands::CommandService;
pub use options::Options;

/// Family of the tools that run commands in a place; one actor below the root. Needs the port of
/// commands when it is mounted, and that of places when it is called.
pub struct CommandFamily;

impl Family for CommandFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- cmd.run runs one program in your place, bash a line of shell; process_start starts something that \
goes on, which process_input writes to, process_output reads and process_stop ends. run_code runs Python whose \
variables stay for the next call.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("commands", RestartPolicy::ENTITY);
        let service = Arc::new(CommandService::new(daemon, options)?);
        Ok(Mounted::default().serving::<ServiceActor<CommandService>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
