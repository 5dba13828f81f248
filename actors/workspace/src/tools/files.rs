//! Files of one workspace.

use hivekeep_kernel::tools;

use crate::{
    api::files::{
        FileContent, FileEdit, FileEdited, FileList, FileListed, FileRead, FileTransfer,
        FileTransferred, FileWrite, FileWritten,
    },
    workspace::Workspace,
};

tools! { pub FAMILY: "file operations" for Workspace, addressed workspace by workspace_id;
    file_write: FileWrite => FileWritten = Workspace::file_write {
        title: "Write a file", effect: Idempotent, timeout_secs: 120,
    };
    file_read: FileRead => FileContent = Workspace::file_read {
        title: "Read a file", effect: Read, timeout_secs: 120, result_budget_bytes: 40 * 1024 * 1024,
    };
    file_edit: FileEdit => FileEdited = Workspace::file_edit { title: "Edit a file" };
    file_list: FileList => FileListed = Workspace::file_list {
        title: "List a directory", effect: Read,
    };
    file_transfer: FileTransfer => FileTransferred = Workspace::file_transfer {
        title: "Transfer a file", risk: Risk::Medium, open_world: true, timeout_secs: 3600,
    };
}
