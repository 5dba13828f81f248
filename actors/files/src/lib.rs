//! File tools over capability handles: every path is resolved beneath the handle of a place, a folder
//! that the operator opened to sessions.
//!
//! ```text
//!  fs.read … patch ─► Files (a service) ─► PlaceTable ─► FilePlace ─┬─ HostFolder: engine on a thread
//!                                          by name                 ├─ WorkspacePlace: engine in the guest
//!                                                                  └─ VolumePlace: engine on its mount
//! ```
//! What is done to files is the file engine's (`hivekeep_file_engine`): no path and no link leads out of a
//! place, and a write is there whole or not at all, and on the disk when it is answered. A place is a folder
//! that the operator opened, a workspace of the session's, the one of its own that is made when a call
//! needs it, or a volume of its user's.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod options;
mod place;
mod place_kinds;
mod place_table;
mod session_workspace;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::{PlaceFiles, PlaceFolders, Places, VolumeFiles, WorkspaceFiles};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted, ToolClient};

pub use options::{Options, PlaceOptions, SessionIsolation, SessionWorkspaceOptions};

use crate::{
    place_table::{PlaceTable, PlacesHandle},
    session_workspace::SessionWorkspaces,
    tools::Files,
};

/// Family of the file tools that work in a session's place. Needs [`WorkspaceFiles`], uses [`VolumeFiles`] and
/// [`hivekeep_ports::OwnWorkspaces`];
/// offers [`Places`], [`PlaceFolders`] and [`PlaceFiles`].
pub struct FilesFamily;

impl Family for FilesFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- fs.*, dir_*, file_*, read and patch work in a place: a workspace of the session's own that is made when it \
is needed, another of its workspaces by id or name, `volume:LABEL` for a volume, or a folder of the host that the operator \
opened. Results name it.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("files", RestartPolicy::ENTITY);
        let own = SessionWorkspaces {
            files: daemon.ports.need::<dyn WorkspaceFiles>()?,
            tools: ToolClient::new(daemon.tools.clone()),
            options: options.workspace.clone(),
            ports: daemon.ports.clone(),
        };
        let volumes = daemon.ports.find::<dyn VolumeFiles>();
        let places = Arc::new(PlaceTable::new(&options, &daemon.room, own, volumes));
        daemon.ports.offer::<dyn Places>(Arc::new(PlacesHandle(places.clone())));
        daemon.ports.offer::<dyn PlaceFolders>(Arc::new(PlacesHandle(places.clone())));
        daemon.ports.offer::<dyn PlaceFiles>(Arc::new(PlacesHandle(places.clone())));
        let files = Arc::new(Files::new(places, options.dag_folder, daemon.ports.clone()));
        Ok(Mounted::default().serving::<ServiceActor<Files>>(&address, files))
    }

    async fn check(options: &Options, _: &Host) -> Vec<Finding> {
        let each = options.places.iter().map(|(name, place)| {
            let what = format!("place {name}");
            let folder = place.folder.display();
            match std::fs::read_dir(&place.folder) {
                Ok(_) => Finding::good(what, folder.to_string()),
                Err(error) => Finding::bad(
                    what,
                    format!("{folder}: {error}"),
                    "make the folder, readable for the daemon, or mend `session.places`",
                )
                .optional(),
            }
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests;
