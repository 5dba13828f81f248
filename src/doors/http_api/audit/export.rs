//! `GET /api/audit/export`: the log as JSON lines, read no faster than its client reads.

use std::{io, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use hivekeep_audit::Filter;
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::{
    super::{
        error::ApiError,
        extract::{OperatorOnly, QueryOf},
        published::ToolErrorBody,
        state::Api,
    },
    AuditQuery, AuditReader, SETTLING,
};

/// Bytes that are sent at once, about.
const PART_BYTES: usize = 64 * 1024;
/// Parts that wait for the client.
const PARTS: usize = 2;

/// Where an export begins.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in super::super) struct ExportQuery {
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
pub(in super::super) async fn export(
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
