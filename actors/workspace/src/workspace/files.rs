//! Text files of the guest.

use std::{io::Cursor, time::Duration};

use hivekeep_kernel::{CallCx, Layer, Owned as _, Reply, ToolError};
use hivekeep_link::{Link, link_error};
use hivekeep_protocol::EntryKind;
use tokio::sync::oneshot;

use super::{Workspace, link_state};
use crate::{
    api::files::{
        FileContent, FileEdit, FileEdited, FileList, FileListed, FileRead, FileRow, FileWrite,
        FileWritten, MAX_TEXT_BYTES,
    },
    codes,
    phase::Want,
};

impl Workspace {
    /// A link, once there is one, for a call that may be made now.
    ///
    /// # Errors
    /// When the workspace does not run.
    pub(super) fn guest(
        &self,
        cx: &CallCx,
    ) -> Result<impl Future<Output = Result<Link, ToolError>> + Send + use<>, ToolError> {
        self.on(Want::Guest)?;
        let (mut link_state, cx) = (self.link_state.subscribe(), cx.clone());
        let patience = Duration::from_secs(self.handle.shared.options.link_wait_secs);
        Ok(async move { cx.guard(link_state::usable(&mut link_state, patience)).await })
    }

    /// [`Workspace::guest`] for somebody beside this actor.
    pub(super) fn enter(&self, cx: &CallCx, reply: oneshot::Sender<Result<Link, ToolError>>) {
        match self.authorize(cx).and_then(|()| self.guest(cx)) {
            Ok(link) => {
                let _detached = self.ops.spawn(async move { drop(reply.send(link.await)) });
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// `file_write`.
    ///
    /// # Errors
    /// When the workspace does not run or the input makes no sense.
    pub(crate) fn file_write(
        &mut self,
        cx: &CallCx,
        input: FileWrite,
    ) -> Result<Reply<FileWritten>, ToolError> {
        no_place(input.place.as_deref())?;
        let mode = input.mode.as_deref().map(parse_mode).transpose()?;
        let size = input.content.len() as u64;
        if size > MAX_TEXT_BYTES {
            return Err(ToolError::invalid("content may be at most 16777216 bytes")
                .next("use file_transfer"));
        }
        let (link, cx) = (self.guest(cx)?, cx.clone());
        Ok(Reply::later(async move {
            let source = Cursor::new(input.content.into_bytes());
            let written = link
                .await?
                .upload(&input.path, mode, size, source, link_state::wait(&cx), |_| {})
                .await
                .map_err(link_error)?;
            Ok(FileWritten {
                place: None,
                path: input.path,
                bytes: written.bytes,
                replaced: written.replaced,
                mode: format!("{:04o}", written.mode & 0o7777),
            })
        }))
    }

    /// `file_read`.
    ///
    /// # Errors
    /// When the workspace does not run or the range is too large.
    pub(crate) fn file_read(
        &mut self,
        cx: &CallCx,
        input: FileRead,
    ) -> Result<Reply<FileContent>, ToolError> {
        no_place(input.place.as_deref())?;
        let (link, cx) = (self.guest(cx)?, cx.clone());
        Ok(Reply::later(async move {
            let mut bytes = Vec::new();
            // One byte more than is returned tells a file that does not fit.
            let most = input.limit.unwrap_or(MAX_TEXT_BYTES + 1);
            let done = link
                .await?
                .download(
                    &input.path,
                    input.offset,
                    Some(most),
                    &mut bytes,
                    link_state::wait(&cx),
                    |_| {},
                )
                .await
                .map_err(link_error)?;
            if bytes.len() as u64 > MAX_TEXT_BYTES {
                let message = format!("{} holds {} bytes", input.path, done.size_bytes);
                return Err(ToolError::new(Layer::Result, codes::TOO_LARGE, message)
                    .next("read it in parts with offset and limit, or use file_transfer")
                    .detail("size_bytes", done.size_bytes));
            }
            content(input.path, input.offset, bytes, done.size_bytes)
        }))
    }

    /// `file_edit`.
    ///
    /// # Errors
    /// When the workspace does not run or there is nothing to find.
    pub(crate) fn file_edit(
        &mut self,
        cx: &CallCx,
        input: FileEdit,
    ) -> Result<Reply<FileEdited>, ToolError> {
        no_place(input.place.as_deref())?;
        let (link, cx) = (self.guest(cx)?, cx.clone());
        Ok(Reply::later(async move {
            let request = hivekeep_protocol::EditFile {
                path: input.path.clone(),
                old_string: input.old_string,
                new_string: input.new_string,
                replace_all: input.replace_all,
            };
            let edited =
                link.await?.ask(request, link_state::wait(&cx)).await.map_err(link_error)?;
            Ok(FileEdited {
                place: None,
                path: input.path,
                success: true,
                replacements: edited.replacements,
                occurrences: edited.occurrences,
            })
        }))
    }

    /// `file_list`.
    ///
    /// # Errors
    /// When the workspace does not run or the page is too long.
    pub(crate) fn file_list(
        &mut self,
        cx: &CallCx,
        input: FileList,
    ) -> Result<Reply<FileListed>, ToolError> {
        let (link, cx) = (self.guest(cx)?, cx.clone());
        Ok(Reply::later(async move {
            let request = hivekeep_protocol::ListFolder {
                path: input.path,
                after: input.after,
                limit: input.limit,
            };
            let listed =
                link.await?.ask(request, link_state::wait(&cx)).await.map_err(link_error)?;
            let entries: Vec<_> = listed
                .entries
                .into_iter()
                .take(input.limit as usize)
                .map(|entry| FileRow {
                    name: entry.name,
                    kind: kind(entry.kind).to_owned(),
                    size: entry.size_bytes,
                    permissions: permissions(entry.mode),
                    modified: entry.modified_unix_secs,
                })
                .collect();
            let next = entries.last().filter(|_| listed.more).map(|row| row.name.clone());
            Ok(FileListed { entries, next })
        }))
    }
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Dir => "dir",
        EntryKind::Symlink => "symlink",
        EntryKind::Other => "other",
    }
}

fn permissions(mode: u32) -> String {
    (0..9)
        .rev()
        .map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' })
        .collect()
}

/// Refuses a place beside a workspace.
fn no_place(place: Option<&str>) -> Result<(), ToolError> {
    place.map_or(Ok(()), |_| {
        Err(ToolError::invalid("`workspace_id` and `place` exclude each other")
            .next("give one of the two"))
    })
}

fn parse_mode(text: &str) -> Result<u32, ToolError> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| ToolError::invalid("mode must be octal permission bits, such as \"0644\""))
}

/// Text of a range. Continuation bytes at its start and a torn character at its
/// end belong to the neighbours' ranges; anything else that is no UTF-8 is refused.
fn content(
    path: String,
    offset: u64,
    bytes: Vec<u8>,
    size_bytes: u64,
) -> Result<FileContent, ToolError> {
    let torn_head = if offset == 0 {
        0
    } else {
        bytes.iter().take(3).take_while(|b| **b & 0xc0 == 0x80).count()
    };
    let at_end = offset + bytes.len() as u64 >= size_bytes;
    let body = &bytes[torn_head..];
    let keep = match std::str::from_utf8(body) {
        Ok(_) => body.len(),
        Err(error) if error.error_len().is_none() && !at_end => error.valid_up_to(),
        Err(_) => {
            return Err(ToolError::new(
                Layer::Guest,
                codes::NOT_UTF8,
                format!("{path} is not UTF-8 text"),
            )
            .next("use file_transfer for files that are not text"));
        }
    };
    let text = String::from_utf8_lossy(&body[..keep]).into_owned();
    let offset = offset + torn_head as u64;
    Ok(FileContent {
        place: None,
        language: None,
        path,
        content: text,
        offset,
        next_offset: offset + keep as u64,
        size_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn permission_bits_read_as_usual() {
        assert_eq!(permissions(0o100_755), "rwxr-xr-x");
        assert_eq!(permissions(0o640), "rw-r-----");
        assert!(parse_mode("0644").is_ok_and(|mode| mode == 0o644));
        for bad in ["", "9", "rw", "77777", "-1"] {
            assert!(parse_mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert!(content("/x".into(), 0, vec![b'a', 0xff, b'b'], 3).is_err());
        assert!(
            content("/x".into(), 0, vec![b'a', 0xc3], 2).is_err(),
            "a torn end of the file itself"
        );
    }

    proptest! {
        #[test]
        fn ranges_of_any_size_add_up_to_the_file(text in "\\PC{0,80}", limit in 4u64..9) {
            let bytes = text.as_bytes();
            let (mut offset, mut read) = (0u64, String::new());
            while offset < bytes.len() as u64 {
                let end = (offset + limit).min(bytes.len() as u64);
                let part = bytes[offset as usize..end as usize].to_vec();
                let part = content("/x".into(), offset, part, bytes.len() as u64).expect("text");
                prop_assert!(part.next_offset > offset);
                offset = part.next_offset;
                read.push_str(&part.content);
            }
            prop_assert_eq!(read, text);
        }
    }
}
