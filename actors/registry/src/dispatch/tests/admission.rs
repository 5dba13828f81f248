//! Limits per target, end to end.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use hivekeep_kernel::{Door, Layer};
use serde_json::json;

use crate::{
    Attachment, CallRequest, OpenSession, Options,
    test_util::{
        Stage,
        stage::{self, eventually},
    },
};

fn narrow(in_flight: u32, queued: u32) -> Options {
    let mut options = Stage::loose();
    options.admission.in_flight = in_flight.try_into().expect("above zero");
    options.admission.reserved = 0;
    options.admission.queued = queued;
    options
}

async fn opened(stage: &Stage, count: usize) -> Vec<Attachment> {
    let open = || {
        let client = "one of several".to_owned();
        let (door, user) = (Door::Internal, stage::USER);
        stage.sessions.open(OpenSession {
            door,
            client,
            user,
            resume: None,
            profile: Default::default(),
        })
    };
    let opened = futures::future::join_all((0..count).map(|_| open())).await;
    opened.into_iter().map(|one| one.expect("opens")).collect()
}

async fn waits(stage: &Stage, count: u32) {
    eventually("calls wait", || stage.marks.running.load(SeqCst) == count).await;
}

#[tokio::test]
async fn beyond_the_queue_it_is_busy_and_never_too_many_run() {
    let stage = Stage::new(narrow(2, 3)).await;
    let sessions = opened(&stage, 12).await;
    let calls = sessions.iter().map(|session| {
        let request = stage.request("toy_wait", json!({ "ms": 150 }));
        stage.dispatcher.call(CallRequest { session: session.session, ..request })
    });
    let outcomes = futures::future::join_all(calls).await;
    let (done, refused): (Vec<_>, Vec<_>) =
        outcomes.into_iter().map(|outcome| outcome.result).partition(Result::is_ok);
    assert_eq!((done.len(), refused.len()), (5, 7));
    for error in refused.into_iter().map(|result| result.expect_err("refused")) {
        assert_eq!((error.layer, error.code.as_ref()), (Layer::Admission, "busy"));
        assert!(error.retryable && error.retry_after_ms.is_some());
    }
    assert_eq!(stage.marks.most.load(SeqCst), 2);
    assert_eq!(stage.dispatcher.targets().await.expect("answers"), []);
    let row = &stage.dispatcher.tools()[1];
    assert_eq!((row.tool.as_str(), row.calls, row.errors, row.in_flight), ("toy_wait", 12, 7, 0));
}

#[tokio::test]
async fn who_waits_too_long_is_told_busy() {
    let mut options = narrow(1, 5);
    options.admission.queue_wait_secs = 1.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let (first, second) = tokio::join!(stage.call("toy_wait", json!({ "ms": 3_000 })), async {
        waits(&stage, 1).await;
        stage.refusal("toy_wait", json!({ "ms": 1 })).await
    });
    first.result.expect("not hurt");
    assert_eq!(second.code, "busy");
    assert_eq!(stage.marks.started.load(SeqCst), 1, "the second never began");
}

#[tokio::test]
async fn a_queued_call_whose_caller_goes_leaves_the_queue() {
    let stage = Stage::new(narrow(1, 1)).await;
    let first = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let end = first.cancel.clone();
    let ((), _) = tokio::join!(
        async {
            waits(&stage, 1).await;
            let queued = stage.request("toy_wait", json!({ "ms": 60_000 }));
            let cancel = queued.cancel.clone();
            let (queued, ()) = tokio::join!(stage.dispatcher.call(queued), async {
                while stage.dispatcher.targets().await.expect("answers")[0].queued == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                cancel.cancel();
            });
            assert_eq!(queued.result.expect_err("cancelled").code, "cancelled");
            let rows = stage.dispatcher.targets().await.expect("answers");
            assert_eq!((rows[0].in_flight, rows[0].queued), (1, 0));
            end.cancel();
        },
        stage.dispatcher.call(first),
    );
    assert_eq!(stage.marks.started.load(SeqCst), 1, "the queued call never began");
}

#[tokio::test]
async fn a_deadline_in_the_queue_says_that_nothing_was_done() {
    let stage = Stage::new(narrow(1, 1)).await;
    let first = stage.request("toy_wait", json!({ "ms": 60_000 }));
    let end = first.cancel.clone();
    let (error, _) = tokio::join!(
        async {
            waits(&stage, 1).await;
            let mut late = stage.request("toy_wait", json!({ "ms": 1 }));
            late.timeout = Some(Duration::from_millis(50));
            let error = stage.dispatcher.call(late).await.result.expect_err("late");
            end.cancel();
            error
        },
        stage.dispatcher.call(first),
    );
    assert_eq!((error.layer, error.code.as_ref()), (Layer::Admission, "deadline_exceeded"));
}

#[tokio::test]
async fn looking_works_while_commands_fill_all_their_slots() {
    let mut options = narrow(4, 8);
    options.admission.reserved = 1;
    let stage = Stage::new(options).await;
    let sessions = opened(&stage, 6).await;
    let work = sessions.iter().map(|session| {
        let request = stage.request("toy_wait", json!({ "ms": 1_000 }));
        stage.dispatcher.call(CallRequest { session: session.session, ..request })
    });
    let (work, looked) = tokio::join!(futures::future::join_all(work), async {
        waits(&stage, 3).await;
        let looked = stage.call("toy_look", json!({ "toy_id": "red" })).await;
        assert_eq!(stage.marks.running.load(SeqCst), 3, "the commands still run");
        looked
    });
    looked.result.expect("looked");
    assert!(work.iter().all(|outcome| outcome.result.is_ok()));
    assert_eq!(stage.marks.most.load(SeqCst), 3, "one slot is kept free of commands");
}

#[tokio::test]
async fn work_that_only_waits_can_give_its_place_back() {
    let stage = Stage::new(narrow(1, 1)).await;
    let parked = json!({ "ms": 60_000, "parked": true });
    let both = [stage.request("toy_wait", parked.clone()), stage.request("toy_wait", parked)];
    let ends = both.each_ref().map(|request| request.cancel.clone());
    let calls = both.map(|request| stage.dispatcher.call(request));
    let (outcomes, ()) = tokio::join!(futures::future::join_all(calls), async {
        // The second one gets the place that the first gave back.
        waits(&stage, 2).await;
        while !stage.dispatcher.targets().await.expect("answers").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stage.call("toy_echo", json!({ "text": "x" })).await.result.expect("nothing is in its way");
        ends.iter().for_each(tokio_util::sync::CancellationToken::cancel);
    });
    assert!(outcomes.iter().all(|outcome| outcome.result.is_err()), "they were told to stop");
    // What ended twice is counted once.
    let (first, rows) = tokio::join!(stage.call("toy_wait", json!({ "ms": 300 })), async {
        waits(&stage, 1).await;
        stage.dispatcher.targets().await.expect("answers")
    });
    first.result.expect("not hurt");
    assert_eq!((rows[0].in_flight, rows[0].queued), (1, 0));
}

#[tokio::test]
async fn one_session_leaves_half_of_what_is_shared_to_others() {
    let mut options = narrow(8, 8);
    options.admission.parked = 2;
    let stage = Stage::new(options).await;
    let wait = |parked: bool| stage.request("toy_wait", json!({ "ms": 60_000, "parked": parked }));
    // Two of the first only wait; the others keep their places.
    let (first, rest): (Vec<_>, Vec<_>) =
        ((0..4).map(|_| wait(true)).collect(), (0..6).map(|_| wait(false)).collect());
    let ends: Vec<_> = first.iter().chain(&rest).map(|request| request.cancel.clone()).collect();
    let calls = |requests: Vec<CallRequest>| {
        futures::future::join_all(requests.into_iter().map(|one| stage.dispatcher.call(one)))
    };
    let rest = async {
        waits(&stage, 4).await;
        while stage.dispatcher.targets().await.expect("answers")[0].in_flight > 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        calls(rest).await
    };
    let (_, outcomes, ()) = tokio::join!(calls(first), rest, async {
        waits(&stage, 6).await;
        while stage.dispatcher.targets().await.expect("answers")[0].queued < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let busy = stage.refusal("toy_wait", json!({ "ms": 1 })).await;
        assert_eq!(busy.code, "busy");
        assert!(busy.message.contains("this session's half"), "{}", busy.message);
        let rows = stage.dispatcher.targets().await.expect("answers");
        assert_eq!((rows[0].in_flight, rows[0].queued), (4, 4));
        let shown = "running, 4 in flight (4 of work), 4 waiting, 2 parked";
        eventually("ps shows it", || {
            stage.census.rows().iter().any(|row| row.path == "registry" && row.state == shown)
        })
        .await;
        let other = opened(&stage, 1).await;
        let request = stage.request("toy_wait", json!({ "ms": 1 }));
        let served = CallRequest { session: other[0].session, ..request };
        stage.dispatcher.call(served).await.result.expect("the other half is another's");
        ends.iter().for_each(tokio_util::sync::CancellationToken::cancel);
    });
    assert!(outcomes.iter().all(|outcome| outcome.result.is_err()), "they were told to stop");
}
