//! Handlers of `file_read`, `file_write` and `file_edit`: a workspace is a place like any other.

use std::sync::Arc;

use hivekeep_file_engine::{
    EditFileText, MAX_EDIT_BYTES, Occurrences, ReadText, TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    file_place::{FilePlace, PlacedPath},
    files::{Answer, Files},
    languages,
    tools::{FileContent, FileEdit, FileEdited, FileRead, FileWrite, FileWritten},
};

impl Files {
    pub(crate) async fn file_read(
        self: Arc<Self>,
        cx: CallCx,
        input: FileRead,
    ) -> Answer<FileContent> {
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
            language: languages::detect(&path),
            path,
            content: read.text,
            offset: read.offset,
            next_offset: read.next_offset,
            size_bytes: read.size_bytes,
        })
    }

    pub(crate) async fn file_write(
        self: Arc<Self>,
        cx: CallCx,
        input: FileWrite,
    ) -> Answer<FileWritten> {
        let FileWrite { workspace_id, place, path, content, mode } = input;
        let mode = mode.as_deref().map(mode_of).transpose()?;
        let place = self.either(&cx, workspace_id, place).await?;
        let bytes = content.len() as u64;
        let asked = WriteText { path, content, mode };
        let (written, PlacedPath { place, path }) = place.ask(&cx, asked).await?;
        let mode = format!("{:04o}", written.mode & 0o7777);
        Ok(FileWritten { place, path, bytes, replaced: written.existed, mode })
    }

    pub(crate) async fn file_edit(
        self: Arc<Self>,
        cx: CallCx,
        input: FileEdit,
    ) -> Answer<FileEdited> {
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
