//! Files of one workspace.

use hivekeep_kernel::tools;

use crate::{
    api::files::{FileList, FileListed, FileTransfer, FileTransferred},
    workspace::{Workspace, files, transfer},
};

tools! { pub FAMILY: "file operations" for Workspace, addressed workspace by workspace_id;
    file_list: FileList => FileListed = files::file_list {
        title: "List a directory", effect: Read, rate: RateClass::File,
    };
    file_transfer: FileTransfer => FileTransferred = transfer::file_transfer {
        title: "Transfer a file", risk: Risk::Medium, open_world: true, timeout_secs: 3600,
    };
}
