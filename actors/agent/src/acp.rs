//! The Agent Client Protocol, version 1: between an editor and `hivekeep acp`, and between an execution and a program
//! that speaks it. Its types are those of the crate `agent-client-protocol-schema`; the line is ours, since a frame, and
//! what waits for an answer, have bounds here.

pub mod frames;
#[cfg(test)]
mod fuzzing;

pub use agent_client_protocol_schema::{ProtocolVersion, v1 as schema};
