//! Contents of files, over HTTP: `/files` of the published data plane, for whoever has the sandbox's token, or a URL
//! that was signed with it. A download is a stream, read piece by piece as the client takes it.

mod encoding;
mod form;
mod upload;

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use chrono::Utc;
use futures::stream;
use hivekeep_door_server::{
    credentials::{CredentialRow, CredentialScope},
    tool_calls::part_of,
};
use serde::Deserialize;
use serde_json::json;

pub(super) use upload::{compose, upload};

use super::{
    access::{FileOperation, SignedFile, refused},
    error::E2bError,
    state::{E2b, Owner},
    target::Target,
};
use encoding::{Compressor, wants_gzip};

/// Bytes of one read or write.
const PIECE_BYTES: usize = 1024 * 1024;

/// Query of a request about a file.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct FileQuery {
    #[serde(default)]
    path: String,
    #[serde(default)]
    username: String,
    signature: Option<String>,
    signature_expiration: Option<i64>,
}

/// A part of a file.
#[derive(Debug, Deserialize)]
struct Piece {
    content_base64: String,
    bytes: u64,
    next: Option<u64>,
}

/// A file of a sandbox.
#[derive(Clone)]
pub(super) struct SandboxFile {
    e2b: Arc<E2b>,
    owner: Owner,
    place: String,
    path: String,
}

impl SandboxFile {
    pub(super) fn new(e2b: Arc<E2b>, target: &Target, path: &str) -> Self {
        let (owner, place) = (target.owner.clone(), target.place("/"));
        Self { e2b, owner, place, path: path.to_owned() }
    }

    /// Bytes from a cursor on, the size of the whole, and where to go on.
    pub(super) async fn read(&self, from: u64) -> Result<(Bytes, u64, Option<u64>), E2bError> {
        let asked = json!({
            "place": self.place, "path": self.path, "from": from, "max_bytes": PIECE_BYTES,
        });
        let piece = self.e2b.call_in_turn(&self.owner, "fs.get", asked).await?;
        let Piece { content_base64, bytes, next } = part_of("fs.get", piece)?;
        let content = STANDARD.decode(content_base64);
        let content = content.map_err(|_| E2bError::invalid("the file could not be read"))?;
        Ok((content.into(), bytes, next))
    }
}

impl E2b {
    /// Sandbox of a request about a file.
    ///
    /// # Errors
    /// Without a token and a signature, or with one that is not valid or has expired.
    pub(super) async fn file_target(&self, parts: &Parts) -> Result<Target, E2bError> {
        let query = Query::<FileQuery>::try_from_uri(&parts.uri);
        let Query(query) = query.map_err(|error| E2bError::invalid(error.body_text()))?;
        let operation = match parts.method == Method::POST {
            true => FileOperation::Write,
            false => FileOperation::Read,
        };
        let user = self.user(&query.username)?;
        let named = self.sandbox_named(parts)?;
        if let (Some(sandbox), true) = (&named, parts.headers.contains_key("x-access-token")) {
            let owner = self.bearer(&parts.headers, &sandbox.id).await?;
            let user = match query.username.is_empty() {
                true => self.user_named(&parts.headers)?,
                false => user,
            };
            return Ok(Target { owner, id: sandbox.id.clone(), user });
        }
        let Some(signature) = &query.signature else {
            return Err(refused("neither `X-Access-Token` nor a signature was given"));
        };
        let FileQuery { path, username, signature_expiration: expires, .. } = &query;
        let file = SignedFile { path, operation, user: username, expires: *expires };
        let named = named.as_ref().map(|sandbox| &*sandbox.id);
        let (row, id) = self.signer(named, file, signature)?;
        if expires.is_some_and(|at| at < Utc::now().timestamp()) {
            return Err(refused("signature is already expired"));
        }
        Ok(Target { owner: self.owner_of(&row).await?, id, user })
    }

    /// The credential and the sandbox by whose token a URL was signed. One URL may serve all sandboxes, and then
    /// names none.
    fn signer(
        &self,
        named: Option<&str>,
        file: SignedFile<'_>,
        signature: &str,
    ) -> Result<(CredentialRow, String), E2bError> {
        let (workspaces, invalid) = (self.directory()?, || refused("invalid signature"));
        let named = named.map(|name| self.workspace(name)).transpose();
        let named = named.map_err(|_| invalid())?.map(|found| found.id);
        for row in self.core.credentials.list() {
            // Tokens of others open nothing.
            if !matches!(row.scope, CredentialScope::Operator | CredentialScope::Session) {
                continue;
            }
            let ids = named.map_or_else(|| workspaces.of_user(row.user()), |id| vec![id]);
            let signed = |id: &_| self.tokens.has_signed((row.id, *id), file, signature);
            if let Some(id) = ids.into_iter().find(signed) {
                let found = workspaces.find(&id.to_string()).ok_or_else(invalid)?;
                return Ok((row, found.name));
            }
        }
        Err(invalid())
    }
}

/// A download under way.
struct Download {
    file: SandboxFile,
    /// Bytes that were read and not sent.
    ahead: Option<Bytes>,
    next: Option<u64>,
    /// Size of the file when the download began.
    bytes: u64,
    compressor: Option<Compressor>,
}

impl Download {
    /// The next piece of the answer; `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, E2bError> {
        loop {
            let piece = match (self.ahead.take(), self.next) {
                (Some(ahead), _) => ahead,
                (None, Some(from)) => {
                    let (piece, bytes, next) = self.file.read(from).await?;
                    if bytes != self.bytes {
                        return Err(E2bError::invalid("the file has changed while it was read"));
                    }
                    self.next = next;
                    piece
                }
                (None, None) => return Ok(self.compressor.take().map(Compressor::finish)),
            };
            let piece = match &mut self.compressor {
                None => piece,
                Some(compressor) => compressor.push(&piece),
            };
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }
}

/// `GET /files`.
pub(super) async fn download(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    Query(query): Query<FileQuery>,
    headers: HeaderMap,
) -> Result<Response, E2bError> {
    let Ok(gzip) = wants_gzip(&headers) else {
        let why = "no acceptable encoding found, supported: [identity, gzip]";
        let body = serde_json::json!({ "code": 406, "message": why });
        return Ok((StatusCode::NOT_ACCEPTABLE, axum::Json(body)).into_response());
    };
    let path = e2b.absolute(&target, &query.path).await?;
    let file = SandboxFile::new(e2b, &target, &path);
    let (first, bytes, next) = file.read(0).await?;
    let compressor = gzip.then(Compressor::new);
    let download = Download { file, ahead: Some(first), next, bytes, compressor };
    let pieces = stream::try_unfold(download, |mut download| async move {
        let piece = download.piece().await.map_err(|error| std::io::Error::other(error.message))?;
        Ok::<_, std::io::Error>(piece.map(|piece| (piece, download)))
    });
    let mut answer = Body::from_stream(pieces).into_response();
    let headers = answer.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    // Nothing of a sandbox is shown as a page of this host.
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
    let disposition = format!("attachment; filename*=UTF-8''{name}");
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    match gzip {
        true => headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip")),
        false => headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes)),
    };
    Ok(answer)
}
