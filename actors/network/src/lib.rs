//! The network of the workspaces: who may speak to whom, enforced where packets pass.
//!
//! ```text
//!  the actor                    decides, pure                  acts
//!  Actor ── NetworkHandle ────► plan::NetworkPlan ── render ─► rules::Ruleset
//!    │                               │                            │
//!    └─ worker ── apply, check ──────┴───────────────────────────►│ Enforcer ── nft, rtnetlink ──► kernel
//!         │                                                       ▲
//!         └─ Permits ─► resolver::Resolver ── ResolvedAddresses ──┘ open_names
//!
//!  capability::detect: what this process can do         selftest::run: what this kernel keeps
//!  ports::PortReservation: the host's ends of forwards  capability::check: both, for people
//! ```
//! The [`NetworkActor`] implements the kernel's port `Network`. Its handlers change the
//! [`plan::NetworkPlan`], a value, and may refuse; what must outlive the daemon is a
//! [`plan::NetworkMember`], one stream of the journal each. A worker of its has the one [`Enforcer`] and brings
//! the kernel to the newest plan. [`Enforcer::ensure`] begins with what it finds, so that a start
//! after `kill -9` is the same call; [`Enforcer::apply`] leads to the same state by the
//! difference alone, as long as nobody else has touched a rule.
//!
//! At start: [`capability::detect`], then [`selftest::run`] beside everything else, unless its
//! outcome on this kernel is kept from a start before; what did not hold is refused when it is
//! asked for. `docs/decisions/0011-network.md` says why it is built so.
//!
//! IPv4 only. IPv6 is dropped at every port in both directions and switched off on the bridge.

mod actor;
mod apply;
pub mod capability;
pub mod codes;
mod error;
mod netns;
mod options;
pub mod plan;
pub mod ports;
pub mod resolver;
pub mod rules;
pub mod selftest;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, Layer, RestartPolicy, ToolError};
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

pub use actor::{Args, Msg, NetworkActor, NetworkHandle, open};
pub use apply::{
    AppliedPlan, Enforcer, ForeignChain, HostAccess, Owner, ResolvedAddresses, Uplinks, open_tap,
};
pub use error::Error;
pub use netns::Namespace;
pub use options::{NetworkModeChoice, Options};

/// The network as a family: no tools of its own, one actor, a port for the others.
pub struct NetworkFamily;

impl Family for NetworkFamily {
    type Options = Options;

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("network", RestartPolicy::ESSENTIAL);
        let (state, journal) = (daemon.folders.state.clone(), daemon.journal.clone());
        let opened = open(options, state, journal, address.clone(), daemon.ports.clone()).await;
        let (network, args) = opened.map_err(|error| impossible(&error))?;
        daemon.ports.offer::<dyn hivekeep_ports::Network>(Arc::new(network.clone()));
        daemon.ports.offer::<dyn hivekeep_ports::ReachRules>(Arc::new(network.clone()));
        // Machines that did not stop hold their cables, and keep it.
        Ok(Mounted::default()
            .child::<NetworkActor>(&address, args)
            .tear_down(|| async move { network.take_down().await }))
    }

    async fn check(options: &Options, host: &Host) -> Vec<Finding> {
        let needed = options.mode == NetworkModeChoice::Bridge;
        let found = capability::check(options, &host.folders.state).await;
        found.into_iter().map(|finding| finding.needed(needed)).collect()
    }
}

fn impossible(error: &Error) -> ToolError {
    let message = format!("network.mode is \"bridge\": {error}");
    ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
        .next("`hivekeep check` looks at what is missing")
}
