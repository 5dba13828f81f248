//! Events of an execution, as an editor is shown them.

use hivekeep_agent::acp::schema::{
    ContentChunk, MessageId, SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::Value;

use crate::cli::{output::word, runs::list};

/// Most characters of a title.
const TITLE_CHARS: usize = 100;

/// Words of a person that an event tells.
pub(super) fn said_by_people(event: &Value) -> Option<SessionUpdate> {
    let text = match event["event_type"].as_str()? {
        "execution_started" => &event["payload"]["intent"],
        "message_received" => &event["payload"]["text"],
        _ => return None,
    };
    let text = text.as_str().filter(|text| !text.trim().is_empty())?;
    Some(SessionUpdate::UserMessageChunk(ContentChunk::new(text.into())))
}

/// Words of the agent.
pub(super) fn message(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()))
}

/// Words and deeds of the agent that an event tells.
pub(super) fn done(event: &Value) -> Vec<SessionUpdate> {
    let payload = &event["payload"];
    let result = |status: ToolCallStatus, text: String| {
        let fields = ToolCallUpdateFields::new().status(status);
        let content = vec![ToolCallContent::from(text)];
        let update = ToolCallUpdate::new(call_id(payload), fields.content(content));
        vec![SessionUpdate::ToolCallUpdate(update)]
    };
    match event["event_type"].as_str().unwrap_or_default() {
        "llm_interaction" => {
            let text = word(&payload["text"]);
            let said = Some(text).filter(|text| !text.trim().is_empty());
            let id = format!("{}.{}", payload["iteration"], payload["turn"]);
            let said = said.map(|text| {
                let said = ContentChunk::new(text.into()).message_id(MessageId::new(id));
                SessionUpdate::AgentMessageChunk(said)
            });
            said.into_iter().chain(asked(event).map(SessionUpdate::ToolCall)).collect()
        }
        "tool_invocation_completed" => result(ToolCallStatus::Completed, word(&payload["result"])),
        "tool_invocation_failed" => {
            result(ToolCallStatus::Failed, word(&payload["error"]["message"]))
        }
        "tool_invocation_interrupted" => {
            result(ToolCallStatus::Failed, "the daemon ended during the call".to_owned())
        }
        _ => Vec::new(),
    }
}

/// Calls that an answer of the model asks for.
pub(super) fn asked(event: &Value) -> impl Iterator<Item = ToolCall> + '_ {
    let payload = &event["payload"];
    list(&payload["calls"]).iter().enumerate().map(move |(at, call)| {
        let id = format!("{}.{}.{}", payload["iteration"], payload["turn"], at + 1);
        let name = word(&call["name"]);
        ToolCall::new(id, title(&name, &call["arguments"]))
            .kind(kind(&name))
            .status(ToolCallStatus::InProgress)
            .raw_input(call["arguments"].clone())
    })
}

/// Id of the call that an event is about: its place.
pub(super) fn call_id(payload: &Value) -> String {
    format!("{}.{}.{}", payload["iteration"], payload["turn"], payload["call"])
}

/// Tool with what it is used on.
pub(super) fn title(name: &str, arguments: &Value) -> String {
    let about = ["command", "path", "query", "url", "name"].iter();
    let about = about.map(|key| word(&arguments[key])).find(|text| !text.is_empty());
    let about = about.unwrap_or_default();
    let first = about.lines().next().unwrap_or_default();
    let short: String = format!("{name} {first}").trim().chars().take(TITLE_CHARS).collect();
    short
}

/// Kind of a tool, as far as its name tells.
pub(super) fn kind(name: &str) -> ToolKind {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["delete", "remove", "destroy"]) => ToolKind::Delete,
        () if has(&["rename", "move"]) => ToolKind::Move,
        () if has(&["search", "find", "grep", "glob"]) => ToolKind::Search,
        () if has(&["fetch", "web", "browser"]) => ToolKind::Fetch,
        () if has(&["write", "edit", "patch", "create"]) => ToolKind::Edit,
        () if has(&["cmd", "exec", "bash", "process", "run"]) => ToolKind::Execute,
        () if has(&["read", "list", "status", "info", "get"]) => ToolKind::Read,
        () => ToolKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_becomes_words_and_calls_and_a_result_finds_its_call() {
        let said = json!({ "event_type": "llm_interaction", "payload": {
            "iteration": 1, "turn": 2, "text": "I look.",
            "calls": [{ "name": "fs_read", "arguments": { "path": "a.md" } }, { "name": "cmd_run", "arguments": {
                "command": "rm -r x\nls" } }],
        } });
        let result = json!({ "event_type": "tool_invocation_completed", "payload": {
            "iteration": 1, "turn": 2, "call": 2, "name": "cmd_run", "result": "gone",
        } });
        let updates: Vec<_> = done(&said).into_iter().chain(done(&result)).collect();
        let updates = serde_json::to_value(updates).expect("JSON");
        assert_eq!(
            updates,
            json!([
                { "sessionUpdate": "agent_message_chunk", "messageId": "1.2",
                  "content": { "type": "text", "text": "I look." } },
                { "sessionUpdate": "tool_call", "toolCallId": "1.2.1", "title": "fs_read a.md", "kind": "read",
                  "status": "in_progress", "rawInput": { "path": "a.md" } },
                { "sessionUpdate": "tool_call", "toolCallId": "1.2.2", "title": "cmd_run rm -r x", "kind": "execute",
                  "status": "in_progress", "rawInput": { "command": "rm -r x\nls" } },
                { "sessionUpdate": "tool_call_update", "toolCallId": "1.2.2", "status": "completed",
                  "content": [{ "type": "content", "content": { "type": "text", "text": "gone" } }] },
            ])
        );
    }
}
