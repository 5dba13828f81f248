//! The network of the workspaces: who may speak to whom, enforced where packets pass.
//!
//! ```text
//!  decides, pure             acts                          serves
//!  plan::Network ── render ─► rules::Ruleset
//!       │                        │
//!       ├──────── ensure ───────►│ Enforcer ── nft, rtnetlink ──► kernel
//!       │                        ▲
//!       └─ Permits ─► resolver::Resolver ── Opening ─► Opens (the owner) ─► open_names
//!
//!  capability::probe: what this process can do      selftest::run: what this kernel keeps
//!  ports::Reservation: the host's ends of forwards  open_tap: a machine's cable
//! ```
//! The owner is an actor. Its handlers change the [`plan::Network`], a value, and may refuse; a
//! worker of its takes the one [`Enforcer`] and brings the kernel to the plan, or opens what a
//! name resolved to. Nothing is kept in between: [`Enforcer::ensure`] begins with what it finds,
//! so that a start after `kill -9` is the same call. What must outlive the daemon is a
//! [`plan::Member`], which serialises: seat, policy, forwards.
//!
//! At start: [`capability::probe`], then [`selftest::run`]; what did not hold is refused when it
//! is asked for. `docs/decisions/0011-network.md` says why it is built so.
//!
//! IPv4 only. IPv6 is dropped at every port in both directions and switched off on the bridge.

mod apply;
pub mod capability;
mod error;
mod keeper;
mod netns;
mod options;
pub mod plan;
pub mod ports;
pub mod resolver;
pub mod rules;
pub mod selftest;
mod unplugged;

pub use apply::{Access, Applied, Enforcer, Obstacle, Opening, Owner, Uplinks, open_tap};
pub use error::Error;
pub use keeper::{Keeper, Msg, NetworkHandle, Parts, Seed, open};
pub use netns::Namespace;
pub use options::{Mode, Options};
pub use unplugged::Unplugged;
