//! Conversations with people: questions that a person answers, modes that narrow a session, and the
//! documents of hivekeep to answer from.
//!
//! Modes and questions are kept by whoever offers the port
//! [`People`]; this family asks it.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod codes;
mod pages;
mod tools;

use std::sync::Arc;

use hivekeep_kernel::{ErrorCode, RestartPolicy, ServiceActor, ToolError, ToolInfo};
use hivekeep_ports::People;
use hivekeep_runtime::{Daemon, Family, Mounted, NoOptions};

use tools::Conversation;

/// Family of conversations; one actor below the root. Needs the port [`People`].
pub struct ConversationFamily;

impl Family for ConversationFamily {
    type Options = NoOptions;

    const INSTRUCTIONS: &'static str = "\
- ask_user asks a person and waits for the reply; zaru.docs finds what hivekeep's own documents say.";

    fn tools() -> Vec<&'static ToolInfo> {
        tools::FAMILY.rows.iter().map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, _: NoOptions) -> Result<Mounted, ToolError> {
        let address = daemon.address("conversation", RestartPolicy::ENTITY);
        let service = Arc::new(Conversation::new(daemon.ports.need::<dyn People>()?));
        Ok(Mounted::default().serving::<ServiceActor<Conversation>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
