//! The tools `file_read`, `file_write` and `file_edit`, to which a workspace is a place like any other, and
//! `lang_detect` and `lang_list`: texts, and their languages by the names of their files.

use std::sync::Arc;

use hivekeep_file_engine::{
    EditFileText, MAX_EDIT_BYTES, Occurrences, ReadText, TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Files};
use crate::{
    codes,
    place::{FilePlace, PlacedPath},
};

/// Write a text file in a running workspace or a place: the whole file appears at once or
/// not at all. Missing parent directories are made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileWrite {
    /// Id or name of the workspace. Default: the place.
    workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    place: Option<String>,
    /// Absolute path in the workspace, or the place.
    path: String,
    /// The whole content, at most 16 MiB.
    #[schemars(length(max = MAX_EDIT_BYTES))]
    content: String,
    /// Octal permissions, such as "0755". Default: keep those of an existing file, else 0644.
    mode: Option<String>,
}

/// A written file.
#[derive(Debug, Serialize, JsonSchema)]
struct FileWritten {
    /// Place, or name of the workspace.
    place: String,
    /// Path.
    path: String,
    /// Bytes written.
    bytes: u64,
    /// Whether there was a file before.
    replaced: bool,
    /// Its permission bits in octal.
    mode: String,
}

/// Read a text file, or a part of it, from a running workspace or a place. A file that is
/// not UTF-8 is refused: use file_transfer for those of a workspace.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileRead {
    /// Id or name of the workspace. Default: the place.
    workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    place: Option<String>,
    /// Absolute path in the workspace, or the place.
    path: String,
    /// First byte to read.
    #[serde(default)]
    offset: u64,
    /// Most bytes to read, 8 or more; default and limit 16 MiB.
    #[schemars(range(max = MAX_EDIT_BYTES))]
    limit: Option<u64>,
}

/// Text of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct FileContent {
    /// Place, or name of the workspace.
    place: String,
    /// Language by the file's name, as `lang_detect` tells it.
    language: &'static str,
    /// Path.
    path: String,
    /// The text. A character cut by the range's edges is left out.
    content: String,
    /// Byte position of the first byte of `content`.
    offset: u64,
    /// Where to continue reading; equal to `size_bytes` at the end.
    next_offset: u64,
    /// Size of the file.
    size_bytes: u64,
}

/// Replace an exact text in a UTF-8 file of a running workspace or a place, atomically.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FileEdit {
    /// Id or name of the workspace. Default: the place.
    workspace_id: Option<String>,
    /// Place: a name, `[USER@]WORKSPACE[:FOLDER]` or `volume:LABEL`. Default: the session's.
    place: Option<String>,
    /// Absolute path in the workspace, or the place.
    path: String,
    /// Exact text to find; not empty.
    #[schemars(length(min = 1))]
    old_string: String,
    /// Text to put in its place.
    new_string: String,
    /// Replace every occurrence instead of the first.
    #[serde(default)]
    replace_all: bool,
}

/// An edited file.
#[derive(Debug, Serialize, JsonSchema)]
struct FileEdited {
    /// Place, or name of the workspace.
    place: String,
    /// Path.
    path: String,
    /// Always true: a text that does not occur is an error.
    success: bool,
    /// Occurrences replaced.
    replacements: u64,
    /// Occurrences there were.
    occurrences: u64,
}

tools! { pub(crate) TEXT: "file operations" for service Files, singleton files;
    file_write: FileWrite => FileWritten = Files::file_write {
        title: "Write a file", effect: Idempotent, timeout_secs: 120, rate: RateClass::File,
    };
    file_read: FileRead => FileContent = Files::file_read {
        title: "Read a file", effect: Read, timeout_secs: 120, result_budget_bytes: 40 * 1024 * 1024,
        rate: RateClass::File,
    };
    file_edit: FileEdit => FileEdited = Files::file_edit {
        title: "Edit a file", rate: RateClass::File,
    };
}

impl Files {
    async fn file_read(self: Arc<Self>, cx: CallCx, input: FileRead) -> Answer<FileContent> {
        let FileRead { workspace_id, place, path, offset, limit } = input;
        let place = self.either(&cx, workspace_id, place).await?;
        // Reading one byte more than is returned detects a file that does not fit.
        let asked = ReadText { path, offset, limit: limit.unwrap_or(MAX_EDIT_BYTES + 1) };
        let (read, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        if read.text.len() as u64 > MAX_EDIT_BYTES {
            let message = format!("`{path}` holds {} bytes", read.size_bytes);
            return Err(ToolError::new(Layer::Result, codes::TOO_LARGE, message)
                .next("read it in parts with offset and limit")
                .detail("size_bytes", read.size_bytes));
        }
        Ok(FileContent {
            place,
            language: detect(&path),
            path,
            content: read.text,
            offset: read.offset,
            next_offset: read.next_offset,
            size_bytes: read.size_bytes,
        })
    }

    async fn file_write(self: Arc<Self>, cx: CallCx, input: FileWrite) -> Answer<FileWritten> {
        let FileWrite { workspace_id, place, path, content, mode } = input;
        let mode = mode.as_deref().map(mode_of).transpose()?;
        let place = self.either(&cx, workspace_id, place).await?;
        let bytes = content.len() as u64;
        let asked = WriteText { path, content, mode };
        let (written, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        let mode = format!("{:04o}", written.mode & 0o7777);
        Ok(FileWritten { place, path, bytes, replaced: written.existed, mode })
    }

    async fn file_edit(self: Arc<Self>, cx: CallCx, input: FileEdit) -> Answer<FileEdited> {
        let FileEdit { workspace_id, place, path, old_string: old, new_string: new, replace_all } =
            input;
        let place = self.either(&cx, workspace_id, place).await?;
        let which = if replace_all { Occurrences::All } else { Occurrences::First };
        let edits = vec![TextEdit { which, old, new }];
        let asked = EditFileText { path, edits, expected: None };
        let (edited, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        let occurrences = edited.occurrences;
        let replacements = if replace_all { occurrences } else { 1 };
        Ok(FileEdited { place, path, success: true, replacements, occurrences })
    }

    /// The workspace or the place that a call names.
    async fn either(
        &self,
        cx: &CallCx,
        workspace: Option<String>,
        place: Option<String>,
    ) -> Answer<Arc<dyn FilePlace>> {
        match (workspace, place) {
            (Some(_), Some(_)) => {
                Err(ToolError::invalid("`workspace_id` and `place` exclude each other")
                    .next("give one of the two"))
            }
            (Some(workspace), None) => self.places.workspace(&workspace),
            (None, place) => self.places.find(cx, place.as_deref()).await,
        }
    }
}

/// Permission bits of an octal text; those that lend the owner's rights are refused.
fn mode_of(text: &str) -> Answer<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777);
    mode.ok_or_else(|| {
        ToolError::invalid("mode must be octal permission bits up to \"1777\", such as \"0644\"")
    })
}

/// Tell the language of a file by its name. The file is not looked at and need not exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LangDetect {
    /// Name or path of the file.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
}

/// Language of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct LangDetected {
    /// Path, as it was asked.
    path: String,
    /// Id of the language; `plaintext` where the name tells none.
    language: &'static str,
}

/// List the languages that lang_detect knows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LangList {}

/// Languages.
#[derive(Debug, Serialize, JsonSchema)]
struct LangListed {
    /// By id.
    languages: Vec<LangRow>,
}

/// A language.
#[derive(Debug, Serialize, JsonSchema)]
struct LangRow {
    /// Id.
    id: &'static str,
    /// Name for people.
    name: &'static str,
    /// Ends of the names of its files, with the dot, in lower case.
    extensions: Vec<String>,
}

tools! { pub(crate) LANG: "lang" for service Files, singleton files;
    lang_detect: LangDetect => LangDetected = Files::lang_detect {
        title: "Tell a file's language", effect: Read,
    };
    lang_list: LangList => LangListed = Files::lang_list { title: "List languages", effect: Read };
}

impl Files {
    async fn lang_detect(self: Arc<Self>, _: CallCx, input: LangDetect) -> Answer<LangDetected> {
        Ok(LangDetected { language: detect(&input.path), path: input.path })
    }

    async fn lang_list(self: Arc<Self>, _: CallCx, _: LangList) -> Answer<LangListed> {
        let row = |(id, name, extensions): Language| LangRow {
            id,
            name,
            extensions: extensions.iter().map(|extension| format!(".{extension}")).collect(),
        };
        Ok(LangListed { languages: LANGUAGES.into_iter().map(row).collect() })
    }
}

/// Language: id, name for people, extensions of its files.
type Language = (&'static str, &'static str, &'static [&'static str]);

/// Languages by id.
const LANGUAGES: [Language; 24] = [
    ("c", "C", &["c", "h"]),
    ("cpp", "C++", &["cpp", "hpp", "cc", "cxx"]),
    ("csharp", "C#", &["cs"]),
    ("css", "CSS", &["css"]),
    ("dockerfile", "Dockerfile", &[]),
    ("go", "Go", &["go"]),
    ("html", "HTML", &["html", "htm"]),
    ("java", "Java", &["java"]),
    ("javascript", "JavaScript", &["js", "jsx"]),
    ("json", "JSON", &["json"]),
    ("kotlin", "Kotlin", &["kt", "kts"]),
    ("markdown", "Markdown", &["md", "markdown"]),
    ("php", "PHP", &["php"]),
    ("plaintext", "Plain text", &["txt"]),
    ("python", "Python", &["py"]),
    ("ruby", "Ruby", &["rb"]),
    ("rust", "Rust", &["rs"]),
    ("scss", "SCSS", &["scss"]),
    ("shell", "Shell", &["sh", "bash"]),
    ("sql", "SQL", &["sql"]),
    ("swift", "Swift", &["swift"]),
    ("typescript", "TypeScript", &["ts", "tsx"]),
    ("xml", "XML", &["xml"]),
    ("yaml", "YAML", &["yaml", "yml"]),
];

/// Language of a file by its name: by the last extension, in any case, or the name `Dockerfile`.
fn detect(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "Dockerfile" {
        return "dockerfile";
    }
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let known = |(_, _, extensions): &&Language| {
        extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
    };
    LANGUAGES.iter().find(known).map_or("plaintext", |(id, _, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_languages() {
        for (path, language) in [
            ("src/a.rs", "rust"),
            ("a.TSX", "typescript"),
            ("x/Dockerfile", "dockerfile"),
            ("a.tar.yml", "yaml"),
            ("Makefile", "plaintext"),
            ("a.", "plaintext"),
            ("c", "plaintext"),
            ("a.rs/readme", "plaintext"),
            (".bash", "shell"),
        ] {
            assert_eq!(detect(path), language, "{path}");
        }
        assert!(LANGUAGES.is_sorted_by_key(|(id, _, _)| id));
    }
}
