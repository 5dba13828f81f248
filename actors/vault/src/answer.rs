//! Result types of the tool `vault`.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Result of an action; fields of other actions are absent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VaultResult {
    /// read, write, list, delete, frontmatter, tags, replace: as given.
    pub path: Option<String>,
    /// read: the text.
    pub content: Option<String>,
    /// read with format json, frontmatter: what the front matter says; after a change, as it is now.
    pub frontmatter: Option<Map<String, Value>>,
    /// read with format json, tags list: why the front matter cannot be parsed, with line and column. The rest of the answer is without it.
    pub frontmatter_error: Option<String>,
    /// write: how it was written.
    pub mode: Option<WriteMode>,
    /// write: whether the note is new.
    pub created: Option<bool>,
    /// read, write: the note's size now.
    pub size_bytes: Option<u64>,
    /// search: as given.
    pub query: Option<String>,
    /// search: how many results.
    pub result_count: Option<usize>,
    /// search: lines that match, by path and line.
    pub results: Option<Vec<SearchRow>>,
    /// search: notes that were read.
    pub notes_searched: Option<usize>,
    /// search: notes that were not searched and why, the first hundred.
    pub skipped: Option<Vec<SkippedRow>>,
    /// search: how many notes were not searched.
    pub skipped_count: Option<usize>,
    /// search, list, stats: whether there may be more than this. tags: true if there may be; the first 10,000 of a note are told, and of its text the first MiB is looked through.
    pub truncated: Option<bool>,
    /// search: which limit was met: `max_results`, `bytes`, `time` or `notes`.
    pub truncated_by: Option<String>,
    /// list: as given.
    pub recursive: Option<bool>,
    /// list, batch_read: how many.
    pub count: Option<usize>,
    /// list: notes and folders, by path.
    pub entries: Option<Vec<EntryRow>>,
    /// delete: always true; a note that could not be deleted is an error.
    pub deleted: Option<bool>,
    /// frontmatter set and delete, tags add and remove: whether the note is another now.
    pub changed: Option<bool>,
    /// tags: those of the front matter, then those of the text, each once; after a change, as they are now.
    pub tags: Option<Vec<String>>,
    /// tags: those that stand in the text as `#tag`.
    pub inline_tags: Option<Vec<String>>,
    /// replace: how many places.
    pub replacements: Option<usize>,
    /// move: whether it was; false where both paths are the same.
    pub moved: Option<bool>,
    /// move: as given.
    pub from: Option<String>,
    /// move: as given.
    pub to: Option<String>,
    /// batch_read: a row a path, in the order asked for.
    pub notes: Option<Vec<NoteRow>>,
    /// stats: notes.
    pub total_notes: Option<usize>,
    /// stats: folders.
    pub total_folders: Option<usize>,
    /// stats: of all notes together.
    pub total_size_bytes: Option<u64>,
    /// stats: the notes changed last, newest first.
    pub recent_files: Option<Vec<RecentRow>>,
}

/// Where written text goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// In place of what is there.
    #[default]
    Overwrite,
    /// At the end.
    Append,
    /// Before the text, after the front matter.
    Prepend,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchRow {
    /// The note.
    pub path: String,
    /// From 1.
    pub line_number: u64,
    /// The line; a very long one is cut, with how much is missing.
    pub line: String,
    /// The line with those around it.
    pub context: String,
}

/// A note that was not searched.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedRow {
    /// The note.
    pub path: String,
    /// Why not.
    pub reason: String,
}

/// A note or a folder.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntryRow {
    /// From the vault's root.
    pub path: String,
    /// A folder.
    pub is_dir: bool,
    /// In bytes; 0 of folders.
    pub size: u64,
}

/// Row of a note, where several are read.
#[serde_with::skip_serializing_none]
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NoteRow {
    /// Path, as given.
    pub path: String,
    /// The text.
    pub content: Option<String>,
    /// Keys and values of its front matter.
    pub frontmatter: Option<Map<String, Value>>,
    /// Why it, or its front matter, is missing.
    pub error: Option<String>,
}

/// A note, and when it was changed.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecentRow {
    /// From the vault's root.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// When its text was last changed.
    pub modified: DateTime<Utc>,
}
