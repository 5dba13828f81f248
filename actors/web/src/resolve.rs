//! Checked name resolution: connections are made to addresses that the policy has seen, and to no
//! others that the name may have a moment later.

use std::{
    error::Error,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::policy::EgressPolicy;

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
