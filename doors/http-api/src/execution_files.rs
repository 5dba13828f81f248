//! Links to files of executions: whoever has one gets that file, without a credential, until it expires.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use futures::stream;
use hivekeep_door_server::{
    DaemonServices,
    http::{
        caller::BearerToken,
        door::{DoorError, DoorListener, HTTP},
        links::SigningKey,
    },
};
use hivekeep_kernel::{ToolError, User};
use hivekeep_ports::{ExecutionFileLinks, ExecutionFiles, FilePart, KnownUsers};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{error::ApiError, extract::QueryOf, state::Api};

/// Path of the route.
pub(super) const PATH: &str = "/api/execution-file";

/// Links that this door serves.
struct ServedLinks {
    /// URL up to the path.
    base: String,
    key: SigningKey,
}

/// Offers links to whoever has a file to give. A door at all addresses is named by the first host that the operator
/// allows.
pub(super) fn offer(core: &DaemonServices, listener: &DoorListener) -> Result<(), DoorError> {
    let named = core.config.http.allowed_hosts.first();
    let named = named.filter(|_| listener.address.ip().is_unspecified());
    let host = match named {
        Some(name) if name.contains(':') => name.clone(),
        Some(name) => format!("{name}:{}", listener.address.port()),
        None => listener.address.to_string(),
    };
    let base = format!("{}://{host}", listener.scheme(HTTP));
    // The secret is that of links to ports, which open other things.
    let secret = BearerToken::load_or_create(&core.folders.port_url_key())?;
    let links = ServedLinks { base, key: SigningKey::new(&secret) };
    core.ports.offer::<dyn ExecutionFileLinks>(Arc::new(links));
    Ok(())
}

fn opened(user: User, execution: &str, path: &str) -> String {
    format!("hivekeep execution file 1\n{user}\n{execution}\n{path}")
}

impl ExecutionFileLinks for ServedLinks {
    fn link(&self, user: User, execution: &str, path: &str, until: DateTime<Utc>) -> String {
        let token = self.key.sign(&opened(user, execution, path), until);
        let path = utf8_percent_encode(path, NON_ALPHANUMERIC);
        format!("{}{PATH}?execution={execution}&path={path}&token={token}", self.base)
    }

    fn opens(&self, user: User, execution: &str, path: &str, token: &str) -> bool {
        self.key.verify(&opened(user, execution, path), token).is_some()
    }
}

/// A file, and what opens it.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FileQuery {
    /// Id of the execution.
    execution: String,
    /// Path below its `/workspace`.
    path: String,
    /// Token of the link.
    token: String,
}

/// Download a file of an execution by a link of `aegis.execution.file`.
#[utoipa::path(
    get, path = "/api/execution-file", tag = "hivekeep", operation_id = "downloadExecutionFile",
    security(()), params(FileQuery),
    responses(
        (status = 200, description = "The file.", body = String, content_type = "application/octet-stream"),
        (status = 403, description = "The link has expired, or is for another file.", body = super::published::PlainErrorBody),
    ),
)]
pub(super) async fn download(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<FileQuery>,
) -> Result<Response, ApiError> {
    let ports = &api.core.ports;
    let FileQuery { execution, path, token } = &query;
    let files = ports.find::<dyn ExecutionFiles>();
    let opens = |user: &User| {
        let links = ports.find::<dyn ExecutionFileLinks>();
        links.is_some_and(|links| links.opens(*user, execution, path, token))
            && ports.find::<dyn KnownUsers>().is_none_or(|users| users.knows(*user))
    };
    let opened = files.filter(|files| files.user(execution).is_some_and(|user| opens(&user)));
    let Some(files) = opened else {
        let why = "the link has expired, or is for another file";
        return Err(ApiError::plain(StatusCode::FORBIDDEN, why));
    };
    let first = files.read(execution, path, 0).await?;
    let name = path.rsplit('/').next().unwrap_or_default();
    let disposition = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let disposition = format!("attachment; filename*=UTF-8''{disposition}");
    let size_bytes = first.size_bytes;
    let download = Download { files, query, next: None, ahead: Some(first), size_bytes };
    let parts = stream::try_unfold(download, |mut download| async move {
        let part = download.part().await.map_err(|error| std::io::Error::other(error.to_text()))?;
        Ok::<_, std::io::Error>(part.map(|part| (part, download)))
    });
    let mut answer = Body::from_stream(parts).into_response();
    let headers = answer.headers_mut();
    // Nothing of an agent's is shown as a page of this host.
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size_bytes));
    headers.extend(HeaderValue::from_str(&disposition).map(|it| (header::CONTENT_DISPOSITION, it)));
    Ok(answer)
}

/// A download under way.
struct Download {
    files: Arc<dyn ExecutionFiles>,
    query: FileQuery,
    /// Part that was read and not sent.
    ahead: Option<FilePart>,
    /// First byte of the next part.
    next: Option<u64>,
    /// Size of the file when the download began.
    size_bytes: u64,
}

impl Download {
    /// The next part; `None` at the end. A failure breaks the connection: a body that ends early would look whole.
    async fn part(&mut self) -> Result<Option<Bytes>, ToolError> {
        let part = match (self.ahead.take(), self.next) {
            (Some(ahead), _) => ahead,
            (None, None) => return Ok(None),
            (None, Some(from)) => {
                self.files.read(&self.query.execution, &self.query.path, from).await?
            }
        };
        if part.size_bytes != self.size_bytes {
            return Err(ToolError::internal("the file has changed while it was read"));
        }
        self.next = part.next;
        Ok(Some(part.bytes.into()))
    }
}
