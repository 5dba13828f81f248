//! The context files of every fork of a swarm: a text of the caller's, and notes of the vault.

use hivekeep_kernel::{Layer, SwarmId, ToolError};
use hivekeep_runtime::OnBehalfOf;
use serde::Deserialize;
use serde_json::json;

use crate::{
    codes,
    shared::SwarmShared,
    swarm::state::ContextFile,
    tools::{SwarmVaultKind, SwarmVaultQuery},
};

const SHARED: (&str, &str) = ("/tmp/.shared-context", "SHARED_CONTEXT");
const VAULT: (&str, &str) = ("/tmp/.vault-context", "VAULT_CONTEXT");

/// Bound of each of the two files.
const MOST_BYTES: usize = 1024 * 1024;
/// Bound of the hits of one search.
const HITS: usize = 5;

/// Refuses what is too much by itself.
///
/// # Errors
/// `invalid_input`.
pub(super) fn check(queries: &[SwarmVaultQuery], shared: Option<&str>) -> Result<(), ToolError> {
    let bad = |query: &str| query.trim().is_empty();
    if let Some(at) = queries.iter().position(|one| bad(&one.query)) {
        return Err(ToolError::invalid(format!("vault_context[{at}].query is blank")));
    }
    if shared.is_some_and(|text| text.len() > MOST_BYTES) {
        return Err(ToolError::invalid(format!("shared_context: at most {MOST_BYTES} bytes")));
    }
    Ok(())
}

/// The variable that names a context's file.
pub(super) fn variable(context: &ContextFile) -> Option<(String, String)> {
    let known = [SHARED, VAULT].into_iter().find(|(path, _)| *path == context.path)?;
    Some((known.1.to_owned(), known.0.to_owned()))
}

#[derive(Deserialize)]
struct Hits {
    #[serde(default)]
    results: Vec<Hit>,
}

#[derive(Deserialize)]
struct Hit {
    path: String,
    line_number: u64,
    context: String,
}

#[derive(Deserialize)]
struct Note {
    content: String,
}

/// The files, with what the vault says now.
///
/// # Errors
/// As the vault; `context_too_large`.
pub(super) async fn gather(
    shared: &SwarmShared,
    id: SwarmId,
    caller: &OnBehalfOf,
    queries: Vec<SwarmVaultQuery>,
    text: Option<String>,
) -> Result<Vec<ContextFile>, ToolError> {
    let mut contexts = Vec::new();
    if let Some(content) = text {
        contexts.push(ContextFile { path: SHARED.0.to_owned(), content });
    }
    if queries.is_empty() {
        return Ok(contexts);
    }
    let mut content = String::new();
    for (at, SwarmVaultQuery { kind, query }) in queries.into_iter().enumerate() {
        let text = match kind {
            SwarmVaultKind::Search => search(shared, id, caller, &query).await,
            SwarmVaultKind::Read => note(shared, id, caller, &query).await,
        };
        content.push_str(&text.map_err(|error| error.detail("vault_context", at))?);
        if content.len() > MOST_BYTES {
            let message = format!("vault_context[{at}]: more than {MOST_BYTES} bytes together");
            return Err(ToolError::new(Layer::Actor, codes::CONTEXT_TOO_LARGE, message)
                .next("ask for less; nothing was forked"));
        }
    }
    contexts.push(ContextFile { path: VAULT.0.to_owned(), content });
    Ok(contexts)
}

async fn search(
    shared: &SwarmShared,
    id: SwarmId,
    caller: &OnBehalfOf,
    query: &str,
) -> Result<String, ToolError> {
    let args = json!({ "action": "search", "query": query, "max_results": HITS });
    let hits: Hits = shared.tools.call(id, caller, "vault", args).await?;
    let mut text = format!("# Search: {query}\n\n");
    if hits.results.is_empty() {
        text.push_str("Nothing was found.\n\n");
    }
    for Hit { path, line_number, context } in hits.results.into_iter().take(HITS) {
        text.push_str(&format!("## {path}:{line_number}\n\n{}\n\n", context.trim_end()));
    }
    Ok(text)
}

async fn note(
    shared: &SwarmShared,
    id: SwarmId,
    caller: &OnBehalfOf,
    path: &str,
) -> Result<String, ToolError> {
    let args = json!({ "action": "read", "path": path });
    let Note { content } = shared.tools.call(id, caller, "vault", args).await?;
    Ok(format!("# Note: {path}\n\n{}\n\n", content.trim_end()))
}
