//! Git family: options of the git tools, which workspaces serve.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, ToolError};
use hivekeep_runtime::{Daemon, Family, Mounted};

use crate::GitOptions;
use crate::codes;

/// Family without an actor that offers [`GitOptions`] to the crate that serves the tools.
pub struct GitFamily;

impl Family for GitFamily {
    type Options = GitOptions;

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: GitOptions) -> Result<Mounted, ToolError> {
        daemon.ports.offer(Arc::new(options));
        Ok(Mounted::default())
    }
}
