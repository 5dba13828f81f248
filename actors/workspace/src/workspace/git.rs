//! A workspace's git, and who one is when a server asks it.

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

    /// Whom a clone is made by, as [`other_than_root`] says.
    ///
    /// # Errors
    /// As [`other_than_root`].
    pub(crate) fn user(&self, asked: Option<String>) -> Result<Option<String>, ToolError> {
        other_than_root(&self.ledger, asked)
    }

    /// What the operator configured.
    pub(crate) fn git_options(&self) -> GitOptions {
        self.handle.shared.git.clone()
    }

    /// What a call says, before what the address says, before what is configured.
    ///
    /// # Errors
    /// `invalid_input` for a credential that nobody would ask for, or that is none.
    pub(crate) fn login_for(
        &self,
        url: &GitUrl,
        given: Option<&CallCredential>,
    ) -> Result<Option<Login>, ToolError> {
        self.handle.shared.git.login_for(url, given)
    }
}
