use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::{Door, Effect, lock};
use serde_json::json;

use super::*;
use crate::{
    OpenSession,
    test_util::{Stage, stage::eventually},
};

fn options(max_per_session: usize) -> DeferredOptions {
    DeferredOptions { after_ms: 50, max_per_session, ..Default::default() }
}

async fn open(
    stage: &Stage,
    options: DeferredOptions,
    closing: CancellationToken,
) -> DeferredCalls {
    let (journal, sessions) = (stage.journal.clone(), stage.sessions.clone());
    let opened = DeferredCalls::open(options, journal, sessions, &stage.catalogue, closing);
    opened.await.expect("the records are readable")
}

/// A stage and its deferred calls.
async fn stage() -> (Stage, DeferredCalls) {
    let stage = Stage::new(Stage::loose()).await;
    let calls = open(&stage, options(8), CancellationToken::new()).await;
    (stage, calls)
}

/// A wait that may take long.
fn wait(stage: &Stage, ms: u64) -> CallRequest {
    stage.request("toy_wait", json!({ "ms": ms, "timeout_secs": 100 }))
}

async fn handed_out(stage: &Stage, calls: &DeferredCalls, ms: u64) -> DeferredView {
    match calls.call(&stage.dispatcher, wait(stage, ms)).await {
        DeferredOutcome::HandedOut(view) => view,
        DeferredOutcome::Answered(outcome) => panic!("answered: {outcome:?}"),
    }
}

async fn status(stage: &Stage, calls: &DeferredCalls, id: DeferredId) -> DeferredStatus {
    calls.get(stage.attachment.session, id).await.expect("it is known").status
}

async fn until_over(stage: &Stage, calls: &DeferredCalls, id: DeferredId) -> DeferredStatus {
    eventually("it is over", || lock(&calls.0.calls)[&id].is_over()).await;
    status(stage, calls, id).await
}

async fn streams(stage: &Stage) -> usize {
    let journal = stage.journal.clone();
    let read = tokio::task::spawn_blocking(move || journal.streams("deferred/"));
    read.await.expect("no panic").expect("readable").len()
}

#[tokio::test]
async fn a_call_that_ends_soon_is_answered_and_leaves_nothing() {
    let stage = Stage::new(Stage::loose()).await;
    let options = DeferredOptions { after_ms: 60_000, ..options(8) };
    let calls = open(&stage, options, CancellationToken::new()).await;
    let outcome = calls.call(&stage.dispatcher, wait(&stage, 1)).await;
    let DeferredOutcome::Answered(outcome) = outcome else { panic!("it is handed out") };
    assert_eq!(outcome.result.expect("a success")["timed_out"], false);
    assert!(outcome.receipt.is_some(), "the client's to sign");
    for _ in 0..200 {
        if streams(&stage).await == 0 && lock(&calls.0.calls).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left");
}

#[tokio::test]
async fn a_call_goes_on_without_its_client_and_its_end_is_kept_for_its_session() {
    let (stage, calls) = stage().await;
    let view = handed_out(&stage, &calls, 300).await;
    assert!(matches!(status(&stage, &calls, view.id).await, DeferredStatus::Running));
    let DeferredStatus::Answered(outcome) = until_over(&stage, &calls, view.id).await else {
        panic!("it ended by itself")
    };
    assert_eq!(outcome.result.expect("a success")["timed_out"], false);
    assert_eq!(stage.marks.taken.load(SeqCst), 1, "it was received when it was kept");

    let door = Door::Internal;
    let other = OpenSession {
        door,
        client: "other".to_owned(),
        user: crate::test_util::stage::USER,
        resume: None,
        profile: Default::default(),
    };
    let other = stage.sessions.open(other).await.expect("a session").session;
    let refused = calls.get(other, view.id).await.expect_err("another's");
    let never = calls.get(other, DeferredId::new()).await.expect_err("there is none");
    assert!(refused.is(codes::DEFERRED_CALL_UNKNOWN) && refused.code == never.code);
    assert_eq!(refused.message.len(), never.message.len(), "it is as if it were not there");
    assert!(calls.cancel(other, view.id).is_err());
    assert!(calls.reply(other, view.id, ApprovalId::new(), None).is_err());
}

#[tokio::test]
async fn cancelling_ends_the_work_and_a_second_time_nothing() {
    let (stage, calls) = stage().await;
    let view = handed_out(&stage, &calls, 60_000).await;
    for _ in 0..2 {
        calls.cancel(stage.attachment.session, view.id).expect("it is its own");
    }
    let over = until_over(&stage, &calls, view.id).await;
    assert!(matches!(over, DeferredStatus::Cancelled), "{over:?}");
    eventually("the work is dropped", || stage.marks.dropped.load(SeqCst) == 1).await;
    calls.cancel(stage.attachment.session, view.id).expect("it is over already");
}

#[tokio::test]
async fn a_call_whose_actor_dies_is_answered_and_not_cancelled() {
    let (stage, calls) = stage().await;
    let view = handed_out(&stage, &calls, 60_000).await;
    stage.refusal("toy_panic", json!({ "in_mailbox": true })).await;
    let over = until_over(&stage, &calls, view.id).await;
    assert!(matches!(&over, DeferredStatus::Answered(it) if it.result.is_err()), "{over:?}");
}

#[tokio::test]
async fn a_client_that_leaves_before_it_has_a_handle_cancels_its_call() {
    let (stage, _) = stage().await;
    let slow = DeferredOptions { after_ms: 60_000, ..options(8) };
    let calls = open(&stage, slow, CancellationToken::new()).await;
    let (dispatcher, request) = (stage.dispatcher.clone(), wait(&stage, 60_000));
    let held = calls.clone();
    let client = tokio::spawn(async move { held.call(&dispatcher, request).await });
    eventually("it runs", || stage.marks.running.load(SeqCst) == 1).await;
    client.abort();
    eventually("the work is dropped", || stage.marks.dropped.load(SeqCst) == 1).await;
    eventually("it is forgotten", || lock(&calls.0.calls).is_empty()).await;
}

#[tokio::test]
async fn a_client_that_leaves_at_once_takes_no_room() {
    let (stage, calls) = stage().await;
    for _ in 0..20 {
        // Dropped while the beginning is being written.
        let call = calls.call(&stage.dispatcher, wait(&stage, 60_000));
        let _left = tokio::time::timeout(Duration::ZERO, call).await;
    }
    eventually("nothing is held", || lock(&calls.0.calls).is_empty()).await;
    eventually("nothing runs", || stage.marks.running.load(SeqCst) == 0).await;
}

#[tokio::test]
async fn without_room_a_call_is_an_ordinary_one() {
    let (stage, _) = stage().await;
    let calls = open(&stage, options(1), CancellationToken::new()).await;
    let view = handed_out(&stage, &calls, 60_000).await;
    let second = calls.call(&stage.dispatcher, wait(&stage, 200)).await;
    assert!(matches!(second, DeferredOutcome::Answered(_)), "{second:?}");
    calls.cancel(stage.attachment.session, view.id).expect("its own");
    until_over(&stage, &calls, view.id).await;
    let third = calls.call(&stage.dispatcher, wait(&stage, 200)).await;
    assert!(matches!(third, DeferredOutcome::Answered(_)), "its end is kept");
}

#[tokio::test]
async fn a_restart_keeps_what_ended_and_tells_what_was_lost() {
    let (stage, _) = stage().await;
    let closing = CancellationToken::new();
    let calls = open(&stage, options(8), closing.clone()).await;
    let ended = handed_out(&stage, &calls, 100).await.id;
    let running = handed_out(&stage, &calls, 60_000).await.id;
    until_over(&stage, &calls, ended).await;
    let session = stage.attachment.session;
    closing.cancel();
    let stage = stage.restarted(Stage::loose()).await;
    for _ in 0..2 {
        let calls = open(&stage, options(8), CancellationToken::new()).await;
        let kept = calls.get(session, ended).await.expect("kept").status;
        assert!(matches!(&kept, DeferredStatus::Answered(it) if it.result.is_ok()), "{kept:?}");
        let lost = calls.get(session, running).await.expect("kept").status;
        let DeferredStatus::Lost(error) = lost else { panic!("{lost:?}") };
        assert!(error.is(codes::DAEMON_RESTARTED) && error.retryable, "{error:?}");
        let entry = stage.catalogue.find("toy_wait").expect("there");
        let reads = entry.spec.effect == Effect::Read;
        assert_eq!(error.details["outcome"], if reads { "nothing_done" } else { "unknown" });
    }
    let forgetful = DeferredOptions { kept_secs: 0, ..options(8) };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let calls = open(&stage, forgetful, CancellationToken::new()).await;
    assert!(calls.get(session, ended).await.is_err(), "it has expired");
    for _ in 0..200 {
        if streams(&stage).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left");
}
