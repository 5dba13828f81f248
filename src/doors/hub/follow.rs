//! Followers of events.

use hivekeep_kernel::ToolError;
use serde_json::json;

use super::{
    channel::HubChannel,
    client::Follower,
    frame::{FollowFrom, ToldFrame},
};
use crate::doors::event_feed::{EventFeed, EventFilter, FeedItem};

/// Tells the events of a channel, from the position that was asked for or from now on.
///
/// # Errors
/// `invalid_input` for another kind of position.
pub(super) async fn events(this: &Follower, channel: HubChannel) -> Result<(), ToolError> {
    let core = &this.seat.core;
    let from = match &this.frame.from {
        None => core.journal.events().last().get() + 1,
        Some(FollowFrom::Event(seq)) => *seq,
        Some(FollowFrom::Output(_)) => {
            return Err(ToolError::invalid("`from` is not the number of an event"));
        }
    };
    let (within, subject) = channel.events();
    let filter = EventFilter { kinds: this.frame.kinds.clone(), within, subject };
    let position = (Some(from), core.config.hub.max_behind);
    let mut feed = EventFeed::new(core, &this.caller, position, filter, this.seat.end.clone());
    let _seat = this.seat.seat(&this.name);
    if !this.acknowledge(json!(from)).await {
        return Ok(());
    }
    while let Some(item) = feed.next().await {
        let frame = match &item {
            FeedItem::Event(event) => ToldFrame::of("event", &this.name, json!(**event)),
            FeedItem::Missed(first, last) => {
                ToldFrame::of("missed", &this.name, json!({ "first": first, "last": last }))
            }
        };
        if !this.tell(frame.with("cursor", json!(item.seq().next()))).await {
            break;
        }
    }
    Ok(())
}
