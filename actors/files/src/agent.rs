//! Handlers of `read` and `patch`. A manifest is validated before it is put in place.

use std::{fmt::Write as _, sync::Arc};

use hivekeep_file_engine::{
    EditFileText, EditPreview, EditedText, Occurrences, ReadLines, RemovePath, ResolvePath,
    TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, Layer, ToolError, ports::ManifestCheck};
use serde_json::json;

use crate::{
    codes,
    file_place::{CommandHost, FilePlace, PlacedPath},
    files::{Answer, Files},
    refuse::refused,
    tools::{NumberedText, Patch, PatchCheck, PatchOperation, Patched, ReadNumbered},
    workspace_place::WORKSPACE_ROOT,
};

/// Problems of a manifest that are told.
const MAX_PROBLEMS: usize = 20;

impl Files {
    pub(crate) async fn read_numbered(
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

    pub(crate) async fn patch(self: Arc<Self>, cx: CallCx, input: Patch) -> Answer<Patched> {
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
