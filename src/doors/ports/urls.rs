//! URLs of ports, as the port of the kernel has them.

use async_trait::async_trait;
use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::{PortUrl, PortUrlWish, PortUrls};

use super::{
    host,
    public::PublicPorts,
    sign::{LinkKey, PortLink},
};

/// Name of a signed link's parameter.
pub(super) const TOKEN_PARAMETER: &str = "hivekeep_token";

/// Makes and recognises URLs.
pub(super) struct Urls {
    pub(super) scheme: &'static str,
    pub(super) domain: String,
    /// `:PORT`, or nothing where that is the scheme's own.
    port: String,
    pub(super) key: LinkKey,
    pub(super) public: PublicPorts,
}

impl Urls {
    pub(super) fn new(
        scheme: &'static str,
        domain: &str,
        port: u16,
        key: LinkKey,
        public: PublicPorts,
    ) -> Self {
        let port = match (scheme, port) {
            ("http", 80) | ("https", 443) => String::new(),
            _ => format!(":{port}"),
        };
        Self { scheme, domain: domain.to_owned(), port, key, public }
    }

    /// URL for a label's parts.
    pub(super) fn of(&self, name: &str, port: &str) -> String {
        format!("{}://{port}-{name}.{}{}/", self.scheme, self.domain, self.port)
    }

    fn of_workspace(&self, workspace: WorkspaceId, name: &str, port: u16) -> String {
        let digits = workspace.uuid().simple().to_string();
        let label = host::label(&port.to_string(), name, &digits);
        format!("{}://{label}.{}{}/", self.scheme, self.domain, self.port)
    }
}

#[async_trait]
impl PortUrls for Urls {
    async fn url(
        &self,
        workspace: WorkspaceId,
        name: &str,
        port: u16,
        wish: PortUrlWish,
    ) -> Result<PortUrl, ToolError> {
        if let Some(public) = wish.public {
            self.public.set(workspace, port, public).await?;
        }
        let url = self.of_workspace(workspace, name, port);
        let public = self.public.has(workspace, port);
        let secs = i64::try_from(wish.expires_secs).unwrap_or(i64::MAX);
        let far = || ToolError::invalid("`expires_secs` is beyond what a date can say");
        let expires_at =
            TimeDelta::try_seconds(secs).and_then(|it| Utc::now().checked_add_signed(it));
        let expires_at = expires_at.ok_or_else(far)?;
        let link = (!public).then(|| {
            let token = self.key.sign(PortLink::Link, workspace, port, expires_at);
            (format!("{url}?{TOKEN_PARAMETER}={token}"), expires_at)
        });
        Ok(PortUrl { url, public, link })
    }

    fn public(&self, workspace: WorkspaceId, name: &str) -> Vec<(u16, String)> {
        let ports = self.public.of(workspace).into_iter();
        ports.map(|port| (port, self.of_workspace(workspace, name, port))).collect()
    }
}
