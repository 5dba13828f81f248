//! Upload.

use hivekeep_protocol::{GuestCode, GuestError, WriteFile, WriteFileReply, limits};

use super::temp::FileReplacement;
use super::{io_error, off_thread, path};
use crate::session::call::{RequestContext, cancelled};
use crate::session::inflow::InflowBatch;
use crate::session::payload::Payload;

/// Bytes of a large file that may be on the way at once, so that the disk and the link
/// work at the same time.
const WINDOW_BYTES: u64 = 4 * limits::INITIAL_CREDIT_BYTES as u64;

/// Answers [`WriteFile`] once the new content is durable under its name.
///
/// # Errors
/// As [`FileReplacement::begin`]; `Invalid` when more or fewer bytes came than were
/// announced; `Cancelled`. The old content is then still there.
pub async fn run(cx: &RequestContext, asked: WriteFile) -> Result<WriteFileReply, GuestError> {
    let name = asked.path.clone();
    let (target, run_dir) = (path::absolute(&asked.path)?, cx.agent.settings.run_dir.clone());
    let begin = move || FileReplacement::begin(&target, asked.size_bytes, &run_dir);
    let mut replacement = off_thread(begin).await?;
    if asked.size_bytes > WINDOW_BYTES {
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
        if bytes > asked.size_bytes || (ended && bytes < asked.size_bytes) {
            let message = format!("{name}: {bytes} bytes came, {} announced", asked.size_bytes);
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        let (back, written) = off_thread(move || {
            let contents: Vec<&[u8]> = pieces.iter().map(Payload::content).collect();
            let written = replacement.append(&contents);
            (replacement, written)
        })
        .await;
        replacement = back;
        written.map_err(|error| io_error(&error, &name))?;
        if ended {
            break;
        }
        cx.replenish(arrived).await?;
    }
    // From here on the call cannot be cancelled: it is answered with what it did.
    let replaced = off_thread(move || replacement.commit(asked.mode)).await;
    let replaced = replaced.map_err(|error| io_error(&error, &name))?;
    Ok(WriteFileReply { bytes, replaced: replaced.existed, mode: replaced.mode })
}
