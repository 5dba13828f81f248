//! `GET /files`: a file as a stream, read piece by piece as the client takes it.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::stream;

use super::{
    FileQuery, SandboxFile,
    encoding::{Compressor, wants_gzip},
};
use crate::doors::e2b::{error::E2bError, state::E2b, target::Target};

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
pub(in super::super) async fn download(
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
