//! How calls end that do not end well.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::Duration,
};

use hivekeep_kernel::{Layer, Progress};
use hivekeep_ports::SessionQuotas as _;
use serde_json::json;

use crate::test_util::{
    Stage,
    stage::{Order, eventually},
};

async fn waits(stage: &Stage, count: u32) {
    eventually("calls wait", || stage.marks.running.load(SeqCst) == count).await;
}

async fn becomes(count: &AtomicU32, wanted: u32) {
    eventually("the count is reached", || count.load(SeqCst) == wanted).await;
}

async fn no_slot_is_held(stage: &Stage) {
    for _ in 0..2_000 {
        if stage.dispatcher.targets().await.expect("answers").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a slot is still held");
}

#[tokio::test]
async fn a_cancelled_call_answers_at_once_and_its_work_is_dropped() {
    let stage = Stage::new(Stage::loose()).await;
    let request = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let cancel = request.cancel.clone();
    let (outcome, ()) = tokio::join!(stage.dispatcher.call(request), async {
        waits(&stage, 1).await;
        cancel.cancel();
    });
    assert_eq!(outcome.result.expect_err("cancelled").code, "cancelled");
    becomes(&stage.marks.dropped, 1).await;
    no_slot_is_held(&stage).await;
}

#[tokio::test]
async fn dropping_the_call_cancels_it() {
    let stage = Stage::new(Stage::loose()).await;
    let request = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let dispatcher = stage.dispatcher.clone();
    let call = tokio::spawn(async move { dispatcher.call(request).await });
    waits(&stage, 1).await;
    call.abort();
    becomes(&stage.marks.dropped, 1).await;
    no_slot_is_held(&stage).await;
    let standing = stage.sessions.standing(stage.attachment.session).await;
    assert_eq!(standing.calls_in_flight, 0);
}

#[tokio::test]
async fn a_deadline_cancels_the_work_and_does_not_touch_the_callers_token() {
    let stage = Stage::new(Stage::loose()).await;
    let mut request = stage.request("toy_wait", json!({ "ms": 60_000 }));
    request.timeout = Some(Duration::from_millis(100));
    let cancel = request.cancel.clone();
    let error = stage.dispatcher.call(request).await.result.expect_err("late");
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Actor, "deadline_exceeded"));
    becomes(&stage.marks.dropped, 1).await;
    assert!(!cancel.is_cancelled());
}

#[tokio::test]
async fn an_inputs_own_time_limit_is_the_tools_to_keep() {
    let stage = Stage::new(Stage::loose()).await;
    let own = stage.call("toy_wait", json!({ "ms": 60_000, "timeout_secs": 1 })).await;
    let own = own.result.expect("the tool answers within the margin");
    assert_eq!(own["timed_out"], true);
}

#[tokio::test]
async fn work_that_goes_on_keeps_its_slot_and_its_session_live() {
    let stage = Stage::new(Stage::loose()).await;
    let mut request = stage.request("toy_wait", json!({ "ms": 2_000, "stubborn": true }));
    request.timeout = Some(Duration::from_millis(50));
    let error = stage.dispatcher.call(request).await.result.expect_err("late");
    assert_eq!(error.code, "deadline_exceeded");
    let rows = stage.dispatcher.targets().await.expect("answers");
    assert_eq!((rows.len(), rows[0].in_flight), (1, 1), "the work is not over");
    let standing = stage.sessions.standing(stage.attachment.session).await;
    assert_eq!(standing.calls_in_flight, 1);
    no_slot_is_held(&stage).await;
    eventually("the call is not counted", || {
        stage.dispatcher.tools().iter().all(|row| row.in_flight == 0)
    })
    .await;
}

#[tokio::test]
async fn a_panic_beside_the_mailbox_is_an_internal_error_and_nothing_else() {
    let stage = Stage::new(Stage::loose()).await;
    let error = stage.refusal("toy_panic", json!({})).await;
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Actor, "internal"));
    stage.call("toy_echo", json!({ "text": "x" })).await.result.expect("the toy lives");
    let row = stage.census.rows().into_iter().find(|row| row.path == "toy").expect("listed");
    assert_eq!(row.restarts, 0);
}

#[tokio::test]
async fn a_panic_in_the_mailbox_is_told_as_unknown_and_the_actor_comes_back() {
    let stage = Stage::new(Stage::loose()).await;
    let bystander = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let (bystander, error) = tokio::join!(stage.dispatcher.call(bystander), async {
        waits(&stage, 1).await;
        stage.refusal("toy_panic", json!({ "in_mailbox": true })).await
    });
    for error in [error, bystander.result.expect_err("its actor is gone")] {
        assert_eq!((error.code.as_ref(), error.retryable), ("actor_unavailable", true));
        assert_eq!(error.details["outcome"], "unknown");
    }
    stage.call_patiently("toy_echo", json!({ "text": "x" })).await.result.expect("it is back");
    no_slot_is_held(&stage).await;
}

#[tokio::test]
async fn an_actor_that_is_not_there_is_told_as_such_and_nothing_was_done() {
    let stage = Stage::new(Stage::loose()).await;
    stage.supervisor.send(Order::Stop("toy")).expect("the supervisor lives");
    eventually("the toy is gone", || {
        stage.census.rows().iter().any(|row| row.path == "toy" && row.state == "stopped")
    })
    .await;
    let error = stage.refusal("toy_echo", json!({ "text": "x" })).await;
    assert_eq!((error.code.as_ref(), error.retryable), ("actor_unavailable", true));
    assert_eq!(error.details["outcome"], "nothing_done");
    no_slot_is_held(&stage).await;
}

#[tokio::test]
async fn the_registry_comes_back_and_forgets_what_was_in_flight() {
    let stage = Stage::new(Stage::loose()).await;
    let (running, ()) = tokio::join!(stage.call("toy_wait", json!({ "ms": 500 })), async {
        waits(&stage, 1).await;
        stage.crash("registry").await;
        stage.call_patiently("toy_echo", json!({ "text": "x" })).await.result.expect("it is back");
        let rows = stage.dispatcher.targets().await.expect("answers");
        assert_eq!(rows.len(), 0, "the new incarnation knows nothing of it");
    });
    running.result.expect("a running call is not hurt");
    no_slot_is_held(&stage).await;
}

#[tokio::test]
async fn a_call_that_was_queued_when_the_registry_ended_was_not_done() {
    let mut options = Stage::loose();
    options.admission.in_flight = 1.try_into().expect("above zero");
    options.admission.reserved = 0;
    let stage = Stage::new(options).await;
    let first = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let end = first.cancel.clone();
    let (_, error, ()) = tokio::join!(
        stage.dispatcher.call(first),
        async {
            waits(&stage, 1).await;
            stage.refusal("toy_wait", json!({ "ms": 1 })).await
        },
        async {
            waits(&stage, 1).await;
            while stage.dispatcher.targets().await.expect("answers")[0].queued == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stage.crash("registry").await;
            end.cancel();
        }
    );
    assert_eq!((error.code.as_ref(), error.retryable), ("actor_unavailable", true));
    assert_eq!(error.details["outcome"], "nothing_done");
    assert_eq!(stage.marks.started.load(SeqCst), 1);
}

#[tokio::test]
async fn ending_the_session_ends_its_calls() {
    let stage = Stage::new(Stage::loose()).await;
    let (call, ()) = tokio::join!(stage.call("toy_wait", json!({ "ms": 60_000 })), async {
        waits(&stage, 1).await;
        stage.sessions.end(stage.attachment.session).await.expect("ends");
    });
    assert_eq!(call.result.expect_err("over").code, "session_ended");
    becomes(&stage.marks.dropped, 1).await;
}

#[tokio::test]
async fn progress_reaches_the_caller() {
    let stage = Stage::new(Stage::loose()).await;
    let mut request = stage.request("toy_wait", json!({ "ms": 1 }));
    let (progress, mut updates) = Progress::channel(8);
    request.progress = progress;
    stage.dispatcher.call(request).await.result.expect("waited");
    let mut told = Vec::new();
    while let Some(update) = updates.recv().await {
        told.push((update.done, update.message));
    }
    assert_eq!(told, [(0.0, "waiting".to_owned()), (1.0, "waited".to_owned())]);
}

#[tokio::test]
async fn an_actor_learns_whether_its_answer_was_taken() {
    let stage = Stage::new(Stage::loose()).await;
    stage.call("toy_wait", json!({ "ms": 1 })).await.result.expect("waits");
    becomes(&stage.marks.taken, 1).await;
    // Answered, and the door does not write it.
    let unwritten = stage.dispatcher.call(stage.request("toy_wait", json!({ "ms": 1 }))).await;
    assert!(unwritten.result.is_ok());
    drop(unwritten);
    becomes(&stage.marks.lost, 1).await;
    // Answered while its caller is going away: the work goes on and nobody takes the answer.
    let request = stage.request("toy_wait", json!({ "ms": 200, "stubborn": true }));
    let dispatcher = stage.dispatcher.clone();
    let call = tokio::spawn(async move { dispatcher.call(request).await });
    waits(&stage, 1).await;
    call.abort();
    becomes(&stage.marks.lost, 2).await;
    waits(&stage, 0).await;
    assert_eq!(stage.marks.taken.load(SeqCst), 1);
}
