//! MCP clients under supervision: tools of other servers, published beside the daemon's own.
//!
//! ```text
//!  catalogue ◀─ publish ─ source ◀─ up, down ─ connection loop ─ stdio (a sandbox) ─▶ server
//!                            │                                 └ streamable HTTP ───▶ server
//!  registry ── call ──▶ source ── worker: tools/call ──────────────────────────────────▲
//! ```
//! A source is an actor per server. Its loop connects, lists the tools, asks whether the server lives,
//! and begins again with growing pauses; what was listed last is in the journal and stays listed
//! meanwhile. A server is not trusted: names, sizes and numbers of what it declares are bounded, what it
//! says of a tool's effect counts only where the operator says so, and a tool that is not valid is left
//! out with its reason while the others stay.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod connect;
mod declare;
mod http;
mod link;
mod list;
mod options;
mod source;
mod stdio;
mod tools;

use std::{path::Path, sync::Arc};

use hivekeep_kernel::{Address, ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_ports::ToolPublisher;
use hivekeep_runtime::{
    Daemon, Family, Finding, Host, Mounted,
    host_process::HostUsers,
    log::{Log, stream},
};

use declare::Declarations;
use link::SourceShared;
use list::LastList;
use tools::{Args, PATH, Sources};

pub use options::{Options, SandboxKind, ServerName, ServerOptions};

/// Program that makes the namespaces of servers.
const BWRAP: &str = "bwrap";

/// Family of the other MCP servers. Needs the daemon's port [`ToolPublisher`].
pub struct SourceFamily;

impl Family for SourceFamily {
    type Options = Options;

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("sources", RestartPolicy::ENTITY);
        let (mut mounted, mut sources) = (Mounted::default(), Vec::new());
        for (name, server) in options.servers.into_iter().filter(|(_, server)| server.enabled) {
            let (path, policy) = (format!("{PATH}/{name}"), RestartPolicy::ENTITY);
            let place =
                Address::<source::Msg>::vacant(daemon.census.probe(&path, "source", policy));
            let route = format!("source/{name}");
            let shared = shared(daemon, name, server, &route).await?;
            mounted.singletons.push((route, Arc::new(place.clone())));
            sources.push((Arc::new(shared), place));
        }
        let args = Args { census: daemon.census.clone(), sources };
        Ok(mounted.serving::<Sources>(&address, args))
    }

    async fn check(options: &Options, _: &Host) -> Vec<Finding> {
        let stdio = options.servers.iter().filter(|(_, server)| server.url.is_none());
        let stdio: Vec<_> = stdio.filter(|(_, server)| server.enabled).collect();
        let mut found = Vec::new();
        if stdio.iter().any(|(_, server)| server.sandbox != SandboxKind::None) {
            let what = "sandbox of sources";
            found.push(match is_program(BWRAP) {
                true => Finding::good(what, "bubblewrap"),
                false => Finding::bad(what, format!("there is no program {BWRAP}"), "")
                    .package(Some("bubblewrap"))
                    .optional(),
            });
        }
        for (name, server) in stdio {
            let what = format!("source {name}");
            let program = server.command.first().map(String::as_str).unwrap_or_default();
            found.push(match is_program(program) {
                false => {
                    let detail = format!("there is no program {program}");
                    let remedy = format!("install it, or mend `source.servers.{name}.command`");
                    Finding::bad(what, detail, remedy).optional()
                }
                true => Finding::good(what, format!("runs `{program}`")),
            });
        }
        found
    }
}

/// True for a file by its path, and for a name that one of the folders in `PATH` has.
fn is_program(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let named = || std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if program.contains('/') { Path::new(program).is_file() } else { named() }
}

async fn shared(
    daemon: &Daemon,
    name: ServerName,
    server: ServerOptions,
    route: &str,
) -> Result<SourceShared, ToolError> {
    let place =
        stream::<LastList>(&name).map_err(|error| ToolError::internal(error.to_string()))?;
    let log = Log::open(daemon.journal.clone(), place).await?;
    let publisher = daemon.ports.need::<dyn ToolPublisher>()?;
    let declarations = Declarations::new(&name, route);
    let services = (daemon.folders.clone(), HostUsers::of(daemon), daemon.redact.clone());
    Ok(SourceShared::new((name, server), declarations, services, log, publisher))
}

#[cfg(test)]
mod tests;
