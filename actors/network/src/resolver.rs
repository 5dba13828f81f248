//! DNS forwarder for guests, on the gateway's address.
//!
//! ```text
//! guest ─ query ─► who asks? ─► how often? ─► may it? ─► upstream ─► open what it may reach ─► answer
//!                  its address   its bucket    its list               (before it is told)
//! ```
//! A member with `allow_internet` may ask for any name. Any other may ask for the names of its
//! allow-list only, so that names are no way out for what may not leave. What an allowed name
//! resolves to is put into the member's set in the kernel for as long as the answer lives, and a
//! little longer; if that fails, so does the answer.
//!
//! A guest can keep the forwarder busy only with its own bucket and its own few places. Queries
//! beyond that are not answered, and resolvers in guests ask again.

mod query;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use hivekeep_kernel::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use query::from_resolv_conf;
pub use serve::Resolver;

use crate::plan::{Destination, HostName, NetworkPlan, Subnet};
use crate::rules::name_set;
use crate::{Error, ResolvedAddresses};

/// Opens addresses in the kernel. Implemented by the owner of the [`crate::Enforcer`].
#[async_trait]
pub trait AddressOpener: Send + Sync + 'static {
    /// Returns once the addresses can be reached.
    async fn open(&self, openings: Vec<ResolvedAddresses>) -> Result<(), Error>;
}

/// Limits of the answers to guests.
#[derive(Debug, Clone)]
pub struct ResolverLimits {
    /// Queries of one guest in the long run.
    pub per_guest_per_sec: u32,
    /// Queries of one guest at once after a pause.
    pub burst: u32,
    /// Queries of one guest that wait for an answer.
    pub in_flight_per_guest: usize,
    /// Queries of all guests that wait for an answer, and TCP connections.
    pub in_flight: usize,
}

impl Default for ResolverLimits {
    fn default() -> Self {
        Self { per_guest_per_sec: 50, burst: 200, in_flight_per_guest: 32, in_flight: 512 }
    }
}

/// Token buckets, limits on the rate of queries and on the open ones: one for each guest that asked. Only members get one, so there are never more than
/// members; buckets of members that left are dropped when permits change.
#[derive(Debug)]
struct Buckets {
    limits: ResolverLimits,
    all: Arc<Semaphore>,
    guests: Mutex<HashMap<Ipv4Addr, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    open: Arc<Semaphore>,
}

/// A question's place among the open ones; given back when dropped.
#[derive(Debug)]
struct Place {
    _places: [OwnedSemaphorePermit; 2],
}

impl Buckets {
    fn new(limits: ResolverLimits) -> Self {
        let all = Arc::new(Semaphore::new(limits.in_flight));
        Self { limits, all, guests: Mutex::default() }
    }

    /// Takes a token and a place, if there are any.
    fn admit(&self, guest: Ipv4Addr, now: Instant) -> Option<Place> {
        let mut guests = lock(&self.guests);
        let full = f64::from(self.limits.burst);
        let bucket = guests.entry(guest).or_insert_with(|| Bucket {
            tokens: full,
            filled: now,
            open: Arc::new(Semaphore::new(self.limits.in_flight_per_guest)),
        });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        let gained = passed * f64::from(self.limits.per_guest_per_sec);
        bucket.tokens = (bucket.tokens + gained).min(full);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return None;
        }
        let own = bucket.open.clone().try_acquire_owned().ok()?;
        let common = self.all.clone().try_acquire_owned().ok()?;
        bucket.tokens -= 1.0;
        Some(Place { _places: [own, common] })
    }

    /// Forgets guests that are members no more.
    fn retain(&self, is_member: impl Fn(&Ipv4Addr) -> bool) {
        let mut guests = lock(&self.guests);
        guests.retain(|guest, _| is_member(guest));
    }
}

/// Names that one member may ask for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Permit {
    /// True if it may ask for any name, as with `allow_internet`.
    pub(crate) any: bool,
    /// These, with the set that opens what they resolve to.
    pub(crate) names: Vec<(HostName, String)>,
}

/// Permits of all guests. Rendered from a plan like the rules, and exchanged as a whole.
#[derive(Debug, Clone)]
pub struct Permits {
    pub(crate) subnet: Subnet,
    pub(crate) guests: HashMap<Ipv4Addr, Permit>,
}

impl Permits {
    /// The permits of a plan. To be put in force after the rules are.
    pub fn of(network: &NetworkPlan) -> Self {
        let permit = |(id, member): (_, &crate::plan::NetworkMember)| {
            let names = member.policy.names().filter_map(|egress| match &egress.to {
                Destination::Name(name) => Some((name.clone(), name_set(id, egress))),
                Destination::Block(_) => None,
            });
            let any = member.policy.allow_internet;
            (member.lease.address, Permit { any, names: names.collect() })
        };
        Self { subnet: network.subnet(), guests: network.members().map(permit).collect() }
    }
}

/// Changes what a running [`Resolver`] permits.
#[derive(Debug, Clone)]
pub struct ResolverControl(Arc<ArcSwap<Permits>>);

impl ResolverControl {
    /// Queries that come from now on are judged by these.
    pub fn permit(&self, permits: Permits) {
        self.0.store(Arc::new(permits));
    }
}

/// Settings of a [`Resolver`].
pub struct ResolverSettings {
    /// The gateway's address and port 53.
    pub listen: std::net::SocketAddrV4,
    /// Asked in this order until one answers.
    pub upstreams: Vec<SocketAddr>,
    /// Limits of each guest's queries and of all guests' together.
    pub limits: ResolverLimits,
    /// The first permits.
    pub permits: Permits,
    /// The way in which answers take effect.
    pub opens: Arc<dyn AddressOpener>,
    /// `SO_MARK` of its sockets, [`crate::rules::NAMES_MARK`] wherever rules ask for it.
    pub mark: Option<u32>,
}
