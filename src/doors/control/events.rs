//! Events, past and present.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_store::{Events, Seq, SubscriptionItem};
use serde_json::{Value, json};

use super::Outlet;
use crate::codes;
use crate::doors::DaemonServices;

/// Events read or held at a time.
const AT_A_TIME: usize = 256;

/// Tells events until the client leaves, or, without `follow`, until now.
pub(super) async fn tell(
    core: &DaemonServices,
    from: Option<u64>,
    follow: bool,
    outlet: &Outlet,
) -> Result<Value, ToolError> {
    let (events, from) = (core.journal.events(), from.map(Seq::new));
    match follow {
        true => present(&events, from, outlet).await,
        false => past(&events, from.unwrap_or(Seq::FIRST), outlet).await,
    }
}

async fn present(events: &Events, from: Option<Seq>, outlet: &Outlet) -> Result<Value, ToolError> {
    let mut subscription = events.subscribe(from, AT_A_TIME);
    loop {
        let told = match subscription.next().await.map_err(failed)? {
            SubscriptionItem::Event(event) => outlet.item(json!(*event)).await,
            SubscriptionItem::Missed { first, last } => outlet.item(missed(first, last)).await,
        };
        if !told {
            return Ok(Value::Null);
        }
    }
}

async fn past(events: &Events, from: Seq, outlet: &Outlet) -> Result<Value, ToolError> {
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
            if !outlet.item(json!(event)).await {
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
