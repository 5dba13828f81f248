//! `POST /files/compose`: one file of several, which are removed then.

use std::{collections::BTreeMap, sync::Arc};

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{SandboxFile, upload::Written};
use crate::doors::e2b::{error::E2bError, rpc::MessageOf, state::E2b, target::Target};

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
