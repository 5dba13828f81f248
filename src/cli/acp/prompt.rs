//! A prompt: a message to a chat, and what the agent says and does until it waits for the next one.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use hivekeep_agent::{
    acp::schema::{
        ContentBlock, EmbeddedResourceResource, Error, PromptRequest, PromptResponse, StopReason,
        ToolCall,
    },
    codes,
};
use hivekeep_kernel::{ErrorCode, SessionId};
use serde_json::{Value, json};

use super::{AcpDesk, link::failed, permissions::AskedPermissions, updates};
use crate::cli::output::word;

/// Pause between two looks at what the agent does.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl AcpDesk {
    pub(super) fn prompt(
        &self,
        request: PromptRequest,
        cancelled: &Receiver<()>,
    ) -> Result<PromptResponse, Error> {
        let (id, message) = (&*request.session_id.0, text(&request.prompt)?);
        self.chat(id)?;
        let mut turn = PromptTurn::default();
        let mut offset = self.daemon.events_so_far(id, |event| turn.follow(event))?;
        self.daemon.say(id, &message, offset)?;
        let mut permissions = AskedPermissions::new(&self.daemon, &self.editor, id);
        let mut was_cancelled = false;
        loop {
            // Before the events: what was said when it began to wait is among them.
            let state = self.daemon.call("aegis.task.status", json!({ "execution_id": id }))?;
            offset = self.daemon.events(id, offset, |event| {
                for update in updates::done(event) {
                    self.editor.update(id, update);
                }
                turn.follow(event);
            })?;
            let waiting_for = state["waiting_for"].as_str();
            match (waiting_for, &*word(&state["status"])) {
                (_, "cancelled") => return Ok(PromptResponse::new(StopReason::Cancelled)),
                (_, "failed" | "completed") => {
                    return Err(failed(&state["error_code"], &state["last_error"]));
                }
                (Some("message"), _) if was_cancelled => {
                    return Ok(PromptResponse::new(StopReason::Cancelled));
                }
                (Some("message"), _) => return turn.end(),
                (Some("budget"), _) if !turn.told_of_budget => {
                    turn.told_of_budget = true;
                    let told = format!(
                        "\n\nIts budget is used up, and it waits for more: `hivekeep call agent_continue -a \
                         execution_id={id} --json '{{\"budget\": …}}'` gives it more."
                    );
                    self.editor.update(id, updates::message(&told));
                }
                _ => {}
            }
            permissions.look(turn.session, waiting_for == Some("approval"), &turn.open)?;
            match cancelled.recv_timeout(LOOK_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    was_cancelled = true;
                    let stop = json!({ "execution_id": id, "stop": true });
                    self.daemon.call("agent_continue", stop)?;
                }
            }
        }
    }
}

/// Outcome of a prompt so far.
#[derive(Default)]
struct PromptTurn {
    /// Session in which the agent calls tools, once it is open.
    session: Option<SessionId>,
    /// Calls without a result.
    open: Vec<ToolCall>,
    /// Stop or failure of the last iteration.
    end: Option<Value>,
    told_of_budget: bool,
}

impl PromptTurn {
    fn follow(&mut self, event: &Value) {
        match event["event_type"].as_str().unwrap_or_default() {
            "session_opened" => self.session = word(&event["payload"]["session_id"]).parse().ok(),
            "iteration_started" => self.end = None,
            "chat_stopped" | "iteration_failed" => self.end = Some(event.clone()),
            "llm_interaction" => self.open = updates::asked(event).collect(),
            kind if kind.starts_with("tool_invocation_") => {
                let call = updates::call_id(&event["payload"]);
                self.open.retain(|one| *one.tool_call_id.0 != *call);
            }
            _ => {}
        }
    }

    /// Answer to a prompt after which the chat waits for the next one.
    fn end(self) -> Result<PromptResponse, Error> {
        let Some(end) = self.end else { return Ok(PromptResponse::new(StopReason::EndTurn)) };
        let error = &end["payload"]["error"];
        let is = |code: &ErrorCode| error["code"] == code.name;
        let reason = match () {
            () if end["event_type"] == "chat_stopped" => StopReason::Cancelled,
            () if is(codes::ANSWER_CUT_SHORT) => StopReason::MaxTokens,
            () if is(codes::TURNS_EXHAUSTED) => StopReason::MaxTurnRequests,
            () if is(codes::MODEL_REFUSED) => StopReason::Refusal,
            () => return Err(failed(&error["code"], &error["message"])),
        };
        Ok(PromptResponse::new(reason))
    }
}

/// Message that the blocks of a prompt are.
fn text(blocks: &[ContentBlock]) -> Result<String, Error> {
    let mut parts = Vec::new();
    for block in blocks {
        parts.push(match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::ResourceLink(link) => format!("[{}]({})", link.name, link.uri),
            ContentBlock::Resource(resource) => match &resource.resource {
                EmbeddedResourceResource::TextResourceContents(it) => {
                    format!("{}:\n```\n{}\n```", it.uri, it.text)
                }
                _ => return Err(unread("a resource that has no text")),
            },
            ContentBlock::Image(_) => return Err(unread("an image")),
            ContentBlock::Audio(_) => return Err(unread("audio")),
            _ => return Err(unread("a block of an unknown kind")),
        });
    }
    Ok(parts.join("\n\n"))
}

fn unread(what: &str) -> Error {
    Error::invalid_params().data(format!("the prompt has {what}, which no agent here reads"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(events: &[Value]) -> Result<StopReason, i32> {
        let mut turn = PromptTurn::default();
        events.iter().for_each(|event| turn.follow(event));
        turn.end().map(|it| it.stop_reason).map_err(|error| error.code.into())
    }

    #[test]
    fn a_prompt_ends_as_its_last_iteration_did() {
        let begun = json!({ "event_type": "iteration_started", "payload": {} });
        let failed = |code: &str| {
            let payload = json!({ "error": { "code": code, "message": "no" } });
            json!({ "event_type": "iteration_failed", "payload": payload })
        };
        let stopped = json!({ "event_type": "chat_stopped", "payload": {} });
        assert_eq!(ended(std::slice::from_ref(&begun)), Ok(StopReason::EndTurn));
        assert_eq!(ended(&[failed("internal"), begun.clone()]), Ok(StopReason::EndTurn));
        assert_eq!(ended(&[begun.clone(), stopped]), Ok(StopReason::Cancelled));
        for (code, reason) in [
            (codes::TURNS_EXHAUSTED, StopReason::MaxTurnRequests),
            (codes::ANSWER_CUT_SHORT, StopReason::MaxTokens),
            (codes::MODEL_REFUSED, StopReason::Refusal),
        ] {
            assert_eq!(ended(&[begun.clone(), failed(code.name)]), Ok(reason));
        }
        assert_eq!(ended(&[begun, failed("time_exhausted")]), Err(-32603));
    }

    #[test]
    fn a_file_of_the_editor_stands_in_the_message_and_an_image_is_refused() {
        let blocks = |value| serde_json::from_value::<Vec<ContentBlock>>(value).expect("blocks");
        let read = text(&blocks(json!([
            { "type": "text", "text": "Look:" },
            { "type": "resource", "resource": { "uri": "file:///a.rs", "text": "fn a()" } },
            { "type": "resource_link", "name": "b.rs", "uri": "file:///b.rs" },
        ])));
        let read = read.expect("all are texts");
        assert_eq!(read, "Look:\n\nfile:///a.rs:\n```\nfn a()\n```\n\n[b.rs](file:///b.rs)");
        let image = json!([{ "type": "image", "data": "", "mimeType": "image/png" }]);
        assert_eq!(i32::from(text(&blocks(image)).expect_err("no model sees it").code), -32602);
    }
}
