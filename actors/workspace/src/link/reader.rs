use std::sync::Arc;

use hivekeep_protocol::{Decoder, Frame, GuestEvent, Kind, decode};
use tokio::io::AsyncReadExt;

use super::{
    carrier::Reading,
    core::Core,
    error::{LinkDown, Violation},
    events::MAX_EVENT_BYTES,
    inbox::Reply,
};

/// Bytes asked of the carrier at once: four chunks.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// Hands the guest's frames to their calls until the link is down. `received`
/// came with the handshake.
pub(super) async fn read_until_down(core: Arc<Core>, reader: Reading, received: Vec<u8>) {
    tokio::select! {
        biased;
        _ = core.closed() => {}
        reason = read(&core, reader, received) => core.close(reason),
    }
}

async fn read(core: &Core, mut reader: Reading, received: Vec<u8>) -> LinkDown {
    let mut decoder = Decoder::default();
    if let Err(reason) = take_in(core, &mut decoder, &received) {
        return reason;
    }
    drop(received);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let len = match reader.read(&mut buffer).await {
            Ok(0) => return LinkDown::Ended,
            Ok(len) => len,
            Err(error) => return LinkDown::Io(error.to_string()),
        };
        core.heard();
        if let Err(reason) = take_in(core, &mut decoder, &buffer[..len]) {
            return reason;
        }
    }
}

fn take_in(core: &Core, decoder: &mut Decoder, mut bytes: &[u8]) -> Result<(), LinkDown> {
    while !bytes.is_empty() {
        let (used, frame) = decoder.push(bytes)?;
        bytes = &bytes[used..];
        if let Some(frame) = frame {
            deliver(core, frame)?;
        }
    }
    Ok(())
}

fn deliver(core: &Core, Frame { kind, id, payload }: Frame) -> Result<(), Violation> {
    match kind {
        Kind::Data => match core.calls.find(id) {
            Some(call) => {
                call.inbox().data(payload)?;
                call.wake.notify_one();
            }
            None if core.is_stray() => {}
            None => return Err(Violation::UnknownCall(kind, id)),
        },
        Kind::Reply => match core.calls.find(id) {
            Some(call) => {
                // Closed only once it is understood: a call that is open is woken
                // by the end of the link.
                let reply: Reply = decode(&payload).map_err(|_| Violation::Undecodable(kind))?;
                core.calls.close(id);
                call.inbox().answer(reply);
                call.wake.notify_one();
            }
            None if core.is_stray() => {}
            None => return Err(Violation::UnknownCall(kind, id)),
        },
        Kind::Credit => {
            let bytes = payload.try_into().map_err(|_| Violation::Undecodable(kind))?;
            // For a closed call it is late and harmless.
            if let Some(call) = core.calls.find(id) {
                call.inbox().credit(u32::from_be_bytes(bytes));
                call.wake.notify_one();
            }
        }
        Kind::Event if id == 0 => take_event(core, &payload)?,
        Kind::Event | Kind::Hello | Kind::Welcome | Kind::Request | Kind::End | Kind::Cancel => {
            return Err(Violation::UnexpectedKind(kind));
        }
    }
    Ok(())
}

fn take_event(core: &Core, payload: &[u8]) -> Result<(), Violation> {
    if payload.len() > MAX_EVENT_BYTES {
        return Err(Violation::EventSize(payload.len()));
    }
    match decode::<GuestEvent>(payload) {
        Ok(event) => core.publish(event),
        // Events are hints, and a newer guest has kinds that we do not know.
        Err(error) => tracing::debug!(%error, "an event of the guest was not understood"),
    }
    Ok(())
}
