//! Authorization: a chain of layers that each rule on a call, and approvals by a person.
//!
//! ```text
//! question ─▶ switch ─ visibility ─ rules ─ agent ─ lineage ─ allow list ─ toolset ─ context
//!             ─ conversation ─ source ─ permission mode ─ availability ─▶ allowed, denied, asks
//!                                                                            │
//!                             a remembered grant, a token, or a person ◀─────┘
//! ```
//!
//! The first denial ends it; a layer that asks is remembered, and the rest is still asked, since a
//! later one may deny. Every verdict is kept. Nothing is decided ahead: each call is judged by the
//! rules that hold then ([`PolicyEngine`]).
//!
//! Reading order: `verdict.rs` (the words), `layers.rs` (the order), `rules.rs` and `condition.rs`
//! (rules as data), `facts.rs` (what of an input is judged), `approvals.rs` (people).
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod approvals;
pub mod codes;
mod condition;
mod context;
mod engine;
mod facts;
mod layers;
mod options;
mod pattern;
mod rules;
#[cfg(test)]
mod tests;
mod verdict;

pub use approvals::{
    Approval, ApprovalAnswer, ApprovalState, Approvals, Approver, Grant, MintedToken, Remember,
    WantedCall, hexadecimal, input_digest, input_text,
};
pub use engine::{ContextLimits, PolicyEngine, RuleRow};
pub use facts::PATH_PARAMETERS;
pub use options::{
    AgentOptions, ApprovalOptions, CapabilityOptions, ContextOptions, ConversationOptions, Options,
    PermissionMode, RuleEffect, RuleOptions, SourceTrust, ToolsetOptions,
};
pub use pattern::ToolPattern;
pub use verdict::{Policy, PolicyDecision, Question, ReasonCode, Ruling, SessionProfile, Verdict};
