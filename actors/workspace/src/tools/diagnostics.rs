//! Logs of a machine.

use hivekeep_kernel::tools;

use crate::{
    api::diagnostics::{LogTexts, WorkspaceLogs},
    workspace::{Workspace, describe},
};

tools! { pub FAMILY: "diagnostics" for Workspace, addressed workspace by workspace_id;
    workspace_logs: WorkspaceLogs => LogTexts = describe::logs {
        title: "Read a workspace's logs", effect: Read,
    };
}
