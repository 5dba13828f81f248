//! Writer of a session's end.

use chrono::Utc;
use hivekeep_kernel::{SessionId, ToolError};
use hivekeep_runtime::log::{Decision, LogError};
use hivekeep_store::NewEvent;
use serde_json::json;

use super::{
    EndReason, SessionShared,
    handle::SessionTable,
    records::{Record, stream},
};

/// Writes the end of a session. The record and the event are one commit. The session is over for
/// others as soon as that is true, not when its actor hears of it. One that leaves nothing ends by
/// its stream being gone.
pub(super) async fn write(
    table: &SessionTable,
    shared: &SessionShared,
    reason: EndReason,
) -> Result<(), ToolError> {
    let at = Utc::now();
    let (id, kind): (SessionId, _) = (shared.id, "session.ended");
    let event = shared.tells(kind).then(|| NewEvent {
        kind: kind.to_owned(),
        subject: id.to_string(),
        data: json!({ "reason": reason, "held": shared.usage().used() }),
    });
    let written = if shared.leaves_something(reason) {
        let mut decision = Decision::record(Record::Ended { reason, at });
        decision = event.into_iter().fold(decision, Decision::event);
        match shared.log.decide(|_| Ok(decision)) {
            Ok(durable) => durable.await,
            Err(refused) => Err(refused),
        }
    } else {
        let stream = stream(id);
        let forgotten = table.journal.forget(&stream).await;
        if let (Some(event), Ok(())) = (event, &forgotten) {
            let _lost_is_counted = table.events.publish_later(event);
        }
        forgotten.map_err(|source| LogError::Journal { stream, source })
    };
    written.map_err(ToolError::from)?;
    shared.end(at, reason);
    Ok(())
}
