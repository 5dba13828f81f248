//! Handlers of the workspaces' file tools, for calls that name no workspace.

use std::sync::Arc;

use hivekeep_file_engine::{
    EditFileText, MAX_EDIT_BYTES, Occurrences, ReadText, TextEdit, WriteText,
};
use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    file_place::PlacedPath,
    files::{Answer, Files},
    languages,
    tools::{PlaceContent, PlaceEdit, PlaceEdited, PlaceRead, PlaceWrite, PlaceWritten},
};

impl Files {
    pub(crate) async fn place_read(
        self: Arc<Self>,
        cx: CallCx,
        input: PlaceRead,
    ) -> Answer<PlaceContent> {
        let PlaceRead { place, path, offset, limit } = input;
        // One byte more than is returned tells a file that does not fit.
        let asked = ReadText { path, offset, limit: limit.unwrap_or(MAX_EDIT_BYTES + 1) };
        let (read, PlacedPath { place, path }) = self.run(&cx, place.as_deref(), asked).await?;
        if read.text.len() as u64 > MAX_EDIT_BYTES {
            let message = format!("`{path}` holds {} bytes", read.size_bytes);
            return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message)
                .next("read it in parts with offset and limit"));
        }
        Ok(PlaceContent {
            place,
            language: languages::detect(&path),
            path,
            content: read.text,
            offset: read.offset,
            next_offset: read.next_offset,
            size_bytes: read.size_bytes,
        })
    }

    pub(crate) async fn place_write(
        self: Arc<Self>,
        cx: CallCx,
        input: PlaceWrite,
    ) -> Answer<PlaceWritten> {
        let mode = input.mode.as_deref().map(mode_of).transpose()?;
        let bytes = input.content.len() as u64;
        let asked = WriteText { path: input.path, content: input.content, mode };
        let (written, PlacedPath { place, path }) =
            self.run(&cx, input.place.as_deref(), asked).await?;
        let mode = format!("{:04o}", written.mode & 0o7777);
        Ok(PlaceWritten { place, path, bytes, replaced: written.existed, mode })
    }

    pub(crate) async fn place_edit(
        self: Arc<Self>,
        cx: CallCx,
        input: PlaceEdit,
    ) -> Answer<PlaceEdited> {
        let which = if input.replace_all { Occurrences::All } else { Occurrences::First };
        let edits = vec![TextEdit { which, old: input.old_string, new: input.new_string }];
        let asked = EditFileText { path: input.path, edits, expected: None };
        let (edited, PlacedPath { place, path }) =
            self.run(&cx, input.place.as_deref(), asked).await?;
        let occurrences = edited.occurrences;
        let replacements = if input.replace_all { occurrences } else { 1 };
        Ok(PlaceEdited { place, path, success: true, replacements, occurrences })
    }
}

/// Permission bits of an octal text; those that lend the owner's rights are refused.
fn mode_of(text: &str) -> Answer<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777);
    mode.ok_or_else(|| ToolError::invalid("mode must be octal permission bits, such as \"0644\""))
}
