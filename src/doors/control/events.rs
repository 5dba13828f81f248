//! Events, past and present.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_store::{Events, JournalEvent, Seq, SubscriptionItem};
use serde_json::{Value, json};

use super::Outlet;
use crate::codes;
use crate::doors::DaemonServices;

/// Events read or held at a time.
const AT_A_TIME: usize = 256;

/// An event as it leaves: what its data has of credentials is hidden.
fn leaving(core: &DaemonServices, event: &JournalEvent) -> Value {
    let mut shown = json!(event);
    shown["data"] = core.dispatcher.redactor().json(shown["data"].take()).0;
    shown
}

/// Tells events until the client leaves, or, without `follow`, until now.
pub(super) async fn tell(
    core: &DaemonServices,
    from: Option<u64>,
    follow: bool,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let (events, from) = (core.journal.events(), from.map(Seq::new));
    match follow {
        true => present(core, &events, from, outlet).await,
        false => past(core, &events, from.unwrap_or(Seq::FIRST), outlet).await,
    }
}

async fn present(
    core: &DaemonServices,
    events: &Events,
    from: Option<Seq>,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let mut subscription = events.subscribe(from, AT_A_TIME);
    loop {
        let told = match subscription.next().await.map_err(failed)? {
            SubscriptionItem::Event(event) => outlet.item(leaving(core, &event)).await,
            SubscriptionItem::Missed { first, last } => outlet.item(missed(first, last)).await,
        };
        if !told {
            return Ok(Value::Null);
        }
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
        if let Some((first, last)) = page.missed
            && !outlet.item(missed(first, last)).await
        {
            break;
        }
        let Some(end) = page.events.last().map(|event| event.seq) else { break };
        for event in page.events {
            if !outlet.item(leaving(core, &event)).await {
                return Ok(Value::Null);
            }
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
