//! Files of one workspace.

use hivekeep_kernel::{Addressing, tools};

use crate::{
    api::files::{
        FileContent, FileEdit, FileEdited, FileList, FileListed, FileRead, FileTransfer,
        FileTransferred, FileWrite, FileWritten,
    },
    workspace::Workspace,
};

/// A workspace, or the session's place where none is named.
const WORKSPACE_OR_PLACE: Addressing =
    Addressing::Field { kind: "workspace", field: "workspace_id", otherwise: Some("files") };

tools! { pub FAMILY: "file operations" for Workspace, addressed workspace by workspace_id;
    file_write: FileWrite => FileWritten = Workspace::file_write {
        title: "Write a file", effect: Idempotent, timeout_secs: 120,
        addressing: WORKSPACE_OR_PLACE, rate: RateClass::File,
    };
    file_read: FileRead => FileContent = Workspace::file_read {
        title: "Read a file", effect: Read, timeout_secs: 120, result_budget_bytes: 40 * 1024 * 1024,
        addressing: WORKSPACE_OR_PLACE, rate: RateClass::File,
    };
    file_edit: FileEdit => FileEdited = Workspace::file_edit {
        title: "Edit a file", addressing: WORKSPACE_OR_PLACE, rate: RateClass::File,
    };
    file_list: FileList => FileListed = Workspace::file_list {
        title: "List a directory", effect: Read, rate: RateClass::File,
    };
    file_transfer: FileTransfer => FileTransferred = Workspace::file_transfer {
        title: "Transfer a file", risk: Risk::Medium, open_world: true, timeout_secs: 3600,
    };
}
