//! Files as a family: one service over the places of the configuration.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

use crate::{Options, codes, files::Files, places::Places, tools};

/// Family of the file tools that work in a session's place.
pub struct FilesFamily;

impl Family for FilesFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- fs.*, dir_* and file_* work in folders of the host that the operator opened as places; file_read, \
file_write and file_edit in a workspace where workspace_id names one.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("files", RestartPolicy::ENTITY);
        let files = Arc::new(Files::new(Places::new(&options, daemon.room.clone())));
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
