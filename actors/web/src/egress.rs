//! Egress: which URLs and addresses a session may reach through the host, by the operator's rules and by the
//! network policy of a workspace. Connections are made to addresses that the policy has seen, and to no others
//! that the name may have a moment later.

use std::{
    error::Error,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use hivekeep_kernel::{CallCx, Layer, ToolError, WorkspaceId};
use hivekeep_ports::{ReachRules, WorkspaceFiles};
use hivekeep_runtime::{
    Ports,
    egress::{EgressLists, EgressRefusal, EgressRules},
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use url::Url;

use crate::{Options, codes};

pub(crate) use hivekeep_runtime::egress::MAX_URL_BYTES;

/// The shared filter with the codes of this family.
#[derive(Debug, Default)]
pub(crate) struct EgressPolicy(EgressRules);

impl EgressPolicy {
    /// Parses the rules.
    ///
    /// # Errors
    /// Keys of the section with reasons.
    pub(crate) fn new(options: &Options) -> Result<Self, Vec<(&'static str, String)>> {
        let lists = EgressLists {
            allow_domains: &options.allow_domains,
            deny_domains: &options.deny_domains,
            allow_networks: &options.allow_networks,
            ports: &options.ports,
        };
        EgressRules::new(lists).map(Self)
    }

    /// Judges a URL before it is requested. An address that a name stands for is judged when it is
    /// resolved ([`Self::allows`]).
    ///
    /// # Errors
    /// `web_url_refused`, `web_target_denied`, `web_address_refused`.
    pub(crate) fn admit(&self, url: &Url) -> Result<(), ToolError> {
        self.0.admit(url).map_err(|refusal| match refusal {
            EgressRefusal::Url(why) => ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, why)
                .next("give an http or https URL without user and password"),
            EgressRefusal::Target(why) => {
                ToolError::new(Layer::Policy, codes::WEB_TARGET_DENIED, why)
                    .next("use another source, or ask the operator")
            }
            EgressRefusal::Address(host) => address_refused(&host),
        })
    }

    /// True if a connection may be made to an address that `name` stands for.
    pub(crate) fn allows(&self, name: &str, address: IpAddr) -> bool {
        self.0.allows(name, address)
    }
}

/// The refusal of a host by its address.
pub(crate) fn address_refused(host: &str) -> ToolError {
    let why = EgressRefusal::Address(host.to_owned()).to_string();
    ToolError::new(Layer::Policy, codes::WEB_ADDRESS_REFUSED, why)
        .next("fetch a public address, or ask the operator for `web.allow_networks`")
}

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

/// Look-ups of the system that run at a time. One cannot be cut short, so its permit stays with it.
const MOST_LOOKUPS: usize = 16;

/// A host has no address that may be connected to.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` has no address that may be connected to")]
pub(crate) struct NoAllowedAddress(pub(crate) String);

/// The resolver of the host's C library, which knows `/etc/hosts`.
#[derive(Debug)]
pub(crate) struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_LOOKUPS)))
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let permits = self.0.clone();
        Box::pin(async move {
            let permit = permits.acquire_owned().await?;
            let found = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs()
            });
            Ok(Box::new(found.await??) as Addrs)
        })
    }
}

/// Resolver that hands on only addresses that the policy allows.
pub(crate) struct CheckedResolver {
    pub(crate) inner: Arc<dyn Resolve>,
    pub(crate) policy: Arc<EgressPolicy>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, policy) = (name.as_str().to_owned(), self.policy.clone());
        let found = self.inner.resolve(name);
        Box::pin(async move {
            let allowed: Vec<SocketAddr> =
                found.await?.filter(|address| policy.allows(&host, address.ip())).collect();
            if allowed.is_empty() {
                return Err(NoAllowedAddress(host).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// The first cause of a kind in an error's chain, also inside errors of input and output.
pub(crate) fn cause<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        let inner = error.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
