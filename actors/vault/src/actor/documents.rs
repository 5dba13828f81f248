//! Document port of the vault: notes as `vault:///path/to/note.md`.

use async_trait::async_trait;
use cap_std::fs::{Metadata, MetadataExt};
use hivekeep_kernel::ToolError;
use hivekeep_runtime::documents::{
    Changed, Document, DocumentBody, DocumentListing, Documents, Page, Refusal, Stamp, StampResult,
    Template, arguments, decode,
};
use hivekeep_runtime::names::{KnownNames, MOST_NAMES, Names};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::VaultHandle;
use crate::Error;
use crate::codes;
use crate::path::{NotePath, note_uri, path_of_uri};

const TOOL: &str = "vault";
const MARKDOWN: &str = "text/markdown";
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

impl VaultHandle {
    /// Path in the URI of a note, existing or not.
    fn note(&self, uri: &str) -> Result<String, ToolError> {
        let path = path_of_uri(uri)?;
        self.0.rules.admit_note(&NotePath::parse(&path)?)?;
        Ok(path)
    }
}

impl Documents for VaultHandle {
    fn tool(&self) -> &'static str {
        TOOL
    }

    fn enabled(&self) -> bool {
        self.0.options.enabled
    }

    fn template(&self) -> Template {
        Template {
            uri: "vault:///{+path}",
            name: "note",
            title: "Notes in the vault",
            description: "A note by its path, with its extension: vault:///projects/plan.md",
            mime_type: MARKDOWN,
            variables: &[("path", "note")],
        }
    }

    fn listing(&self) -> Option<&dyn DocumentListing> {
        Some(self)
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        Ok(arguments(json!({ "action": "read", "path": self.note(uri)? })))
    }

    fn body(&self, _: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        decode::<Note>(answer).map(|note| note.content.into())
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        if error.is_any(&[codes::NOTE_NOT_FOUND, codes::WRONG_KIND]) {
            return Refusal::Missing;
        }
        let invalid = [
            codes::INVALID_INPUT,
            codes::INVALID_PATH,
            codes::NOT_A_NOTE,
            codes::NOT_TEXT,
            codes::NOTE_TOO_LARGE,
        ];
        if error.is_any(&invalid) { Refusal::Invalid } else { Refusal::Failed }
    }
}

#[async_trait]
impl DocumentListing for VaultHandle {
    fn list_tool(&self) -> &'static str {
        TOOL
    }

    fn list_args(&self, after: Option<&str>, limit: usize) -> Map<String, Value> {
        let mut args = json!({ "action": "list", "recursive": true, "notes_only": true });
        (args["after"], args["limit"]) = (after.into(), limit.into());
        arguments(args)
    }

    fn listed(&self, answer: Value) -> Result<Page, ToolError> {
        let Listed { entries, truncated } = decode(answer)?;
        let next = entries.last().filter(|_| truncated).map(|last| last.path.clone());
        let document = |entry: Entry| Document {
            uri: note_uri(&entry.path),
            name: entry.path,
            mime_type: MARKDOWN,
            size: entry.size,
        };
        Ok(Page { documents: entries.into_iter().map(document).collect(), next })
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.0.changes.subscribe()
    }

    async fn stamps(&self, uris: Vec<String>) -> Result<Vec<StampResult>, ToolError> {
        let paths: Vec<_> = uris.iter().map(|uri| self.note(uri)).collect::<Result<_, _>>()?;
        self.look(move |vault, _| {
            let numbers = |seen: Metadata| {
                Stamp([
                    seen.ino().cast_signed(),
                    seen.len().cast_signed(),
                    seen.ctime(),
                    seen.ctime_nsec(),
                ])
            };
            let stamp = |path: &String| match vault.folder.look(&NotePath::parse(path)?) {
                Ok(seen) => Ok(seen.map(numbers)),
                // A folder or a link of that name is not a note.
                Err(Error::WrongKind { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            };
            Ok(paths.iter().map(stamp).collect())
        })
        .await
    }
}

impl Names for VaultHandle {
    fn kind(&self) -> &'static str {
        "note"
    }

    fn tool(&self) -> &'static str {
        TOOL
    }

    fn args(&self) -> Map<String, Value> {
        self.list_args(None, MOST_NAMES)
    }

    fn known(&self, answer: Value) -> Result<KnownNames, ToolError> {
        let Listed { entries, truncated } = decode(answer)?;
        let names = entries.into_iter().map(|entry| entry.path).collect();
        Ok(KnownNames { names, complete: !truncated })
    }
}
