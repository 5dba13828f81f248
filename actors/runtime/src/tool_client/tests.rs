//! A client against tools that answer what they are told to.

use std::{
    collections::VecDeque,
    sync::{Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, SessionId};
use serde_json::json;
use tokio::sync::Notify;

use super::*;

/// Answers in turn; an answer of nothing waits until it is told to stop, and then ends its work late.
#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Option<Result<Value, ToolError>>>>,
    calls: std::sync::atomic::AtomicUsize,
    begun: Notify,
    ending: Notify,
}

#[async_trait]
impl Tools for Script {
    async fn call(
        &self,
        call: InternalCall,
        _: &'static str,
        _: Value,
    ) -> Result<Value, ToolError> {
        self.calls.fetch_add(1, SeqCst);
        let answer = self.answers.lock().expect("no panic").pop_front().expect("one more answer");
        match answer {
            Some(answer) => answer,
            None => {
                self.begun.notify_one();
                call.cancel.cancelled().await;
                self.ending.notified().await;
                Err(ToolError::cancelled())
            }
        }
    }
}

fn error(code: &'static str) -> ToolError {
    ToolError::foreign(Layer::Actor, code, "as told")
}

fn client(answers: Vec<Option<Result<Value, ToolError>>>) -> (Arc<Script>, ToolClient<u8>) {
    let script = Arc::new(Script { answers: Mutex::new(answers.into()), ..Script::default() });
    (script.clone(), ToolClient::new(script))
}

fn patient() -> OnBehalfOf {
    OnBehalfOf::own(SessionId::new(), Duration::from_secs(3600))
}

#[tokio::test(start_paused = true)]
async fn only_what_did_nothing_is_called_again_unless_it_is_idempotent() {
    let done = |error: ToolError| error.detail("outcome", "unknown");
    // The error, whether a call is made again after it, and whether an idempotent one is.
    let table = [
        (error("busy"), true, true),
        (error("actor_unavailable"), true, true),
        (error("busy").detail("outcome", "nothing_done"), true, true),
        (done(error("actor_unavailable")), false, false),
        (done(error("actor_unavailable").retryable()), false, true),
        (error("journal_failed").retryable(), false, true),
        (error("workspace_state"), false, false),
    ];
    for (error, plain, idempotent) in table {
        for (again, is_idempotent) in [(plain, false), (idempotent, true)] {
            let (script, client) = client(vec![Some(Err(error.clone())), Some(Ok(json!(7)))]);
            let answer: Result<u32, _> = match is_idempotent {
                true => client.call_idempotent(1, &patient(), "t", json!({})).await,
                false => client.call(1, &patient(), "t", json!({})).await,
            };
            assert_eq!(answer.is_ok(), again, "{error:?}, idempotent: {is_idempotent}");
            assert_eq!(script.calls.load(SeqCst), 1 + usize::from(again));
            assert_eq!(client.origins(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline_or_a_cancellation() {
    let busy = || Some(Err(error("busy").retry_after(Duration::from_millis(500))));
    let (script, client) = client((0..9).map(|_| busy()).collect());
    let short = OnBehalfOf::own(SessionId::new(), Duration::from_millis(1200));
    let answer = client.call::<_, Value>(1, &short, "t", json!({})).await;
    assert_eq!(answer.expect_err("it stays busy").code, "busy");
    assert_eq!(script.calls.load(SeqCst), 3);
    let cancelled = patient();
    cancelled.cancel.cancel();
    client.call::<_, Value>(1, &cancelled, "t", json!({})).await.expect_err("it is cancelled");
    assert_eq!(script.calls.load(SeqCst), 4);
}

#[tokio::test]
async fn a_call_that_nobody_awaits_is_told_to_stop_and_its_end_can_be_waited_for() {
    let (script, client) = client(vec![None]);
    let of = client.clone();
    let call =
        tokio::spawn(async move { of.call::<_, Value>(1, &patient(), "t", json!({})).await });
    script.begun.notified().await;
    call.abort();
    assert!(call.await.expect_err("it was let go of").is_cancelled());
    client.quiet(2).await;
    let quiet = client.quiet(1);
    tokio::pin!(quiet);
    assert!(futures::poll!(quiet.as_mut()).is_pending(), "its work has not ended");
    script.ending.notify_one();
    quiet.await;
    while client.origins() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_answer_without_its_fields_is_a_defect() {
    let (_, client) = client(vec![Some(Ok(json!({ "workspaces": 3 })))]);
    let error = client.workspaces(1, &patient()).await.expect_err("no list");
    assert!(error.code == "internal" && error.message.contains("workspace_list"), "{error:?}");
}
