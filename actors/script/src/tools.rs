//! Tool declarations of the script library.

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ScriptId, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scripts::Scripts;

/// Size of a program in bytes; the schema's bound is the same number of characters.
pub(crate) const MAX_CODE_BYTES: usize = 256 * 1024;
/// Size of a description in bytes.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 2 * 1024;
/// Size of a name in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// Tag of a script.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct ScriptTag(#[schemars(regex(pattern = "^[a-z0-9_-]{1,32}$"))] pub(crate) String);

/// Keep a program for later sessions, under a name of your own. It outlives this session and every
/// workspace, and each later change keeps the version before.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Save {
    /// Name that no other script of yours has: at most 128 bytes, without `/`, `\` and control characters.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES), regex(pattern = r"^[^/\\\p{Cc}]+$"))]
    pub(crate) name: String,
    /// The program, at most 256 KiB.
    #[schemars(length(min = 1, max = MAX_CODE_BYTES))]
    pub(crate) code: String,
    /// What it is for, at most 2 KiB.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    pub(crate) description: Option<String>,
    /// Tags to find it by: at most 16, each of 1 to 32 of `a-z`, `0-9`, `-` and `_`.
    #[schemars(length(max = 16))]
    pub(crate) tags: Option<Vec<ScriptTag>>,
}

/// List your scripts by name, without their code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// Only those with this tag.
    pub(crate) tag: Option<String>,
    /// Only those with this text in name or description, in any case.
    pub(crate) q: Option<String>,
    /// Continue after this name: the `next` of the page before.
    pub(crate) after: Option<String>,
    /// Most scripts, 1 to 500.
    #[schemars(range(min = 1, max = 500))]
    #[serde(default = "default_rows")]
    pub(crate) limit: usize,
}

fn default_rows() -> usize {
    50
}

/// Read a script with its code, and the list of its versions. A deleted one can be read by its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Get {
    /// Id or name of the script.
    pub(crate) id: String,
    /// Version to read. Default: the newest.
    pub(crate) version: Option<u64>,
}

/// Change a script: its next version. The versions before can still be read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Update {
    /// Id or name of the script.
    pub(crate) id: String,
    /// Name from now on: as for `aegis.script.save`.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES), regex(pattern = r"^[^/\\\p{Cc}]+$"))]
    pub(crate) name: String,
    /// The whole program, at most 256 KiB.
    #[schemars(length(min = 1, max = MAX_CODE_BYTES))]
    pub(crate) code: String,
    /// What it is for. Default: as before.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    pub(crate) description: Option<String>,
    /// Tags. Default: as before.
    #[schemars(length(max = 16))]
    pub(crate) tags: Option<Vec<ScriptTag>>,
}

/// Delete a script: its name is free at once. Its versions can be read by its id until the library needs
/// the room.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Delete {
    /// Id or name of the script.
    pub(crate) id: String,
}

/// A script, without its code.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScriptRow {
    /// Id.
    pub(crate) id: ScriptId,
    /// Name.
    pub(crate) name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Tags.
    pub(crate) tags: Vec<String>,
    /// Number of this version, from 1.
    pub(crate) version: u64,
    /// Size of the code.
    pub(crate) size_bytes: u64,
    /// Time of the first version.
    pub(crate) created_at: DateTime<Utc>,
    /// Time of this version.
    pub(crate) updated_at: DateTime<Utc>,
    /// Time of its deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deleted_at: Option<DateTime<Utc>>,
}

/// A page of scripts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    /// Sorted by name.
    pub(crate) scripts: Vec<ScriptRow>,
    /// How many there are on all pages.
    pub(crate) total: usize,
    /// Pass as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A script with its code.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScriptText {
    /// The version that was asked for.
    #[serde(flatten)]
    pub(crate) row: ScriptRow,
    /// Its program.
    pub(crate) code: String,
    /// All versions, oldest first.
    pub(crate) versions: Vec<VersionRow>,
}

/// A version of a script.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VersionRow {
    /// Number, from 1.
    pub(crate) version: u64,
    /// Name at that time.
    pub(crate) name: String,
    /// Size of the code.
    pub(crate) size_bytes: u64,
    /// Time of the version.
    pub(crate) updated_at: DateTime<Utc>,
}

tools! { pub(crate) FAMILY: "scripts" for service Scripts, singleton scripts;
    script_save: Save => ScriptRow = Scripts::save {
        name: "aegis.script.save", title: "Save a script",
    };
    script_list: List => Listed = Scripts::list {
        name: "aegis.script.list", title: "List scripts", effect: Read,
    };
    script_get: Get => ScriptText = Scripts::get {
        name: "aegis.script.get", title: "Read a script", effect: Read,
        result_budget_bytes: 2 * 1024 * 1024,
    };
    script_update: Update => ScriptRow = Scripts::update {
        name: "aegis.script.update", title: "Change a script",
    };
    script_delete: Delete => ScriptRow = Scripts::delete {
        name: "aegis.script.delete", title: "Delete a script", effect: Destroy,
    };
}
