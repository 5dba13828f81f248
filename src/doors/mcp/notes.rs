//! The notes of the vault as resources, `vault:///path/to/note.md`.
//!
//! A resource is listed and read by calls of the tool `vault` in the client's session, so that what
//! holds for the tool holds for it: toolset, policy, rates, redaction, audit. Who is not shown the
//! tool is offered no resources.

use hivekeep_kernel::{Progress, ToolError};
use hivekeep_registry::CallRequest;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::{
    ErrorData, RoleServer,
    model::{
        ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
        ResourcesCapability,
    },
    service::RequestContext,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Handler, answer};

const TOOL: &str = "vault";
const ROOT: &str = "vault:///";
const MARKDOWN: &str = "text/markdown";
/// Notes in one page.
const PAGE: usize = 200;
/// What a cursor begins with; clients must not make sense of it.
const CURSOR: &str = "after-";
/// What cannot stand in the path of a URI as it is (RFC 3986, 3.3).
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The URI of a note.
fn uri(path: &str) -> String {
    format!("{ROOT}{}", utf8_percent_encode(path, ESCAPED))
}

/// The path in a URI. Whether it is one of a note is for the vault to say.
pub(super) fn path(uri: &str) -> Result<String, ErrorData> {
    let bad = |why: &str| ErrorData::invalid_params(format!("`{uri}` {why}"), None);
    let path = uri.strip_prefix(ROOT).ok_or_else(|| bad("is none of vault:///path/to/note.md"))?;
    if path.contains(['?', '#']) {
        return Err(bad("has a query or a fragment"));
    }
    let path = percent_decode_str(path).decode_utf8();
    path.map(Into::into).map_err(|_| bad("is not UTF-8 when it is decoded"))
}

/// What is declared of them.
pub(super) fn capability() -> ResourcesCapability {
    let mut capability = ResourcesCapability::default();
    (capability.subscribe, capability.list_changed) = (Some(true), Some(true));
    capability
}

/// How a note's URI is made.
pub(super) fn template() -> ResourceTemplate {
    ResourceTemplate::new("vault:///{+path}", "note")
        .with_title("Notes in the vault")
        .with_description("A note by its path, with its extension: vault:///projects/plan.md")
        .with_mime_type(MARKDOWN)
}

#[derive(Deserialize)]
struct Listed {
    entries: Vec<Entry>,
    truncated: bool,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    size: u64,
}

#[derive(Deserialize)]
struct Note {
    content: String,
}

impl Handler {
    /// Whether there are notes, and the client is shown the tool for them.
    pub(super) fn offers_notes(&self) -> bool {
        let tool = self.0.core.catalogue.find(TOOL);
        self.0.core.notes.enabled() && tool.is_some_and(|entry| self.0.view.shows(entry.info))
    }

    /// A page of the notes, by path.
    pub(super) async fn list_notes(
        &self,
        cursor: Option<String>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let after = match &cursor {
            None => None,
            Some(cursor) => Some(cursor.strip_prefix(CURSOR).ok_or_else(|| {
                ErrorData::invalid_params("unknown cursor: list from the start", None)
            })?),
        };
        let mut args = json!({ "action": "list", "recursive": true, "notes_only": true });
        (args["after"], args["limit"]) = (after.into(), PAGE.into());
        let listed: Listed = self.vault(args, context).await?.map_err(answer::protocol)?;
        let page = listed.entries;
        let mut result = ListResourcesResult::with_all_items(page.iter().map(resource).collect());
        let last = page.last().filter(|_| listed.truncated);
        result.next_cursor = last.map(|last| format!("{CURSOR}{}", last.path));
        Ok(result)
    }

    /// A note as it is.
    pub(super) async fn read_note(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let args = json!({ "action": "read", "path": path(&uri)? });
        let read: Result<Note, _> = self.vault(args, context).await?;
        let note = read.map_err(|error| refused(&uri, error))?;
        let contents = ResourceContents::text(note.content, uri).with_mime_type(MARKDOWN);
        Ok(ReadResourceResult::new(vec![contents]))
    }

    async fn vault<T: DeserializeOwned>(
        &self,
        args: Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Result<T, ToolError>, ErrorData> {
        let session = self.session(|| answer::client_name(context.client_info())).await?;
        let Value::Object(args) = args else { unreachable!("it is written as an object") };
        let call = self.0.core.dispatcher.call(CallRequest {
            session,
            door: self.0.door,
            tool: TOOL.to_owned(),
            args,
            progress: Progress::default(),
            cancel: context.ct.clone(),
            timeout: None,
            view: self.0.view.clone(),
        });
        let read = |value| {
            let read = serde_json::from_value(value);
            read.map_err(|error| ToolError::internal(format!("the answer of `{TOOL}`: {error}")))
        };
        Ok(call.await.result.and_then(read))
    }
}

fn resource(note: &Entry) -> Resource {
    Resource::new(uri(&note.path), note.path.clone()).with_mime_type(MARKDOWN).with_size(note.size)
}

/// A note that is not read, in the protocol's codes.
pub(super) fn refused(uri: &str, error: ToolError) -> ErrorData {
    let (text, code) = (error.to_text(), error.code.clone());
    let data = Some(json!({ "uri": uri, "error": error }));
    match code.as_ref() {
        "note_not_found" | "wrong_kind" => ErrorData::resource_not_found(text, data),
        "invalid_path" | "not_a_note" | "not_text" | "note_too_large" => {
            ErrorData::invalid_params(text, data)
        }
        _ => ErrorData::internal_error(text, data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uri_is_in_the_standard_form_and_goes_back_to_its_path() {
        assert_eq!(uri("a b/100% #1?.md"), "vault:///a%20b/100%25%20%231%3F.md");
        assert_eq!(uri("ideen/größe.md"), "vault:///ideen/gr%C3%B6%C3%9Fe.md");
        for bad in ["file:///a.md", "vault://a.md", "vault:///a.md?x", "vault:///a.md#x", "a.md"] {
            assert_eq!(path(bad).expect_err(bad).code, rmcp::model::ErrorCode::INVALID_PARAMS);
        }
        assert!(path("vault:///%ff.md").is_err(), "no UTF-8");
        // Another spelling of the same.
        assert_eq!(path("vault:///%61.md").expect("a path"), "a.md");
    }

    proptest! {
        #[test]
        fn every_path_has_a_uri(given in "\\PC{0,40}") {
            let uri = uri(&given);
            prop_assert!(uri.is_ascii() && !uri.contains(' '));
            prop_assert_eq!(path(&uri).expect("its own"), given);
        }
    }
}
