use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{
    carrier::CarrierWriter,
    core::Core,
    error::LinkDown,
    outbox::{Outgoing, Queues},
};

/// Number of data frames written at once: a quarter of a mebibyte, so that a control frame never
/// waits behind more.
const DATA_AT_ONCE: usize = 1;

/// Writes what is queued until the link is down.
pub(super) async fn write_until_down(core: Arc<Core>, mut writer: CarrierWriter, queues: Queues) {
    tokio::select! {
        biased;
        _ = core.closed() => {}
        error = write(&mut writer, queues) => core.close(LinkDown::Io(error.to_string())),
    }
    // Shutting down informs a guest behind a connection, bounded by the close itself.
    drop(writer);
}

async fn write(writer: &mut CarrierWriter, mut queues: Queues) -> io::Error {
    let (mut batch, mut data) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            biased;
            Some(frame) = queues.control.recv() => batch.push(frame),
            Some(frame) = queues.content.next() => data.push(frame),
            else => return io::ErrorKind::BrokenPipe.into(),
        }
        while data.len() < DATA_AT_ONCE
            && let Some(frame) = queues.content.try_next()
        {
            data.push(frame);
        }
        // Taken after the data: all control frames queued before it are here now.
        for _ in 0..queues.control.len() {
            batch.extend(queues.control.try_recv());
        }
        batch.append(&mut data);
        if let Err(error) = write_frames(writer, &batch).await {
            return error;
        }
        batch.clear();
    }
}

/// Writes frames with as few system calls as the carrier allows.
async fn write_frames<W: AsyncWrite + Unpin>(
    writer: &mut W,
    frames: &[Outgoing],
) -> io::Result<()> {
    if writer.is_write_vectored() {
        let mut slices: Vec<IoSlice<'_>> = frames
            .iter()
            .flat_map(|frame| [&frame.header[..], &frame.payload[..]])
            .filter(|part| !part.is_empty())
            .map(IoSlice::new)
            .collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match writer.write_vectored(rest).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut rest, written),
            }
        }
    } else {
        let len = frames.iter().map(|frame| frame.header.len() + frame.payload.len()).sum();
        let mut bytes = Vec::with_capacity(len);
        for frame in frames {
            bytes.extend_from_slice(&frame.header);
            bytes.extend_from_slice(&frame.payload);
        }
        writer.write_all(&bytes).await?;
    }
    writer.flush().await
}
