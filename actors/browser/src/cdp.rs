//! Client of the Chrome DevTools Protocol: calls by number, and events in order, over any carrier of
//! frames. Sessions of targets are flat: each message names its own.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hivekeep_kernel::lock;
use hivekeep_runtime::json_text;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::{mpsc, oneshot, watch};

/// Largest message in bytes. A picture of a large page has some ten million.
pub(crate) const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;
/// Messages that wait for the pipe, and events that wait for their receiver.
const QUEUE: usize = 1_024;

/// Carrier of frames; either end closes it by dropping its half.
pub(crate) struct Frames {
    pub(crate) out: mpsc::Sender<Vec<u8>>,
    pub(crate) input: mpsc::Receiver<Vec<u8>>,
}

/// Failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CdpError {
    /// The connection is over.
    #[error("the connection to Chrome ended")]
    Ended,
    /// Chrome refuses it.
    #[error("{0}")]
    Refused(String),
    /// The answer is not what the protocol says.
    #[error("Chrome's answer is not valid: {0}")]
    Malformed(String),
}

/// An event.
#[derive(Debug)]
pub(crate) struct CdpEvent {
    pub(crate) method: String,
    /// Session of the target that it is about.
    pub(crate) session: Option<String>,
    pub(crate) params: Box<RawValue>,
}

type Answer = Result<Box<RawValue>, CdpError>;

/// The client. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cdp(Arc<Inner>);

struct Inner {
    out: mpsc::Sender<Vec<u8>>,
    next: AtomicU64,
    /// `None` once the connection is over.
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    ended: watch::Receiver<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Incoming {
    id: Option<u64>,
    method: Option<String>,
    session_id: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<CallFailure>,
}

#[derive(Deserialize)]
struct CallFailure {
    message: String,
    #[serde(default)]
    data: Value,
}

impl Cdp {
    /// Speaks over a carrier. Events come in order; while nobody takes them, nothing is read.
    pub(crate) fn over(frames: Frames) -> (Self, mpsc::Receiver<CdpEvent>) {
        let (events_in, events) = mpsc::channel(QUEUE);
        let (over, ended) = watch::channel(false);
        let cdp = Self(Arc::new(Inner {
            out: frames.out,
            next: AtomicU64::new(1),
            pending: Mutex::new(Some(HashMap::new())),
            ended,
        }));
        let (weak, mut input) = (Arc::downgrade(&cdp.0), frames.input);
        tokio::spawn(async move {
            while let Some(frame) = input.recv().await {
                let message = match json_text::from_slice::<Incoming>(&frame) {
                    Ok(message) => message,
                    // A call of it would wait for its answer for ever.
                    Err(error) => {
                        tracing::warn!(%error, "a browser sends what is not a message");
                        break;
                    }
                };
                let Some(inner) = weak.upgrade() else { break };
                if let Some(event) = inner.take(message) {
                    drop(inner);
                    if events_in.send(event).await.is_err() {
                        break;
                    }
                }
            }
            if let Some(inner) = weak.upgrade() {
                lock(&inner.pending).take();
            }
            over.send_replace(true);
        });
        (cdp, events)
    }

    /// Makes a call and waits for its answer. Dropped, it is forgotten.
    ///
    /// # Errors
    /// When Chrome refuses it, or the connection ends.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<T, CdpError> {
        let id = self.0.next.fetch_add(1, Relaxed);
        let (answer, answered) = oneshot::channel();
        match lock(&self.0.pending).as_mut() {
            Some(pending) => drop(pending.insert(id, answer)),
            None => return Err(CdpError::Ended),
        }
        let _forgotten = Forget(&self.0, id);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let sent = self.0.out.send(message.to_string().into_bytes()).await;
        sent.map_err(|_| CdpError::Ended)?;
        let result = answered.await.map_err(|_| CdpError::Ended)??;
        json_text::from_str(result.get()).map_err(|error| CdpError::Malformed(error.to_string()))
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) {
        let mut ended = self.0.ended.clone();
        // Its sender is gone only with the reader.
        let _over = ended.wait_for(|over| *over).await;
    }
}

impl Inner {
    /// Answers a call, or hands back an event.
    fn take(&self, message: Incoming) -> Option<CdpEvent> {
        if let Some(id) = message.id {
            let caller = lock(&self.pending).as_mut().and_then(|pending| pending.remove(&id));
            let answer = match (message.error, message.result) {
                (Some(CallFailure { message, data: Value::String(data) }), _) => {
                    Err(CdpError::Refused(format!("{message} ({data})")))
                }
                (Some(failure), _) => Err(CdpError::Refused(failure.message)),
                (None, Some(result)) => Ok(result),
                (None, None) => Err(CdpError::Malformed("it has no result".to_owned())),
            };
            // The caller may have gone.
            let _ = caller.map(|caller| caller.send(answer));
            return None;
        }
        let params = message.params.or_else(|| RawValue::from_string("{}".to_owned()).ok())?;
        Some(CdpEvent { method: message.method?, session: message.session_id, params })
    }
}

/// Forgets a call that nobody waits for.
struct Forget<'a>(&'a Inner, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(pending) = lock(&self.0.pending).as_mut() {
            pending.remove(&self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn texts_that_are_cut_within_a_letter_are_told_and_what_is_no_message_ends_it() {
        let ((out, mut asked), (answers, input)) = (mpsc::channel(4), mpsc::channel(4));
        let (cdp, mut events) = Cdp::over(Frames { out, input });
        let told =
            async |frame: &str| answers.send(frame.as_bytes().to_vec()).await.expect("heard");
        let call = tokio::spawn({
            let cdp = cdp.clone();
            async move { cdp.call::<Value>(None, "Runtime.evaluate", json!({})).await }
        });
        asked.recv().await.expect("asked");
        told(r#"{"method":"Runtime.consoleAPICalled","params":{"text":"c\ud83d"}}"#).await;
        told(r#"{"id":1,"result":{"a\udc00":"cut \ud83d here \ud83d\ude00"}}"#).await;
        let event = events.recv().await.expect("it is told");
        let params: Value = json_text::from_str(event.params.get()).expect("it is read");
        assert_eq!(params, json!({ "text": "c\u{fffd}" }));
        let answer = call.await.expect("no panic").expect("it is answered");
        assert_eq!(answer, json!({ "a\u{fffd}": "cut \u{fffd} here \u{1f600}" }));
        told("nonsense").await;
        cdp.ended().await;
    }
}
