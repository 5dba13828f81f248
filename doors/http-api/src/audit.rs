//! The audit log over HTTP: queried in pages, exported as a stream of lines, read no faster than its client reads.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::StreamExt as _;
use hivekeep_audit::{AuditLog, AuditPage, Entry, Filter};
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ToolError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::{IntoParams, ToSchema};

use super::{
    error::ApiError,
    extract::{OperatorOnly, QueryOf},
    published::{ToolErrorBody, ToolReason},
    state::Api,
};

/// Characters of a filter.
const FILTER_CHARS: usize = 200;
/// Entries of a page.
const PAGE: usize = 100;
/// Entries of a page at most.
const MOST: usize = 1_000;
/// Time that the newest entries are waited for. Without them a page has what is on the disk.
const SETTLING: Duration = Duration::from_secs(2);
/// Readers of the log at a time: each reads megabytes of files.
pub(super) const READERS: usize = 4;

/// Entries that are wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// Only those of this session.
    #[param(max_length = 200)]
    session: Option<String>,
    /// Only those of this tool, by its id or its name.
    #[param(max_length = 200)]
    tool: Option<String>,
    /// Only those that came to this: `ok`, `abandoned`, or an error's code.
    #[param(max_length = 200)]
    outcome: Option<String>,
    /// Only those from this time on.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<DateTime<Utc>>,
    /// Only those before this time.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<DateTime<Utc>>,
}

/// The page that is wanted.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Go on before this entry: the `next` of the page before.
    before: Option<u64>,
    /// Most entries, from 1 to 1000; 100 without it.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// An entry, as it was written.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct EntryPayload {
    /// Its number: contiguous, from 1.
    seq: u64,
    /// Time of the wall clock, which may step back.
    #[schema(value_type = String, format = DateTime)]
    at: DateTime<Utc>,
    /// `call` for a tool call; others are about the daemon and the log.
    kind: String,
    /// Contents, by kind: of a call `call`, `session`, `user`, `door`, `tool`, `args_digest`, `decision`,
    /// `decided_by`, `outcome`, `layer`, `duration_ms`.
    #[schema(value_type = Object)]
    data: Value,
}

/// A page of the log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntries)]
pub(super) struct EntriesBody {
    /// The newest first. There may be fewer than were asked for, also none, where `next` is given: a page
    /// looks at a bounded part of the log.
    entries: Vec<EntryPayload>,
    /// Number to pass as `before` for the next page; `null` at the end.
    next: Option<u64>,
}

impl From<Entry> for EntryPayload {
    fn from(Entry { seq, at, kind, data }: Entry) -> Self {
        Self { seq, at, kind, data }
    }
}

/// The log, to be read, with a place among its readers.
pub(super) struct AuditReader {
    log: AuditLog,
    folder: std::path::PathBuf,
    _place: OwnedSemaphorePermit,
}

impl Api {
    fn audit_filter(&self, query: AuditQuery) -> Result<Filter, ApiError> {
        let AuditQuery { session, tool, outcome, since, until } = query;
        for (name, text) in [("session", &session), ("tool", &tool), ("outcome", &outcome)] {
            if text.as_ref().is_some_and(|text| text.chars().count() > FILTER_CHARS) {
                let why = format!("`{name}` has more than {FILTER_CHARS} characters");
                return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
            }
        }
        // Entries have the names that tools are declared by.
        let declared = |name: String| match self.core.catalogue().find(&name) {
            Some(entry) => entry.name().to_owned(),
            None => name,
        };
        Ok(Filter { session, tool: tool.map(declared), outcome, since, until, after: None })
    }

    fn audit_reader(&self) -> Result<AuditReader, ApiError> {
        let off = || {
            let why = "this daemon keeps no audit log: `audit.enabled` is false";
            ToolError::new(Layer::Door, codes::AUDIT_DISABLED, why)
                .next("set `audit.enabled = true` and restart the daemon")
        };
        let log = self.core.audit.clone().ok_or_else(off)?;
        let place = self.audit_readers.clone().try_acquire_owned().map_err(|_| {
            ApiError::unavailable("the audit log is being read by as many as may at a time")
        })?;
        Ok(AuditReader { log, folder: self.core.folders.audit(), _place: place })
    }
}

fn unreadable(error: impl std::fmt::Display) -> ApiError {
    tracing::error!(%error, "the audit log cannot be read");
    let why = "the audit log cannot be read; `hivekeep logs` says why";
    ToolError::new(Layer::Store, codes::AUDIT_UNAVAILABLE, why).into()
}

/// Query the audit log: who called which tool, what was decided, what became of it.
#[utoipa::path(
    get, path = "/api/audit", tag = "hivekeep", operation_id = "listAudit",
    params(AuditQuery, PageQuery),
    responses(
        (status = 200, description = "Entries, the newest first.", body = EntriesBody),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 422, description = "No audit log is kept, or it cannot be read.", body = ToolErrorBody),
    ),
)]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    OperatorOnly(_): OperatorOnly,
    QueryOf(query): QueryOf<AuditQuery>,
    QueryOf(PageQuery { before, limit }): QueryOf<PageQuery>,
) -> Result<Json<EntriesBody>, ApiError> {
    let limit = limit.unwrap_or(PAGE);
    if !(1..=MOST).contains(&limit) {
        let why = format!("`limit` should be from 1 to {MOST}");
        return Err(ApiError::invalid(ToolReason::SchemaInvalid, why));
    }
    let filter = api.audit_filter(query)?;
    let reader = api.audit_reader()?;
    let reading = tokio::task::spawn_blocking(move || {
        let _on_the_disk = reader.log.settle(SETTLING);
        hivekeep_audit::newest(&reader.folder, &filter, before, limit)
    });
    let page = reading.await.map_err(unreadable)?;
    let AuditPage { entries, next } = page.map_err(unreadable)?;
    let entries = entries.into_iter().map(EntryPayload::from).collect();
    Ok(Json(EntriesBody { entries, next }))
}

/// Bytes that are sent at once, about.
const PART_BYTES: usize = 64 * 1024;
/// Parts that wait for the client.
const PARTS: usize = 2;

/// Where an export begins.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// Only entries behind this number: the last one of an earlier export.
    after: Option<u64>,
}

/// Export the audit log as JSON lines, the oldest entry first, each as it was written.
///
/// A connection that ends without the last chunk was cut: the log could not be read further.
#[utoipa::path(
    get, path = "/api/audit/export", tag = "hivekeep", operation_id = "exportAudit",
    params(AuditQuery, ExportQuery),
    responses(
        (
            status = 200, description = "An entry a line.", body = String,
            content_type = "application/x-ndjson",
        ),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 422, description = "No audit log is kept.", body = ToolErrorBody),
    ),
)]
pub(super) async fn export(
    State(api): State<Arc<Api>>,
    OperatorOnly(_): OperatorOnly,
    QueryOf(query): QueryOf<AuditQuery>,
    QueryOf(ExportQuery { after }): QueryOf<ExportQuery>,
) -> Result<Response, ApiError> {
    let filter = Filter { after, ..api.audit_filter(query)? };
    let reader = api.audit_reader()?;
    let (parts, wanted) = mpsc::channel(PARTS);
    // Ends with the log, or when the client has gone.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = send(&reader, filter, &parts) {
            tracing::error!(%error, "an export of the audit log was cut");
            let _gone = parts.blocking_send(Err(io::Error::other(error)));
        }
    });
    let parts = futures::stream::unfold(wanted, |mut wanted| async move {
        Some((wanted.recv().await?, wanted))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(parts.fuse())).into_response())
}

/// Reads and sends until the end, or until nobody wants more.
fn send(
    reader: &AuditReader,
    filter: Filter,
    parts: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), hivekeep_audit::Error> {
    let _on_the_disk = reader.log.settle(SETTLING);
    let mut part = Vec::with_capacity(PART_BYTES);
    for entry in hivekeep_audit::entries(&reader.folder, filter)? {
        let (_, line) = entry?;
        part.extend_from_slice(line.as_bytes());
        part.push(b'\n');
        if part.len() >= PART_BYTES {
            let full = std::mem::replace(&mut part, Vec::with_capacity(PART_BYTES));
            if parts.blocking_send(Ok(full.into())).is_err() {
                return Ok(());
            }
        }
    }
    let _gone = parts.blocking_send(Ok(part.into()));
    Ok(())
}
