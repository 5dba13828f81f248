//! Files as they come, in one body or as the parts of a form, and one composed of several, which are removed then.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, header},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    FileQuery, PIECE_BYTES, SandboxFile,
    encoding::{DecodedBody, Decoder},
    form::FormFiles,
};
use crate::{
    error::{E2bError, Kind},
    filesystem::entry::METADATA_PREFIX,
    rpc::MessageOf,
    state::E2b,
    target::Target,
};

/// Beginning of the headers with metadata.
const METADATA_HEADER: &str = "x-metadata-";
/// Files of one form.
const MOST_FILES: usize = 1_000;

/// A file that is being written. Its first piece takes the place of what was there, the others come behind it: an
/// upload that breaks leaves what had come.
pub(super) struct Written {
    file: SandboxFile,
    metadata: BTreeMap<String, String>,
    buffer: BytesMut,
    at: u64,
    most_bytes: u64,
}

impl Written {
    pub(super) fn new(file: SandboxFile, metadata: BTreeMap<String, String>) -> Self {
        let most_bytes = file.e2b.options.max_file_mb * 1024 * 1024;
        Self { file, metadata, buffer: BytesMut::new(), at: 0, most_bytes }
    }

    pub(super) async fn push(&mut self, piece: &[u8]) -> Result<(), E2bError> {
        self.buffer.extend_from_slice(piece);
        while self.buffer.len() > PIECE_BYTES {
            let piece = self.buffer.split_to(PIECE_BYTES);
            self.put(&piece).await?;
        }
        if self.at + self.buffer.len() as u64 > self.most_bytes {
            let why = "the file is larger than `http.e2b.max_file_mb` allows";
            return Err(E2bError::new(Kind::ResourceExhausted, why));
        }
        Ok(())
    }

    async fn put(&mut self, piece: &[u8]) -> Result<(), E2bError> {
        let mut asked = json!({
            "place": self.file.place, "path": self.file.path, "at": self.at,
            "content_base64": STANDARD.encode(piece),
        });
        if self.at == 0 {
            asked["metadata"] = json!(self.metadata);
        }
        self.file.e2b.call_in_turn(&self.file.owner, "fs.put", asked).await?;
        self.at += piece.len() as u64;
        Ok(())
    }

    /// Writes what is left; an empty file is one, too.
    pub(super) async fn finish(mut self) -> Result<(), E2bError> {
        let rest = self.buffer.split();
        match rest.is_empty() && self.at > 0 {
            true => Ok(()),
            false => self.put(&rest).await,
        }
    }
}

/// Metadata of a request's headers, in their namespace.
fn metadata(headers: &HeaderMap) -> Result<BTreeMap<String, String>, E2bError> {
    let mut metadata = BTreeMap::new();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(METADATA_HEADER) else { continue };
        let value = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
        if key.is_empty() || !value.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            let why = format!("the metadata `{key}` is not printable ASCII");
            return Err(E2bError::invalid(why));
        }
        let value = String::from_utf8_lossy(value).into_owned();
        metadata.insert(format!("{METADATA_PREFIX}{key}"), value);
    }
    Ok(metadata)
}

/// `POST /files`.
pub(in super::super) async fn upload(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    Query(query): Query<FileQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, E2bError> {
    let metadata = metadata(&headers)?;
    let mut content = DecodedBody::new(body, Decoder::of(&headers)?);
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let paths = match kind.map(multer::parse_boundary) {
        Some(Ok(boundary)) => {
            let form = FormFiles::new(content, boundary);
            write_form(&e2b, &target, &query.path, &metadata, form).await?
        }
        _ if query.path.is_empty() => return Err(E2bError::invalid("`path` is missing")),
        _ => {
            let path = e2b.absolute(&target, &query.path).await?;
            let file = SandboxFile::new(e2b.clone(), &target, &path);
            let mut written = Written::new(file, metadata.clone());
            while let Some(piece) = content.part().await? {
                written.push(&piece).await?;
            }
            written.finish().await?;
            vec![path]
        }
    };
    let mut told = Vec::with_capacity(paths.len());
    for path in paths {
        let name = path.rsplit('/').next().unwrap_or_default();
        let mut entry = json!({ "path": path, "name": name, "type": "file" });
        if !metadata.is_empty() {
            entry["metadata"] = json!(e2b.entry(&target, &path).await?.metadata());
        }
        told.push(entry);
    }
    Ok(Json(told.into()))
}

/// Writes the files of a form; each is named by the query, or by its own part.
async fn write_form(
    e2b: &Arc<E2b>,
    target: &Target,
    path: &str,
    metadata: &BTreeMap<String, String>,
    mut form: FormFiles,
) -> Result<Vec<String>, E2bError> {
    let mut paths = Vec::new();
    while let Some(mut part) = form.next().await? {
        let named = if path.is_empty() { part.name() } else { path };
        if named.is_empty() || paths.len() >= MOST_FILES {
            return Err(E2bError::invalid("a file of the form has no path, or there are too many"));
        }
        let named = e2b.absolute(target, named).await?;
        if paths.contains(&named) {
            let why = format!("you cannot upload multiple files to the same path '{named}'");
            return Err(E2bError::invalid(why));
        }
        let file = SandboxFile::new(e2b.clone(), target, &named);
        let mut written = Written::new(file, metadata.clone());
        while let Some(piece) = part.piece().await? {
            written.push(&piece).await?;
        }
        written.finish().await?;
        paths.push(named);
    }
    Ok(paths)
}

/// Files that one is made of.
const MOST_SOURCES: usize = 1_000;

#[derive(Debug, Deserialize)]
pub(in super::super) struct ComposeBody {
    source_paths: Vec<String>,
    destination: String,
    #[serde(default)]
    username: String,
}

/// `POST /files/compose`.
pub(in super::super) async fn compose(
    State(e2b): State<Arc<E2b>>,
    target: Target,
    MessageOf(body): MessageOf<ComposeBody>,
) -> Result<Json<Value>, E2bError> {
    let ComposeBody { source_paths, destination, username } = body;
    if source_paths.is_empty() || source_paths.len() > MOST_SOURCES {
        let why = format!("`source_paths` should have from 1 to {MOST_SOURCES} paths");
        return Err(E2bError::invalid(why));
    }
    let target = match username.is_empty() {
        true => target,
        false => target.with_user(e2b.user(&username)?),
    };
    let path = e2b.absolute(&target, &destination).await?;
    let mut sources = Vec::with_capacity(source_paths.len());
    for source in &source_paths {
        sources.push(e2b.absolute(&target, source).await?);
    }
    if sources.contains(&path) {
        return Err(E2bError::invalid("`destination` is one of `source_paths`"));
    }
    let mut written = Written::new(SandboxFile::new(e2b.clone(), &target, &path), BTreeMap::new());
    for source in &sources {
        let file = SandboxFile::new(e2b.clone(), &target, source);
        let mut next = Some(0);
        while let Some(from) = next {
            let (piece, _, rest) = file.read(from).await?;
            written.push(&piece).await?;
            next = rest;
        }
    }
    written.finish().await?;
    for source in &sources {
        let asked = json!({ "place": target.place("/"), "path": source });
        e2b.call(&target.owner, "fs.delete", asked).await?;
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    Ok(Json(json!({ "path": path, "name": name, "type": "file" })))
}
