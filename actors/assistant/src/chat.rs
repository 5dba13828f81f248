//! The tools `ide_chat_send` to `ide_plan_status`: chats with agents, each an execution that waits for its next
//! message.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use hivekeep_ports::{ChatMessage, ChatPlan, ChatSession, Chats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Answer, AssistantService, codes};

const MAX_NAME_CHARS: usize = 200;
const MAX_MESSAGE_CHARS: usize = 65_536;
const MAX_MESSAGES: usize = 1_000;

/// Send a message to a chat. Answered when the message is on the disk; the agent works on, and its reply is in
/// ide_chat_history when it has one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SendChat {
    /// Id of the chat.
    session_id: String,
    /// Text for the agent.
    #[schemars(length(min = 1, max = MAX_MESSAGE_CHARS))]
    message: String,
}

/// A message that is kept.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ChatSent {
    /// True: it is on the disk, and read before the agent's next turn.
    sent: bool,
    /// Id of the chat.
    session_id: String,
    /// Time of its record.
    timestamp: DateTime<Utc>,
}

/// Read the newest messages of a chat.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReadChat {
    /// Id of the chat.
    session_id: String,
    /// Most messages; default 50.
    #[serde(default = "default_messages")]
    #[schemars(range(min = 1, max = MAX_MESSAGES))]
    limit: usize,
}

fn default_messages() -> usize {
    50
}

/// Messages of a chat.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ChatHistory {
    /// Id of the chat.
    session_id: String,
    /// The newest messages, the oldest of them first.
    messages: Vec<ChatMessage>,
}

/// List your chats with agents, the newest first; those that are over are listed until they are removed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListChats {}

/// Chats.
#[derive(Debug, Serialize, JsonSchema)]
struct ChatsListed {
    /// The newest first.
    sessions: Vec<ChatSession>,
}

/// Open a chat with an agent. It waits for the first ide_chat_send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OpenChat {
    /// Name for people; two may have the same.
    #[schemars(length(min = 1, max = MAX_NAME_CHARS))]
    name: String,
}

/// A chat that was opened.
#[derive(Debug, Serialize, JsonSchema)]
struct ChatOpened {
    /// The chat.
    session: ChatSession,
}

/// See what a chat does now: the tool calls of the turn that runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LookAtPlan {
    /// Id of the chat.
    session_id: String,
}

/// State of a chat.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlanRow {
    /// Id of the chat.
    session_id: String,
    /// State, and what runs.
    #[serde(flatten)]
    plan: ChatPlan,
}

tools! { pub(crate) FAMILY: "ide" for service AssistantService, singleton assistant;
    ide_chat_send: SendChat => ChatSent = AssistantService::chat_send {
        title: "Send a chat message", open_world: true, told_by: Some("ide_chat_history"),
    };
    ide_chat_history: ReadChat => ChatHistory = AssistantService::chat_history {
        title: "Read a chat", effect: Read,
    };
    ide_session_list: ListChats => ChatsListed = AssistantService::chat_list {
        title: "List chats", effect: Read,
    };
    ide_session_create: OpenChat => ChatOpened = AssistantService::chat_open {
        title: "Open a chat", rate: RateClass::Create, told_by: Some("ide_session_list"),
    };
    ide_plan_status: LookAtPlan => PlanRow = AssistantService::chat_plan {
        title: "See what a chat does", effect: Read,
    };
}

impl AssistantService {
    fn chats(&self) -> Answer<Arc<dyn Chats>> {
        self.ports.find().ok_or_else(|| {
            let why = "no agent answers chats on this daemon";
            ToolError::new(Layer::Actor, codes::ASSISTANT_NOT_CONFIGURED, why)
                .next("ask the operator; aegis.task.execute runs an agent without a chat")
        })
    }

    /// Chats of the caller's user, the oldest first; none where nothing answers chats.
    pub(crate) async fn chats_opened(&self, cx: &CallCx) -> Answer<Vec<ChatSession>> {
        match self.chats() {
            Ok(chats) => chats.list(cx).await,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Newest messages of one of them; none of one that was removed meanwhile.
    pub(crate) async fn newest_messages(
        &self,
        cx: &CallCx,
        chat: &str,
        limit: usize,
    ) -> Answer<Vec<ChatMessage>> {
        Ok(self.chats()?.messages(cx, chat, limit).await?.unwrap_or_default())
    }

    async fn chat_send(self: Arc<Self>, cx: CallCx, input: SendChat) -> Answer<ChatSent> {
        let SendChat { session_id, message } = input;
        let sent = self.chats()?.send(&cx, &session_id, &message).await?;
        let timestamp = known(sent, &session_id)?;
        Ok(ChatSent { sent: true, session_id, timestamp })
    }

    async fn chat_history(self: Arc<Self>, cx: CallCx, input: ReadChat) -> Answer<ChatHistory> {
        let ReadChat { session_id, limit } = input;
        let read = self.chats()?.messages(&cx, &session_id, limit).await?;
        let messages = known(read, &session_id)?;
        Ok(ChatHistory { session_id, messages })
    }

    async fn chat_list(self: Arc<Self>, cx: CallCx, _: ListChats) -> Answer<ChatsListed> {
        let chats = self.chats()?.list(&cx).await?;
        Ok(ChatsListed { sessions: chats.into_iter().rev().collect() })
    }

    async fn chat_open(self: Arc<Self>, cx: CallCx, input: OpenChat) -> Answer<ChatOpened> {
        Ok(ChatOpened { session: self.chats()?.open(&cx, &input.name).await? })
    }

    async fn chat_plan(self: Arc<Self>, cx: CallCx, input: LookAtPlan) -> Answer<PlanRow> {
        let session_id = input.session_id;
        let plan = known(self.chats()?.plan(&cx, &session_id).await?, &session_id)?;
        Ok(PlanRow { session_id, plan })
    }
}

/// The found part of a chat, or that there is no such chat: another user's is not there.
fn known<T>(found: Option<T>, chat: &str) -> Answer<T> {
    found.ok_or_else(|| {
        ToolError::not_found(Layer::Actor, codes::CHAT_NOT_FOUND, "chat of yours", chat)
            .next("ide_session_list shows them")
    })
}
