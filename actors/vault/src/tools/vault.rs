//! Declaration of the tool `vault`, with one action per operation on notes.

use hivekeep_kernel::tools;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::VaultResult;
use crate::keeper::VaultActor;

/// Read, write, search and organise a shared folder of Markdown notes that outlives workspaces and
/// sessions. Paths are relative to the vault, as in `projects/plan.md`. Each write is whole and on
/// the disk when it is answered. Front matter and tags are edited in place: comments, order and
/// everything else of the note stay as they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VaultCall {
    /// What to do.
    pub action: Action,
    /// The call is confined to what this member of a team has: `team/member`. Its paths begin at the folder `teams/<team>`, and nothing outside of that is read, found or changed. Default: the whole vault.
    pub as_member: Option<String>,
    /// read, write, delete, frontmatter, tags, replace, move: the note. read, and paths of batch_read: also a card that the daemon keeps of a team's member, `teams/<team>/cards/<member>.json`. list: the folder; default: the whole vault.
    pub path: Option<String>,
    /// read: `markdown`, the default, is the text alone; `json` also answers the parsed front matter.
    pub format: Option<Format>,
    /// write: the text. Nothing is added to it, no newline either.
    pub content: Option<String>,
    /// write: `overwrite`, the default; `append` at the end; `prepend` before the text, but after the front matter. A note that is not there is made, with its folders.
    pub mode: Option<WriteMode>,
    /// search: what a line has to have, 1 to 1024 characters.
    pub query: Option<String>,
    /// search: `query` is a regular expression. replace: `old_string` is one, `^` and `$` are the ends of lines, and `$1` or `${name}` in `new_string` its groups. Default: false.
    pub regex: Option<bool>,
    /// search: whether capital and small letters differ. Default: true.
    pub case_sensitive: Option<bool>,
    /// search: only where the match begins and ends at the edges of words. Default: false.
    pub whole_word: Option<bool>,
    /// search: lines shown before and after each match, 0 to 20. Default: 2.
    pub context_lines: Option<u8>,
    /// search: only notes in this folder. list: the same as `path`.
    pub path_prefix: Option<String>,
    /// search: only notes with this tag, or with one below it (`a` finds `a/b`). tags: the tag to add or remove, with or without `#`.
    pub tag: Option<String>,
    /// search: the most matches to answer. 0: as many as the daemon allows. Default: 20.
    pub max_results: Option<u32>,
    /// list: also what is in its folders, at any depth. Default: false.
    pub recursive: Option<bool>,
    /// list: leave out the folders. Default: false.
    pub notes_only: Option<bool>,
    /// list: only what comes after this path, in the order of the paths: the last one of an answer that was truncated goes on there.
    pub after: Option<String>,
    /// list: the most entries to answer, 1 to 10000. Default: 10000.
    pub limit: Option<u32>,
    /// delete: has to be true. There is no way back.
    pub confirm: Option<bool>,
    /// frontmatter: `get` answers all of it, `set` and `delete` change one key.
    pub frontmatter_action: Option<FrontmatterAction>,
    /// frontmatter set, delete: the key, one of the outermost.
    pub key: Option<String>,
    /// frontmatter set: the new value, any JSON.
    #[serde(default, deserialize_with = "given")]
    pub value: Option<Value>,
    /// tags: `list` answers those of the front matter and of the text, `add` and `remove` change the front matter.
    pub tags_action: Option<TagsAction>,
    /// replace: what to replace, wherever it is.
    pub old_string: Option<String>,
    /// replace: what to put there.
    pub new_string: Option<String>,
    /// move: where to; folders on the way are made.
    pub new_path: Option<String>,
    /// move: replace what is there. Default: false.
    pub overwrite: Option<bool>,
    /// batch_read: 1 to 10 notes.
    pub paths: Option<Vec<String>>,
    /// batch_read: answer the texts. Default: true.
    pub include_content: Option<bool>,
    /// batch_read: answer the parsed front matter. Default: true.
    pub include_frontmatter: Option<bool>,
    /// stats: how many of the notes changed last to show, at most 1000. Default: 10.
    pub recent_count: Option<u32>,
}

/// Accepts `null` as a value.
fn given<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

/// What to do with the vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Show a note.
    Read,
    /// Make or change one.
    Write,
    /// Find lines in all notes.
    Search,
    /// Show what a folder has.
    List,
    /// Remove a note.
    Delete,
    /// Read or change front matter.
    Frontmatter,
    /// Read or change tags.
    Tags,
    /// Replace text in a note.
    Replace,
    /// Move or rename a note.
    Move,
    /// Show several notes.
    BatchRead,
    /// Show how much there is, and what changed last.
    Stats,
}

/// How a note is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The text.
    #[default]
    Markdown,
    /// The text and the parsed front matter.
    Json,
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

/// What to do with front matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrontmatterAction {
    /// Show all of it.
    Get,
    /// Set a key.
    Set,
    /// Remove a key.
    Delete,
}

/// What to do with tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TagsAction {
    /// Show them.
    List,
    /// Add one to the front matter.
    Add,
    /// Remove one from the front matter.
    Remove,
}

tools! { pub FAMILY: "vault" for VaultActor, singleton vault;
    vault: VaultCall => VaultResult = VaultActor::on_vault {
        title: "Notes in the vault", effect: Destroy, risk: Risk::Medium,
        // Size of the largest note, with every character escaped as often as text is.
        result_budget_bytes: 40 * 1024 * 1024,
    };
}
