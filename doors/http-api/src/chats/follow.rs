//! A chat as a client follows it: one event after the other as the client takes them, so that no more than what was
//! read at once waits for it.

use std::{collections::VecDeque, time::Duration};

use axum::response::sse::Event;
use futures::{
    Stream,
    future::{BoxFuture, poll_immediate},
    stream,
};
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::{ChatEvent, ChatEvents};
use serde_json::json;
use tokio::time::Instant;

/// Longest time that a client may leave an event. Shorter than that after which its connection is closed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Place of a client in a chat.
struct Followed {
    events: Box<dyn ChatEvents>,
    /// Events that were read and wait for the client.
    ready: VecDeque<ChatEvent>,
    /// Sequence of the last event that was handed out, and when.
    last: u64,
    handed: Instant,
    over: BoxFuture<'static, ()>,
    ended: bool,
}

/// Events behind a sequence, until the chat or the stream is over, and an event `stream_failed` before an end that is
/// neither.
pub(crate) fn follow(
    events: Box<dyn ChatEvents>,
    after: u64,
    over: BoxFuture<'static, ()>,
) -> impl Stream<Item = Event> + Send + 'static {
    let (ready, handed) = (VecDeque::new(), Instant::now());
    let followed = Followed { events, ready, last: after, handed, over, ended: false };
    stream::unfold(followed, |mut followed| async move {
        let event = followed.next().await?;
        followed.handed = Instant::now();
        Some((event, followed))
    })
}

impl Followed {
    /// The next event, asked for when the client has taken the one before.
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        // Events that were read before are not told to whoever may not know them any more.
        if poll_immediate(&mut self.over).await.is_some() {
            return None;
        }
        if self.handed.elapsed() > PATIENCE {
            return Some(self.end(&slow(self.last)));
        }
        if self.ready.is_empty() {
            let read = tokio::select! {
                biased;
                () = &mut self.over => return None,
                read = self.events.next() => read,
            };
            match read {
                Ok(events) => self.ready.extend(events),
                Err(error) => return Some(self.end(&error)),
            }
        }
        let event = self.ready.pop_front()?;
        self.last = event.sequence;
        // JSON has no line breaks, and a name of an event is one word.
        let sent = Event::default().id(event.sequence.to_string()).event(event.event_type);
        Some(sent.data(json!(event).to_string()))
    }

    fn end(&mut self, error: &ToolError) -> Event {
        self.ended = true;
        Event::default().event("stream_failed").data(json!(error).to_string())
    }
}

fn slow(last: u64) -> ToolError {
    let message = format!("the events were left for more than {} s", PATIENCE.as_secs());
    ToolError::new(Layer::Door, codes::READER_TOO_SLOW, message)
        .next("connect again with the id of the last event in `Last-Event-ID`: nothing was lost")
        .detail("last", last)
        .retryable()
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use axum::response::{IntoResponse, sse::Sse};
    use chrono::Utc;
    use futures::{StreamExt as _, future::pending};
    use serde_json::Value;
    use tokio::sync::watch;

    use super::*;

    /// Chat of which a test says how many events there are; it is over at the last.
    struct FakeChat {
        grown: watch::Receiver<u64>,
        read: u64,
    }

    const LAST: u64 = 9;

    #[async_trait]
    impl ChatEvents for FakeChat {
        async fn next(&mut self) -> Result<Vec<ChatEvent>, ToolError> {
            if self.read >= LAST {
                return Ok(Vec::new());
            }
            let read = self.read;
            let end = *self.grown.wait_for(|grown| *grown > read).await.expect("the test holds it");
            let event = |sequence| ChatEvent {
                sequence,
                event_type: "message_received",
                payload: json!({ "text": "one\ntwo" }),
                recorded_at: Utc::now(),
            };
            self.read = end.min(read + 4);
            Ok((read + 1..=self.read).map(event).collect())
        }
    }

    /// Frames of an answer, as they are on the wire, from behind a sequence on.
    fn frames(
        grown: &watch::Sender<u64>,
        after: u64,
    ) -> impl Stream<Item = String> + Unpin + use<> {
        let chat = FakeChat { grown: grown.subscribe(), read: after };
        let events = follow(Box::new(chat), after, Box::pin(pending()));
        let answer = Sse::new(events.map(Ok::<_, std::convert::Infallible>)).into_response();
        let text = |bytes: Result<axum::body::Bytes, _>| {
            String::from_utf8(bytes.expect("it goes on").to_vec()).expect("text")
        };
        answer.into_body().into_data_stream().map(text)
    }

    fn field<'a>(frame: &'a str, name: &str) -> Option<&'a str> {
        frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn id(frame: &str) -> u64 {
        field(frame, "id").expect("an id").parse().expect("a number")
    }

    fn data(frame: &str) -> Value {
        serde_json::from_str(field(frame, "data").expect("data")).expect("JSON")
    }

    #[tokio::test]
    async fn a_client_that_comes_back_has_each_event_once() {
        for cut in 0..=LAST {
            let (grown, _) = watch::channel(cut);
            let first: Vec<_> =
                frames(&grown, 0).take(usize::try_from(cut).expect("small")).collect().await;
            grown.send_replace(LAST);
            let last = first.last().map_or(0, |frame| id(frame));
            let second: Vec<_> = frames(&grown, last).collect().await;
            let all: Vec<_> = first.iter().chain(&second).map(|frame| id(frame)).collect();
            assert!(all.iter().copied().eq(1..=LAST), "cut behind {cut}: {all:?}");
            for frame in first.iter().chain(&second) {
                let shown = data(frame);
                assert_eq!(shown["sequence"], id(frame));
                assert_eq!(shown["payload"]["text"], "one\ntwo");
                assert_eq!(field(frame, "event"), Some("message_received"));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_events_is_told_so_and_goes_on_where_it_was() {
        let (grown, _) = watch::channel(3);
        let mut slow = frames(&grown, 0);
        let first = slow.next().await.expect("one");
        tokio::time::advance(PATIENCE).await;
        let second = slow.next().await.expect("in time");
        assert_eq!([id(&first), id(&second)], [1, 2]);
        tokio::time::advance(PATIENCE + Duration::from_millis(1)).await;
        let told = slow.next().await.expect("why");
        assert_eq!((field(&told, "event"), field(&told, "id")), (Some("stream_failed"), None));
        let error = data(&told);
        let (code, last) = (&error["code"], &error["details"]["last"]);
        assert_eq!((code, last), (&json!("reader_too_slow"), &json!(2)));
        assert!(slow.next().await.is_none(), "it is dropped");

        grown.send_replace(LAST);
        let rest: Vec<_> = frames(&grown, 2).map(|frame| id(&frame)).collect().await;
        assert!(rest.into_iter().eq(3..=LAST));

        // Whoever waits for an event that is not there leaves none.
        grown.send_replace(1);
        let mut waiting = frames(&grown, 0);
        assert_eq!(id(&waiting.next().await.expect("one")), 1);
        let next = tokio::spawn(async move { waiting.next().await });
        tokio::task::yield_now().await;
        tokio::time::advance(2 * PATIENCE).await;
        grown.send_replace(2);
        assert_eq!(id(&next.await.expect("no panic").expect("the next")), 2);
    }

    /// Also where events that were read wait for the client.
    #[tokio::test]
    async fn nothing_is_handed_out_once_the_credential_is_revoked() {
        let (grown, _) = watch::channel(4);
        let (revoked, over) = tokio::sync::oneshot::channel::<()>();
        let over = Box::pin(async move { drop(over.await) });
        let chat = FakeChat { grown: grown.subscribe(), read: 0 };
        let mut events = Box::pin(follow(Box::new(chat), 0, over));
        assert!(events.next().await.is_some(), "the first of four that were read");
        revoked.send(()).expect("it is listened to");
        assert!(events.next().await.is_none());
    }

    /// A comment that keeps the connection is none of the events: whoever takes it is not slow.
    #[tokio::test(start_paused = true)]
    async fn a_quiet_chat_is_kept_open_and_its_reader_is_not_slow() {
        let (grown, _) = watch::channel(1);
        let chat = FakeChat { grown: grown.subscribe(), read: 0 };
        let events = follow(Box::new(chat), 0, Box::pin(pending()));
        let beat = axum::response::sse::KeepAlive::new().interval(PATIENCE / 2);
        let answer = Sse::new(events.map(Ok::<_, std::convert::Infallible>)).keep_alive(beat);
        let mut frames = answer.into_response().into_body().into_data_stream();
        let mut next = async || {
            let frame = frames.next().await.expect("it goes on").expect("it goes on");
            String::from_utf8(frame.to_vec()).expect("text")
        };
        assert_eq!(id(&next().await), 1);
        for _ in 0..5 {
            let comment = next().await;
            assert!(comment.starts_with(':') && field(&comment, "id").is_none(), "{comment}");
        }
        grown.send_replace(2);
        assert_eq!(id(&next().await), 2);
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_door_and_says_why_it_ends_for_another_reason() {
        struct Removed;
        #[async_trait]
        impl ChatEvents for Removed {
            async fn next(&mut self) -> Result<Vec<ChatEvent>, ToolError> {
                Err(ToolError::internal("it was removed"))
            }
        }
        let ended = follow(Box::new(Removed), 0, Box::pin(async {}));
        assert_eq!(ended.count().await, 0);
        let told = follow(Box::new(Removed), 0, Box::pin(pending()));
        assert_eq!(told.count().await, 1, "the reason, and its end");
    }
}
