//! The tools `read` and `patch`, in the dialect of an assistant: numbered lines, and patches. A manifest is
//! validated before it is put in place.

use std::{fmt::Write as _, sync::Arc};

use hivekeep_file_engine::{
    EditFileText, EditPreview, EditedText, Occurrences, ReadLines, RemovePath, ResolvePath,
    TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, Layer, ToolError, tools};
use hivekeep_ports::ManifestCheck;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Answer, Files};
use crate::{
    codes,
    place::{CommandHost, FilePlace, PlacedPath, WORKSPACE_ROOT, refused},
};

/// Read a text file of a place with its lines numbered, or a range of its lines. A binary file is refused
/// with its size.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadNumbered {
    /// Path from the place's root.
    path: String,
    /// Number of the first line, from 1.
    #[schemars(range(min = 1))]
    #[serde(default = "first_line")]
    offset: u64,
    /// Most lines, 1 to 10000; they have 256 KiB together.
    #[schemars(range(min = 1, max = 10_000))]
    #[serde(default = "default_lines")]
    limit: u64,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

fn first_line() -> u64 {
    1
}

fn default_lines() -> u64 {
    2000
}

/// Lines of a file.
#[derive(Debug, Serialize, JsonSchema)]
struct NumberedText {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Each line: its number, a tab, its text; a line over 8 KiB is cut, and says so.
    content: String,
    /// Number of lines in `content`.
    lines: u64,
    /// Pass as `offset` to go on; absent at the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Number of lines behind `content`; absent where they are too many to be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    /// Size of the file.
    size_bytes: u64,
}

/// Create, change or delete a file of a place. A YAML file below the folder of workflows is validated first:
/// an invalid one is refused, and the old file stays.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Patch {
    /// Path from the place's root.
    path: String,
    /// `create` writes the whole file, `replace` a text that occurs once in it, `delete` removes a file or an
    /// empty folder.
    operation: PatchOperation,
    /// The whole content, for `create`.
    #[schemars(length(max = 16_777_216))]
    content: Option<String>,
    /// Exact text to replace, for `replace`.
    #[schemars(length(min = 1))]
    old_string: Option<String>,
    /// Text to put in its place, for `replace`.
    new_string: Option<String>,
    /// Name of the place, `[USER@]WORKSPACE[:FOLDER]`, or `volume:` and a volume's label. Default: the session's.
    place: Option<String>,
}

/// Kind of change that a patch makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PatchOperation {
    /// Writes the whole file.
    Create,
    /// Replaces a text.
    Replace,
    /// Removes it.
    Delete,
}

/// A patched file.
#[derive(Debug, Serialize, JsonSchema)]
struct Patched {
    /// Place.
    place: String,
    /// Path.
    path: String,
    /// Kind of change that was made.
    operation: PatchOperation,
    /// Whether there was a file before.
    replaced: bool,
    /// Number of lines of the file now; absent after `delete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<u64>,
    /// Whether a manifest was validated; absent for another file.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_check: Option<PatchCheck>,
}

/// Validation of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PatchCheck {
    /// The manifest is valid.
    Passed,
    /// This daemon has no check of manifests: it was put in place unchecked.
    Unavailable,
}

tools! { pub(crate) FAMILY: "agent" for service Files, singleton files;
    read: ReadNumbered => NumberedText = Files::read_numbered {
        title: "Read numbered lines of a file", effect: Read, rate: RateClass::File,
    };
    patch: Patch => Patched = Files::patch {
        title: "Patch a file", effect: Destroy, risk: Risk::Medium, rate: RateClass::File,
    };
}

/// Problems of a manifest that are told.
const MAX_PROBLEMS: usize = 20;

impl Files {
    async fn read_numbered(
        self: Arc<Self>,
        cx: CallCx,
        input: ReadNumbered,
    ) -> Answer<NumberedText> {
        let ReadNumbered { path, offset, limit, place } = input;
        let asked = ReadLines { path, first: offset, limit };
        let (read, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        let mut content = String::new();
        for (number, (line, cut)) in (offset..).zip(&read.lines) {
            // Writing to a text does not fail.
            let _ = write!(content, "{number:6}\t{line}");
            if *cut > 0 {
                let _ = write!(content, " [… {cut} bytes more]");
            }
            content.push('\n');
        }
        let lines = read.lines.len() as u64;
        let next_offset = (read.left != Some(0)).then_some(offset + lines);
        let (left, size_bytes) = (read.left, read.size_bytes);
        Ok(NumberedText { place, path, content, lines, next_offset, left, size_bytes })
    }

    async fn patch(self: Arc<Self>, cx: CallCx, input: Patch) -> Answer<Patched> {
        let Patch { path, operation, content, old_string, new_string, place } = input;
        let place = self.places.find(&cx, place.as_deref()).await?;
        let is_manifest = operation != PatchOperation::Delete
            && self.leads_to_manifest(&cx, &*place, &path).await?;
        let needs = |field: &str, text: Option<String>| {
            text.ok_or_else(|| ToolError::invalid(format!("`{field}` is needed here")))
        };
        let (at, replaced, lines, manifest_check) = match operation {
            PatchOperation::Create => {
                let content = needs("content", content)?;
                let (content, checked) = self.checked(is_manifest, &path, content).await?;
                let lines = content.lines().count() as u64;
                let write = WriteText { path, content, mode: None };
                let (written, at) = place.ask(&cx, write).await?;
                (at, written.existed, Some(lines), checked)
            }
            PatchOperation::Replace => {
                let (old, new) =
                    (needs("old_string", old_string)?, needs("new_string", new_string)?);
                let edits = vec![TextEdit { which: Occurrences::Only, old, new }];
                let preview = EditPreview { path: path.clone(), edits: edits.clone() };
                let (EditedText { text, version }, _) = place.ask(&cx, preview).await?;
                let (text, checked) = self.checked(is_manifest, &path, text).await?;
                // Only what was looked at is put in place.
                let edit = EditFileText { path, edits, expected: Some(version) };
                let (_, at) = place.ask(&cx, edit).await?;
                (at, true, Some(text.lines().count() as u64), checked)
            }
            PatchOperation::Delete => {
                let remove = RemovePath { path, recursive: false };
                let (_, at) = place.ask(&cx, remove).await?;
                (at, true, None, None)
            }
        };
        let PlacedPath { place, path } = at;
        Ok(Patched { place, path, operation, replaced, lines, manifest_check })
    }

    /// Whether a path is a manifest's, by its name or by where its links lead.
    ///
    /// # Errors
    /// For a path that makes no sense.
    async fn leads_to_manifest(
        &self,
        cx: &CallCx,
        place: &dyn FilePlace,
        path: &str,
    ) -> Answer<bool> {
        if self.is_manifest(place, path)? {
            return Ok(true);
        }
        let (real, _) = place.ask(cx, ResolvePath { path: path.to_owned() }).await?;
        self.is_manifest(place, &real.path)
    }

    /// Whether a path is a manifest's: a YAML file below the folder of workflows, by its name.
    ///
    /// # Errors
    /// For a path that makes no sense.
    fn is_manifest(&self, place: &dyn FilePlace, path: &str) -> Answer<bool> {
        let path = place.shown(path).map_err(refused)?;
        let lower = path.to_lowercase();
        let root = match place.command_host() {
            CommandHost::Workspace { .. } => WORKSPACE_ROOT,
            CommandHost::Beside { .. } => "",
        };
        let folder = format!("{root}/{}", self.dag_folder);
        let (folder, path) = (normal(&folder), normal(&path));
        let below = path.len() > folder.len() && path.starts_with(&folder);
        let yaml = lower.ends_with(".yaml") || lower.ends_with(".yml");
        Ok(!self.dag_folder.is_empty() && yaml && below)
    }

    /// Has the text of a manifest judged, on a thread of its own; gives it back.
    ///
    /// # Errors
    /// `manifest_refused`, with the place of each problem.
    async fn checked(
        &self,
        is_manifest: bool,
        path: &str,
        text: String,
    ) -> Answer<(String, Option<PatchCheck>)> {
        if !is_manifest {
            return Ok((text, None));
        }
        let Some(check) = self.ports.find::<dyn ManifestCheck>() else {
            return Ok((text, Some(PatchCheck::Unavailable)));
        };
        let judging = tokio::task::spawn_blocking(move || (check.dag(&text), text));
        let broken = |panic| ToolError::internal(format!("a check of a manifest: {panic}"));
        let (problems, text) = judging.await.map_err(broken)?;
        let Some(first) = problems.first() else { return Ok((text, Some(PatchCheck::Passed))) };
        let shown: Vec<_> =
            problems.iter().take(MAX_PROBLEMS).map(|problem| json!(problem)).collect();
        Err(ToolError::new(Layer::Schema, codes::MANIFEST_REFUSED, format!("`{path}` {first}"))
            .next("mend the text and repeat the call; the file is as it was")
            .detail("problems", shown)
            .detail("count", problems.len()))
    }
}

/// Names of a path, without those that lead nowhere or back.
fn normal(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names
}
