//! Tools of an editor: chats with agents, builds, a dashboard, and the page that a person looks at.
//!
//! Nothing is kept here. A chat is an execution of an agent (port [`Chats`](hivekeep_ports::Chats)), a build is a
//! process whose command `assistant.builds` names, and what the dashboard shows is counted from both and from the
//! session's events, by the daemon's own tools on the caller's behalf.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod builds;
mod chat;
pub mod codes;
mod dashboard;
mod matching;
mod navigate;

use std::sync::Arc;

use hivekeep_kernel::{
    CallCx, CallId, ErrorCode, RestartPolicy, Service, ServiceActor, ToolError, ToolGroup, ToolInfo,
};
use hivekeep_ports::SessionQuotas;
use hivekeep_runtime::{Daemon, Family, Mounted, OnBehalfOf, Ports, ToolClient};
use serde::de::DeserializeOwned;
use serde_json::Value;

use matching::BuildCommands;
pub use matching::Options;

type Answer<T> = Result<T, ToolError>;

/// Groups of tools, in listing order.
const GROUPS: &[&ToolGroup<ServiceActor<AssistantService>>] =
    &[&chat::FAMILY, &builds::FAMILY, &dashboard::FAMILY, &navigate::FAMILY];

/// Ports and tools that the family stands on.
pub(crate) struct AssistantService {
    /// Doors and families that are mounted later offer ports too, so each is looked for when it is needed.
    ports: Ports,
    sessions: Arc<dyn SessionQuotas>,
    tools: ToolClient<CallId>,
    commands: BuildCommands,
}

impl Service for AssistantService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = GROUPS;
}

impl AssistantService {
    /// Calls a tool that reads, for the session of a call.
    async fn read<T: DeserializeOwned>(
        &self,
        cx: &CallCx,
        tool: &'static str,
        args: Value,
    ) -> Answer<T> {
        self.tools.call_idempotent(cx.id, &OnBehalfOf::call(cx), tool, args).await
    }
}

/// Family of the tools of an editor; one actor below the root. Looks for the ports
/// [`Chats`](hivekeep_ports::Chats) and [`PersonPages`](hivekeep_ports::PersonPages) when it is called.
pub struct AssistantFamily;

impl Family for AssistantFamily {
    type Options = Options;

    const INSTRUCTIONS: &'static str = "\
- ide_session_create opens a chat with an agent, ide_chat_send writes to it and ide_chat_history reads it; \
ide_build_list shows builds among your processes; navigate shows the person a page of the dashboard.";

    fn tools() -> Vec<&'static ToolInfo> {
        GROUPS.iter().flat_map(|group| group.rows).map(|row| &row.0).collect()
    }

    fn codes() -> Vec<&'static ErrorCode> {
        codes::ALL.to_vec()
    }

    async fn mount(daemon: &Daemon, options: Options) -> Result<Mounted, ToolError> {
        let address = daemon.address("assistant", RestartPolicy::ENTITY);
        let service = Arc::new(AssistantService {
            ports: daemon.ports.clone(),
            sessions: daemon.sessions.clone(),
            tools: ToolClient::new(daemon.tools.clone()),
            commands: BuildCommands::new(&options),
        });
        Ok(Mounted::default().serving::<ServiceActor<AssistantService>>(&address, service))
    }
}

#[cfg(test)]
mod tests;
