//! Handlers of the workspaces' file tools, for calls that name no workspace.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, ToolError};

use crate::{
    codes,
    engine::{
        edit::{self, MAX_EDIT_BYTES, Occurrences, TextEdit},
        read, write,
    },
    files::Files,
    languages,
    place_path::PlacePath,
    places::Place,
    tools::{FsPath, PlaceContent, PlaceEdit, PlaceEdited, PlaceRead, PlaceWrite, PlaceWritten},
};

type Answer<T> = Result<T, ToolError>;

impl Files {
    pub(crate) async fn place_read(
        self: Arc<Self>,
        _: CallCx,
        input: PlaceRead,
    ) -> Answer<PlaceContent> {
        let (offset, limit) = (input.offset, input.limit);
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            // One byte more than is returned tells a file that does not fit.
            let read =
                read::text(place.root()?, path, offset, limit.unwrap_or(MAX_EDIT_BYTES + 1))?;
            if read.text.len() as u64 > MAX_EDIT_BYTES {
                let message = format!("`{path}` holds {} bytes", read.size_bytes);
                return Err(ToolError::new(Layer::Actor, codes::TOO_LARGE, message)
                    .next("read it in parts with offset and limit"));
            }
            Ok(read)
        };
        let (read, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
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
        _: CallCx,
        input: PlaceWrite,
    ) -> Answer<PlaceWritten> {
        let mode = input.mode.as_deref().map(mode_of).transpose()?;
        let bytes = input.content.len() as u64;
        let work = move |place: &Place, path: &PlacePath, _: &_| {
            write::write(place, path, &input.content, mode)
        };
        let (written, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        let mode = format!("{:04o}", written.mode);
        Ok(PlaceWritten { place, path, bytes, replaced: written.existed, mode })
    }

    pub(crate) async fn place_edit(
        self: Arc<Self>,
        _: CallCx,
        input: PlaceEdit,
    ) -> Answer<PlaceEdited> {
        let which = if input.replace_all { Occurrences::All } else { Occurrences::First };
        let edits = [TextEdit { which, old: input.old_string, new: input.new_string }];
        let work = move |place: &Place, path: &PlacePath, _: &_| edit::edit(place, path, &edits);
        let (edited, FsPath { place, path }) =
            self.run(input.place.as_deref(), &input.path, work).await?;
        let replacements = if input.replace_all { edited.occurrences } else { 1 };
        let occurrences = edited.occurrences;
        Ok(PlaceEdited { place, path, success: true, replacements, occurrences })
    }
}

/// Permission bits of an octal text; those that lend the owner's rights are refused.
fn mode_of(text: &str) -> Answer<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777);
    mode.ok_or_else(|| ToolError::invalid("mode must be octal permission bits, such as \"0644\""))
}
