//! Git family: options of the git tools, which workspaces serve.

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, ToolError, ports::GitCredentials};
use hivekeep_runtime::{Daemon, Family, Mounted};

use crate::GitOptions;
use crate::codes;

/// Family without an actor that offers [`GitOptions`], and [`GitCredentials`], to the crate that serves the tools.
pub struct GitFamily;

impl Family for GitFamily {
    type Options = GitOptions;

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: GitOptions) -> Result<Mounted, ToolError> {
        let options = Arc::new(options);
        daemon.ports.offer::<dyn GitCredentials>(options.clone());
        daemon.ports.offer(options);
        Ok(Mounted::default())
    }
}
