//! Upload.

use hivekeep_file_engine::Replacement;
use hivekeep_protocol::{GuestCode, GuestError, WriteFile, WriteFileReply, limits};
use rustix::fs::FallocateFlags;

use super::append::Appending;
use super::operation::{panicked, start};
use super::{engine_error, io_error, off_thread, path};
use crate::as_user;
use crate::session::call::{RequestContext, cancelled};
use crate::session::inflow::InflowBatch;
use crate::session::payload::Payload;

/// Bytes of a large file that may be on the way at once, so that the disk and the link
/// work at the same time.
const WINDOW_BYTES: u64 = 4 * limits::INITIAL_CREDIT_BYTES as u64;
/// Files from this size on have their room reserved, so that a full disk is noticed first.
const RESERVED_FROM_BYTES: u64 = 1024 * 1024;

/// Answers [`WriteFile`] once the new content is durable under its name. `user` has no more rights than
/// their own; `None` is root.
///
/// # Errors
/// `UnknownUser`; `IsADirectory`, `Invalid` for a target that is no file, `NoSpace`, or as open(2); `Invalid`
/// when more or fewer bytes came than were announced; `Cancelled`. The old content is then still there.
pub async fn run(
    cx: &RequestContext,
    asked: WriteFile,
    user: Option<String>,
) -> Result<WriteFileReply, GuestError> {
    let WriteFile { path: name, mode, size_bytes } = asked;
    path::absolute(&name)?;
    let user = match user {
        Some(user) => Some(off_thread(move || as_user::find(&user)).await?),
        None => None,
    };
    let (root, target) = (cx.agent.files.root(), name.clone());
    let begun = start(user.clone(), move || Replacement::begin(&root, &target))?;
    let replacement = begun.await.map_err(panicked)?.map_err(engine_error)?;
    let failed = |error: std::io::Error| io_error(&error, &name);
    let file = replacement.file().map_err(failed)?;
    let reserved = move || reserve(&file, size_bytes).map(|()| Appending::new(file, size_bytes));
    let mut appending = off_thread(reserved).await.map_err(failed)?;
    if size_bytes > WINDOW_BYTES {
        cx.replenish((WINDOW_BYTES - u64::from(limits::INITIAL_CREDIT_BYTES)) as usize).await?;
    }
    let mut bytes = 0;
    loop {
        let InflowBatch { pieces, ended } = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(cancelled()),
            taken = cx.inflow.take() => taken,
        };
        let arrived: usize = pieces.iter().map(|piece| piece.content().len()).sum();
        bytes += arrived as u64;
        if bytes > size_bytes || (ended && bytes < size_bytes) {
            let message = format!("{name}: {bytes} bytes came, {size_bytes} announced");
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        let (back, written) = off_thread(move || {
            let contents: Vec<&[u8]> = pieces.iter().map(Payload::content).collect();
            let written = appending.append(&contents);
            (appending, written)
        })
        .await;
        appending = back;
        written.map_err(failed)?;
        if ended {
            break;
        }
        cx.replenish(arrived).await?;
    }
    // From here on the call cannot be cancelled: it is answered with what it did.
    let root = cx.agent.files.root();
    let replaced = start(user, move || replacement.commit(&root, mode))?;
    let replaced = replaced.await.map_err(panicked)?.map_err(engine_error)?;
    Ok(WriteFileReply { bytes, replaced: replaced.existed, mode: replaced.mode })
}

fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    if bytes < RESERVED_FROM_BYTES {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
