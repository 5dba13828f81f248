//! Vault family: one actor, one tool, and a port for other families.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

use crate::{Error, Options, VaultActor, codes, folder, open, tools};

/// Family that offers [`hivekeep_ports::Vault`], and the notes as documents.
pub struct VaultFamily;

impl Family for VaultFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- vault keeps Markdown notes on the host that outlive every workspace and session. Notes are \
also resources, as vault:///path/to/note.md.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::catalogue()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        // Notes can wait; workspaces cannot. After too many restarts the vault stays down and its
        // tool says so.
        let address = daemon.address("vault", RestartPolicy::ENTITY);
        let (state, room) = (&daemon.folders.state, daemon.room.clone());
        let (vault, seed) = open(options, state, room, address.clone());
        daemon.ports.offer::<dyn hivekeep_ports::Vault>(Arc::new(vault.clone()));
        Ok(Mounted::default()
            .serving::<VaultActor>(&address, seed)
            .documents(Arc::new(vault.clone()))
            .names(Arc::new(vault)))
    }

    async fn check(options: &Options, host: &Host) -> Vec<Finding> {
        let path = options.folder(&host.folders.state);
        let space =
            path.exists().then(|| Finding::space("vault folder", &path, &host.room).optional());
        let folder = match folder::look(options, &path) {
            Ok(detail) => Finding::good("vault", detail),
            Err(Error::Disabled) => Finding::good("vault", "off, by vault.enabled"),
            Err(error) => Finding::bad(
                "vault",
                error.to_string(),
                "make the folder readable and writable for the daemon, or set vault.path",
            ),
        };
        space.into_iter().chain([folder.optional()]).collect()
    }
}
