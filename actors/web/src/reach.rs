//! Network policy of a workspace as a bound of what is fetched for it.

use std::sync::Arc;

use hivekeep_kernel::{
    CallCx, Layer, ToolError, WorkspaceId,
    ports::{ReachRules, WorkspaceFiles},
};
use hivekeep_runtime::Ports;
use url::Url;

use crate::codes;

/// Servers that a fetch may reach, beside what the operator's rules say.
#[derive(Clone, Default)]
pub(crate) struct FetchReach(Option<WorkspaceReach>);

#[derive(Clone)]
struct WorkspaceReach {
    rules: Arc<dyn ReachRules>,
    id: WorkspaceId,
    name: String,
}

impl FetchReach {
    /// Reach of a workspace of the caller; of none, every server.
    ///
    /// # Errors
    /// `workspace_not_found`, `not_owner`.
    pub(crate) fn of(
        ports: &Ports,
        cx: &CallCx,
        workspace: Option<&str>,
    ) -> Result<Self, ToolError> {
        let Some(asked) = workspace else { return Ok(Self::default()) };
        let found = ports.need::<dyn WorkspaceFiles>()?.find(asked).ok_or_else(|| {
            let message = format!("there is no workspace `{asked:.80}`");
            ToolError::new(Layer::Resolve, codes::WORKSPACE_NOT_FOUND, message)
                .next("workspace_list shows those there are")
        })?;
        if found.owner != Some(cx.session) {
            return Err(ToolError::not_owner());
        }
        let rules = ports.need::<dyn ReachRules>()?;
        Ok(Self(Some(WorkspaceReach { rules, id: found.id, name: found.name })))
    }

    /// Workspace whose policy counts.
    pub(crate) fn workspace(&self) -> Option<WorkspaceId> {
        self.0.as_ref().map(|reach| reach.id)
    }

    /// Judges a URL by the policy in force now.
    ///
    /// # Errors
    /// `web_target_denied`.
    pub(crate) fn admit(&self, url: &Url) -> Result<(), ToolError> {
        let Some(WorkspaceReach { rules, id, name }) = &self.0 else { return Ok(()) };
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let port = url.port_or_known_default().unwrap_or_default();
        if rules.admits(*id, host, port) {
            return Ok(());
        }
        let message =
            format!("the network policy of `{name}` does not let it reach `{host}`:{port}");
        Err(ToolError::new(Layer::Policy, codes::WEB_TARGET_DENIED, message)
            .next("network_policy with `allow_internet` or an entry of `egress_allow` lets it"))
    }
}
