//! The tool `vault`, with one action per operation on notes.

use hivekeep_kernel::{ToolGroup, ToolInfo, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::actor::VaultActor;
use crate::answer::{VaultResult, WriteMode};
use crate::ops::MOST_ROWS;

pub(crate) const FAMILIES: &[&ToolGroup<VaultActor>] = &[&FAMILY];

/// All tools of this crate.
pub fn catalogue() -> Vec<&'static ToolInfo> {
    FAMILIES.iter().flat_map(|family| family.rows).map(|row| &row.0).collect()
}

/// Read, write, search and organise a shared folder of Markdown notes that outlives workspaces and
/// sessions. Paths are relative to the vault, as in `projects/plan.md`. Each write is whole and on
/// the disk when it is answered. Front matter and tags are edited in place: comments, order and
/// everything else of the note stay as they are.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct VaultCall {
    /// The call is confined to what this member of a team has: `team/member`. Its paths begin at the folder `teams/<team>`, and nothing outside of that is read, found or changed. Default: the whole vault.
    pub as_member: Option<String>,
    #[serde(flatten)]
    pub(crate) action: VaultAction,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum VaultAction {
    /// Show a note.
    Read(ReadInput),
    /// Make or change one.
    Write(WriteInput),
    /// Find lines in all notes.
    Search(SearchInput),
    /// Show what a folder has.
    List(ListInput),
    /// Remove a note.
    Delete(DeleteInput),
    /// Read or change front matter.
    Frontmatter(FrontmatterInput),
    /// Read or change tags.
    Tags(TagsInput),
    /// Replace text in a note.
    Replace(ReplaceInput),
    /// Move or rename a note.
    Move(MoveInput),
    /// Show several notes.
    BatchRead(BatchReadInput),
    /// Show how much there is, and what changed last.
    Stats(StatsInput),
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReadInput {
    /// The note, or a card that the daemon keeps of a team's member, `teams/<team>/cards/<member>.json`.
    pub(crate) path: String,
    /// `markdown`, the default, is the text alone; `json` also answers the parsed front matter.
    pub(crate) format: Option<Format>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WriteInput {
    /// The note.
    pub(crate) path: String,
    /// The text. Nothing is added to it, no newline either.
    pub(crate) content: String,
    /// `overwrite`, the default; `append` at the end; `prepend` before the text, but after the front matter. A note that is not there is made, with its folders.
    pub(crate) mode: Option<WriteMode>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SearchInput {
    /// Text that a line has to have, 1 to 1024 characters.
    pub(crate) query: String,
    /// `query` is a regular expression. Default: false.
    pub(crate) regex: Option<bool>,
    /// Whether capital and small letters differ. Default: true.
    pub(crate) case_sensitive: Option<bool>,
    /// Only where the match begins and ends at the edges of words. Default: false.
    pub(crate) whole_word: Option<bool>,
    /// Lines shown before and after each match. Default: 2.
    #[schemars(range(max = 20))]
    pub(crate) context_lines: Option<u8>,
    /// Only notes in this folder.
    pub(crate) path_prefix: Option<String>,
    /// Only notes with this tag, or with one below it (`a` finds `a/b`).
    pub(crate) tag: Option<String>,
    /// The most matches to answer. 0: as many as the daemon allows. Default: 20.
    pub(crate) max_results: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListInput {
    /// The folder. Default: the whole vault.
    pub(crate) path: Option<String>,
    /// The same as `path`.
    pub(crate) path_prefix: Option<String>,
    /// Also what is in its folders, at any depth. Default: false.
    pub(crate) recursive: Option<bool>,
    /// Leave out the folders. Default: false.
    pub(crate) notes_only: Option<bool>,
    /// Only what comes after this path, in the order of the paths: the last one of an answer that was truncated goes on there.
    pub(crate) after: Option<String>,
    /// The most entries to answer. Default: 10000.
    #[schemars(range(min = 1, max = MOST_ROWS))]
    pub(crate) limit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DeleteInput {
    /// The note.
    pub(crate) path: String,
    /// Has to be true. There is no way back.
    pub(crate) confirm: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FrontmatterInput {
    /// The note.
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) action: FrontmatterAction,
}

/// Action on front matter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "frontmatter_action", rename_all = "snake_case")]
pub(crate) enum FrontmatterAction {
    /// Show all of it.
    Get,
    /// Set a key.
    Set {
        /// The key, one of the outermost.
        #[schemars(length(min = 1, max = 512))]
        key: String,
        /// The new value, any JSON.
        value: Value,
    },
    /// Remove a key.
    Delete {
        /// The key, one of the outermost.
        #[schemars(length(min = 1, max = 512))]
        key: String,
    },
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TagsInput {
    /// The note.
    pub(crate) path: String,
    #[serde(flatten)]
    pub(crate) action: TagsAction,
}

/// Action on tags.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "tags_action", rename_all = "snake_case")]
pub(crate) enum TagsAction {
    /// Show those of the front matter and of the text.
    List,
    /// Add one to the front matter.
    Add {
        /// The tag, with or without `#`.
        tag: String,
    },
    /// Remove one from the front matter.
    Remove {
        /// The tag, with or without `#`.
        tag: String,
    },
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ReplaceInput {
    /// The note.
    pub(crate) path: String,
    /// Text to replace, wherever it is.
    #[schemars(length(min = 1))]
    pub(crate) old_string: String,
    /// Text to put in the place of `old_string`.
    pub(crate) new_string: String,
    /// `old_string` is a regular expression, `^` and `$` are the ends of lines, and `$1` or `${name}` in `new_string` its groups. Unless `old_string` has `\n`, line ends of `new_string` become the note's. Default: false.
    pub(crate) regex: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MoveInput {
    /// The note.
    pub(crate) path: String,
    /// Where to; folders on the way are made.
    pub(crate) new_path: String,
    /// Replace what is there. Default: false.
    pub(crate) overwrite: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct BatchReadInput {
    /// The notes, and cards as for `read`.
    #[schemars(length(min = 1, max = 10))]
    pub(crate) paths: Vec<String>,
    /// Answer the texts. Default: true.
    pub(crate) include_content: Option<bool>,
    /// Answer the parsed front matter. Default: true.
    pub(crate) include_frontmatter: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct StatsInput {
    /// How many of the notes changed last to show. Default: 10.
    #[schemars(range(max = 1000))]
    pub(crate) recent_count: Option<u32>,
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

tools! { pub FAMILY: "vault" for VaultActor, singleton vault;
    vault: VaultCall => VaultResult = VaultActor::on_vault {
        title: "Notes in the vault", effect: Destroy, risk: Risk::Medium,
        // Size of the largest note, with every character escaped as often as text is.
        result_budget_bytes: 40 * 1024 * 1024,
    };
}
