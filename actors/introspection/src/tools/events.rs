//! Events of one session: what it called, and what became of its workspaces.
//!
//! Events are one sequence for all, without an index. Going back from the newest, as many are looked at as
//! a call has time for, and the answer says how far that was.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CallCx, Progress, ToolError, tools};
use hivekeep_ports::InternalCall;
use hivekeep_runtime::documents::{DocumentBody, Documents, Refusal, Template};
use hivekeep_store::{Events, JournalEvent, Seq};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::service::IntrospectionService;

/// Most events that one call looks at.
const MOST_SEEN: u64 = 20_000;
/// Events that are read at a time.
const PAGE: u64 = 500;
/// Text before the subject in a URI.
const ROOT: &str = "hivekeep://events/";

/// List what happened in this session, newest first: its calls, or the events of one of its workspaces.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventList {
    /// `session` for all of this session's own, the id of a call, or the id or name of a workspace of this
    /// session.
    #[schemars(length(min = 1, max = 100))]
    #[serde(default = "own")]
    pub(crate) subject: String,
    /// Only events before this one: the `next` of the page before.
    pub(crate) before: Option<u64>,
    /// Most events, 1 to 200.
    #[schemars(range(min = 1, max = 200))]
    #[serde(default = "default_rows")]
    pub(crate) limit: usize,
}

fn own() -> String {
    OWN.to_owned()
}

fn default_rows() -> usize {
    50
}

const OWN: &str = "session";

/// An event.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventRow {
    /// Position among all events.
    pub(crate) seq: u64,
    /// Time.
    pub(crate) at: DateTime<Utc>,
    /// Kind, such as `call.finished`.
    pub(crate) kind: String,
    /// Subject, such as the id of a workspace or of a session.
    pub(crate) subject: String,
    /// Facts.
    pub(crate) data: Value,
}

/// Events, newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventsListed {
    /// The events.
    pub(crate) events: Vec<EventRow>,
    /// Pass as `before` to go on; absent when all that are kept were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
}

tools! { pub(crate) EVENTS: "events" for service IntrospectionService, singleton introspection;
    event_list: EventList => EventsListed = IntrospectionService::event_list {
        title: "List what happened", effect: Read, result_budget_bytes: 16 * 1024 * 1024,
    };
}

/// Events that are wanted.
#[derive(Debug, Clone)]
struct Wanted {
    session: String,
    /// Subject that events must have; without one, all events of the session's own.
    subject: Option<String>,
    /// The session owns the subject, so that its events need not name the session.
    owned: bool,
}

impl Wanted {
    fn has(&self, event: &JournalEvent) -> bool {
        let own = event.subject == self.session || event.data["session"] == *self.session;
        match &self.subject {
            None => own,
            Some(subject) => event.subject == *subject && (own || self.owned),
        }
    }
}

/// Events before a position that are wanted, newest first, and where to go on. Blocks.
fn back(
    events: &Events,
    before: Option<u64>,
    limit: usize,
    wanted: &Wanted,
) -> Result<EventsListed, hivekeep_store::Error> {
    let mut end = before.unwrap_or(u64::MAX).min(events.last().get().saturating_add(1));
    let stop = end.saturating_sub(MOST_SEEN).max(1);
    let mut found = Vec::new();
    while end > stop {
        let from = end.saturating_sub(PAGE).max(stop);
        let count = usize::try_from(end - from).unwrap_or(usize::MAX);
        let page = events.read(Seq::new(from), count)?;
        for event in page.events.into_iter().rev().filter(|event| event.seq.get() < end) {
            if !wanted.has(&event) {
                continue;
            }
            if found.len() == limit {
                let next = found.last().map(|row: &EventRow| row.seq);
                return Ok(EventsListed { events: found, next });
            }
            let JournalEvent { seq, at, kind, subject, data } = event;
            found.push(EventRow { seq: seq.get(), at, kind, subject, data });
        }
        end = from;
        // Events before this page are trimmed.
        if page.missed.is_some() {
            return Ok(EventsListed { events: found, next: None });
        }
    }
    Ok(EventsListed { events: found, next: Some(end).filter(|end| *end > 1) })
}

impl IntrospectionService {
    pub(crate) async fn event_list(
        self: Arc<Self>,
        cx: CallCx,
        input: EventList,
    ) -> Result<EventsListed, ToolError> {
        let wanted = self.wanted(&cx, input.subject).await?;
        let failed = |error: &dyn std::fmt::Display| ToolError::internal(error.to_string());
        // Events that were published before this call may not be written yet.
        self.journal.settled().await.map_err(|error| failed(&error))?;
        let events = self.journal.events();
        let look = move || back(&events, input.before, input.limit, &wanted);
        let looked = tokio::task::spawn_blocking(look).await;
        looked.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }

    async fn wanted(&self, cx: &CallCx, subject: String) -> Result<Wanted, ToolError> {
        let session = cx.session.to_string();
        let of = |subject, owned| Wanted { session: session.clone(), subject, owned };
        if subject == OWN || subject == session {
            return Ok(of(None, false));
        }
        if subject.parse::<hivekeep_kernel::CallId>().is_ok() {
            return Ok(of(Some(subject), false));
        }
        // Whoever may look at the workspace may see what happened to it.
        let call = InternalCall {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            progress: Progress::default(),
            reserved: None,
        };
        let args = json!({ "workspace_id": subject });
        let details = self.tools.call(call, "workspace_info", args).await?;
        Ok(of(details["workspace_id"].as_str().map(str::to_owned), true))
    }
}

/// Events as documents.
pub(crate) struct EventDocuments;

impl Documents for EventDocuments {
    fn tool(&self) -> &'static str {
        "event_list"
    }

    fn enabled(&self) -> bool {
        true
    }

    fn template(&self) -> Template {
        Template {
            uri: "hivekeep://events/{subject}",
            name: "events",
            title: "What happened",
            description: "The newest 200 events of `session`, of a call or of a workspace, as JSON",
            mime_type: "application/json",
            variables: &[("subject", "workspace")],
        }
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        let subject = uri.strip_prefix(ROOT).filter(|subject| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !subject.is_empty() && subject.bytes().all(fits)
        });
        let subject =
            subject.ok_or_else(|| ToolError::invalid(format!("`{uri:.200}` names no subject")))?;
        Ok(Map::from_iter([
            ("subject".to_owned(), subject.into()),
            ("limit".to_owned(), 200.into()),
        ]))
    }

    fn body(&self, _: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        serde_json::to_string_pretty(&answer)
            .map(DocumentBody::Text)
            .map_err(|error| ToolError::internal(error.to_string()))
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        use hivekeep_kernel::codes::{INVALID_INPUT, NOT_OWNER, WORKSPACE_NOT_FOUND};
        match error {
            error if error.is(WORKSPACE_NOT_FOUND) => Refusal::Missing,
            error if error.is_any(&[INVALID_INPUT, NOT_OWNER]) => Refusal::Invalid,
            _ => Refusal::Failed,
        }
    }
}
