//! Stores that the operator reads: events, artifacts and metrics of all users.

use hivekeep_artifact::{ArtifactAccess::Operator, Artifacts, OpenArtifact};
use hivekeep_door_server::{DaemonServices, codes};
use hivekeep_kernel::{ArtifactId, Layer, ToolError};
use hivekeep_metrics::{MetricsReach::All, MetricsStore, MetricsWindow};
use hivekeep_store::{Events, JournalEvent, Seq, SubscriptionItem};
use serde_json::{Value, json};

use super::Outlet;

/// Events read or held at a time.
const AT_A_TIME: usize = 256;

/// An event as it leaves: what its data has of credentials is hidden.
fn leaving(core: &DaemonServices, event: &JournalEvent) -> Value {
    let mut shown = json!(event);
    shown["data"] = core.dispatcher.redactor().json(shown["data"].take()).0;
    shown
}

/// Tells events until the client leaves, or, without `follow`, until now.
pub(super) async fn tell_events(
    core: &DaemonServices,
    from: Option<u64>,
    follow: bool,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let (events, from) = (core.journal.events(), from.map(Seq::new));
    if !follow {
        return past(core, &events, from.unwrap_or(Seq::FIRST), outlet).await;
    }
    let mut subscription = events.subscribe(from, AT_A_TIME);
    loop {
        outlet
            .item(match subscription.next().await.map_err(failed)? {
                SubscriptionItem::Event(event) => leaving(core, &event),
                SubscriptionItem::Missed { first, last } => missed(first, last),
            })
            .await;
    }
}

async fn past(
    core: &DaemonServices,
    events: &Events,
    from: Seq,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let (mut next, last) = (from, events.last());
    while next <= last {
        let reader = events.clone();
        let page = tokio::task::spawn_blocking(move || reader.read(next, AT_A_TIME)).await;
        let page = page.map_err(|error| ToolError::internal(error.to_string()))?.map_err(failed)?;
        if let Some((first, last)) = page.missed {
            outlet.item(missed(first, last)).await;
        }
        let Some(end) = page.events.last().map(|event| event.seq) else { break };
        for event in page.events {
            outlet.item(leaving(core, &event)).await;
        }
        next = end.next();
    }
    Ok(json!({ "last": last }))
}

fn missed(first: Seq, last: Seq) -> Value {
    json!({ "missed": { "first": first, "last": last } })
}

fn failed(error: hivekeep_store::Error) -> ToolError {
    ToolError::new(Layer::Store, codes::JOURNAL_FAILED, error.to_string())
        .next("look at `hivekeep logs`")
}

/// Bytes in one item.
const PART_BYTES: usize = OpenArtifact::MOST_BYTES / 4;

/// Sends an artifact's info and then its text in parts.
pub(super) async fn send_artifact(
    core: &DaemonServices,
    artifact: ArtifactId,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let open = core.ports.need::<Artifacts>()?.open(artifact, Operator).await?;
    outlet.item(json!(*open.info)).await;
    let mut at = Some(0);
    while let Some(offset) = at {
        let part = open.text(offset, PART_BYTES).await?;
        outlet.item(Value::String(part.text)).await;
        at = part.next;
    }
    Ok(Value::Null)
}

pub(super) async fn export_metrics(
    core: &DaemonServices,
    since: MetricsWindow,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let mut export = core.ports.need::<MetricsStore>()?.export(since, All);
    while let Some(part) = export.next().await? {
        outlet.item(Value::Array(part)).await;
    }
    Ok(Value::Null)
}
