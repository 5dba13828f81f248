//! Note operations behind the tool's actions, each a blocking function over the folder. Operations
//! that change a note run one at a time for each note; see [`crate::keyed_queue`].

mod change;
mod look;
mod replace;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::folder::{FileContents, VaultFolder, WritePrecondition};
use crate::front::{self, MalformedFrontMatter};
use crate::path::{NotePath, Scope};
use crate::{Error, tags};

pub(crate) use change::WritePosition;
pub(crate) use look::{ListingParams, MOST_ROWS};
pub(crate) use replace::TextReplacement;

/// Maximum number of attempts at a change when another program changes the note in between.
const ATTEMPTS: usize = 3;

/// Vault as one caller sees it.
#[derive(Clone)]
pub(crate) struct VaultView {
    pub(crate) folder: Arc<VaultFolder>,
    pub(crate) scope: Scope,
}

/// Text of a note, with the condition for saving it.
pub(crate) struct NoteText {
    pub(crate) text: String,
    expect: WritePrecondition,
}

/// Tags of a note.
pub(crate) struct NoteTags {
    pub(crate) all: Vec<String>,
    pub(crate) inline: Vec<String>,
    /// True if there may be more of either.
    pub(crate) more: bool,
    /// Front matter error; the tags of the front matter are then missing.
    pub(crate) malformed: Option<MalformedFrontMatter>,
}

impl VaultView {
    pub(crate) fn read(&self, path: &NotePath) -> Result<NoteText, Error> {
        let FileContents { bytes, stamp } = self.folder.read(path)?;
        let text = String::from_utf8(bytes).map_err(|error| Error::NotText {
            path: path.to_string(),
            at: error.utf8_error().valid_up_to(),
        })?;
        Ok(NoteText { text, expect: WritePrecondition::Same(stamp) })
    }

    /// Parsed front matter of a note.
    pub(crate) fn front(&self, path: &NotePath) -> Result<Map<String, Value>, Error> {
        front::read(&self.read(path)?.text).map_err(malformed(path))
    }

    pub(crate) fn tags(
        &self,
        path: &NotePath,
        stopped: &dyn Fn() -> bool,
    ) -> Result<NoteTags, Error> {
        let text = self.read(path)?.text;
        let (front, malformed) = match front::read(&text) {
            Ok(front) => (front, None),
            Err(wrong) => (Map::new(), Some(wrong)),
        };
        let inline = tags::inline(&text, stopped)?;
        let all = tags::all(&front, &inline);
        Ok(NoteTags { all: all.tags, inline: inline.tags, more: all.more, malformed })
    }
}

fn malformed(path: &NotePath) -> impl FnOnce(MalformedFrontMatter) -> Error {
    let path = path.to_string();
    move |what| Error::Malformed { path, what }
}
