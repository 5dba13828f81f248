//! Material that a manifest has an execution read: pages, files and folders, each once and before the first prompt.
//!
//! It is read by calls of the execution's session, which has the tools for that and is never above its asker's. The model
//! is not offered them by it. Texts are records: a prompt is the same after each start.

use std::{collections::BTreeSet, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{CallCx, Layer, ToolError};
use hivekeep_runtime::log::LogError;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ExecutionSaga,
    plan::{ContextAddress, ContextSource, ExecutionPlan, read_call},
    records::ContextText,
    state::{ExecutionState, Record},
};
use crate::{codes, tools::AgentService};

/// Room in which nothing more is read.
const LEAST_BYTES: usize = 1024;
/// Longest reading of an item, with the making of a machine.
const READING: Duration = Duration::from_secs(300);

impl AgentService {
    /// Refuses material whose tools are not there, or not shown to a call's attachment.
    pub(crate) fn may_read(&self, cx: &CallCx, plan: &ExecutionPlan) -> Result<(), ToolError> {
        let needed: BTreeSet<_> = plan.reading_tools().map(str::to_owned).collect();
        let shown = self.shown(cx, &needed);
        match needed.difference(&shown).next() {
            None => Ok(()),
            Some(tool) => {
                let message = format!("`spec.context` is read by `{tool}`, which is not there");
                Err(ToolError::new(Layer::Actor, codes::CONTEXT_UNREADABLE, message)
                    .next("write the text itself, or run the agent where there is the tool"))
            }
        }
    }
}

/// Answer of a tool that reads, as far as it matters here.
#[derive(Debug, Deserialize)]
struct ReadAnswer {
    content: String,
    size_bytes: u64,
    next_offset: Option<u64>,
    /// Status of a page.
    status: Option<u16>,
    ok: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct FoundFiles {
    paths: Vec<String>,
    left: u64,
}

impl ExecutionSaga {
    /// Reads the next item, and records its text or the end that a failure is.
    pub(super) async fn read(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some((item, source, room)) = state.context_to_read() else { return Ok(()) };
        let left = match self.left(&state) {
            Ok(left) => left,
            Err(over) => return self.out_of_time(over).await,
        };
        let read = match room >= LEAST_BYTES {
            true => self.read_source(&state, source, room, left.min(READING)).await,
            false => Ok(ContextText { cut: true, ..ContextText::default() }),
        };
        match read {
            Ok(read) => {
                let read = Box::new(read);
                self.handle.record(Record::ContextRead { item, read, at: Utc::now() }).await
            }
            Err(error) => {
                let name = source.address.name();
                let message =
                    format!("`{name:.200}` of `spec.context` cannot be read: {}", error.message);
                let unread = ToolError::new(Layer::Actor, codes::CONTEXT_UNREADABLE, message)
                    .next("mend `spec.context`, or run the agent again when it can be read")
                    .detail("code", &*error.code);
                self.fail(unread).await
            }
        }
    }

    async fn read_source(
        &self,
        state: &ExecutionState,
        source: &ContextSource,
        room: usize,
        limit: Duration,
    ) -> Result<ContextText, ToolError> {
        let (tool, args) = source.address.call(room);
        let ContextAddress::Directory { place, .. } = &source.address else {
            let read: ReadAnswer = self.reading(state, tool, args, limit).await?;
            if read.ok == Some(false) {
                let status = read.status.unwrap_or_default();
                return Err(ToolError::foreign(
                    Layer::Result,
                    "web_status",
                    format!("it answered {status}"),
                ));
            }
            return Ok(taken(read, room));
        };
        let found: FoundFiles = self.reading(state, tool, args, limit).await?;
        let mut all = ContextText { cut: found.left > 0, ..ContextText::default() };
        for path in found.paths {
            let left = room.saturating_sub(all.text.len() + path.len());
            if left < LEAST_BYTES {
                all.cut = true;
                break;
            }
            let (tool, args) = read_call(&path, place.as_ref(), left - LEAST_BYTES / 2);
            match self.reading::<ReadAnswer>(state, tool, args, limit).await {
                Ok(read) => {
                    let read = taken(read, left);
                    all.text.push_str(&format!("--- {path}\n{}\n", read.text));
                    (all.size_bytes, all.cut) =
                        (all.size_bytes + read.size_bytes, all.cut || read.cut);
                }
                // A file that is not a text is told, and so is one that has gone meanwhile.
                Err(error) if !error.retryable => {
                    all.text.push_str(&format!("--- {path}\n[not read: {:.100}]\n", error.message));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    async fn reading<T: DeserializeOwned>(
        &self,
        state: &ExecutionState,
        tool: &str,
        args: Value,
        limit: Duration,
    ) -> Result<T, ToolError> {
        let cancel = self.handle.cancelled().child_token();
        self.answer_of(state, (tool, args), Some(limit), &cancel).await
    }
}

fn taken(read: ReadAnswer, room: usize) -> ContextText {
    let ReadAnswer { content: mut text, size_bytes, next_offset, .. } = read;
    let cut = next_offset.is_some() || text.len() > room;
    text.truncate(text.floor_char_boundary(room));
    ContextText { text, size_bytes, cut }
}
