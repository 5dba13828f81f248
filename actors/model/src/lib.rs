//! Client of language models behind one interface: adapters to wire formats, each provider an actor with a
//! circuit breaker and a bounded queue, and a ledger of what is spent.
//!
//! ```text
//!  ml_generate … ─┐                                           ┌─▶ OpenAI, Anthropic, Gemini, Ollama
//!  other families ┴▶ names ─▶ reserve ─▶ provider (an actor) ─┼─▶ llama.cpp's server, a process of ours
//!   (port Models)                │       breaker, queue       └─▶ a script, for tests
//!                             ledger ◀── settle ── answer
//! ```
//! What a provider sends is untrusted: size, time and pauses of an answer are bounded, and what is asked for is
//! checked against what came. Keys come from files or variables of the host when a request is made, and go to
//! the operator's address alone.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod backend;
mod catalogue;
pub mod codes;
mod failure;
mod family;
mod heuristic;
mod influx;
mod ledger;
mod models;
mod options;
mod probes;
mod provider;
mod relay_meter;
mod scripted;
mod service;
mod text_tools;
mod tools;
mod transport;
mod wire;

pub use family::ModelFamily;
pub use options::{
    AliasName, AliasOptions, BudgetOptions, BudgetPeriod, ModelOptions, ModelProviderKind,
    ModelProviderOptions, ModelPurpose, Options, ProviderName, StatusOptions, Strategy,
};
pub use text_tools::ModelToolForm;

#[cfg(test)]
mod tests;
