//! A workspace's git, and its logins to servers.

use hivekeep_git::{CallCredential, Git, GitOptions, GitUrl, Login};
use hivekeep_kernel::{CallCx, ToolError};

use super::{Workspace, user::other_than_root};

impl Workspace {
    /// The guest's git in a folder, once there is a link, as the owner of the repository there.
    ///
    /// # Errors
    /// When the workspace does not run.
    pub(crate) fn git(
        &self,
        cx: &CallCx,
        dir: String,
    ) -> Result<impl Future<Output = Result<Git, ToolError>> + Send + use<>, ToolError> {
        let env = self.environment(cx.trace.as_ref(), Default::default())?;
        let link = self.guest(cx)?;
        let ca_file = self.handle.shared.git.ca_file.clone();
        Ok(async move { Ok(Git::new(link.await?, dir, env).trusting(ca_file)) })
    }

    /// User that a clone is made by, as [`other_than_root`] says.
    ///
    /// # Errors
    /// Those of [`other_than_root`].
    pub(crate) fn user(&self, asked: Option<String>) -> Result<Option<String>, ToolError> {
        other_than_root(&self.ledger, asked)
    }

    /// Git options that the operator configured.
    pub(crate) fn git_options(&self) -> GitOptions {
        self.handle.shared.git.clone()
    }

    /// Login for an address: from the call, else from the address, else from the configuration.
    ///
    /// # Errors
    /// `invalid_input` for an invalid credential, or one that no server would ask for.
    pub(crate) fn login_for(
        &self,
        url: &GitUrl,
        given: Option<&CallCredential>,
    ) -> Result<Option<Login>, ToolError> {
        self.handle.shared.git.login_for(url, given)
    }
}
