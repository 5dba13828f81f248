//! Group commit, order, limits and back-pressure.

use std::time::Duration;

use fail::FailScenario;
use hivekeep_store::{Append, AppendCallback, Error, Options, Seq, StopReason};

use crate::util::{event, hold, opened, stream};

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_together_commits_together_and_in_order() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let journal = opened(&Options::at(dir.path())).await;
    let blocked = hold(&journal).await;
    let name = stream("q/a");
    let (one, bad) = (journal.clone(), stream("q/bad"));
    // Appends in flight at once from one caller: first polled, first in.
    let caller = tokio::spawn({
        let name = name.clone();
        async move {
            let mut appends = tokio::task::JoinSet::new();
            for n in 0..50u8 {
                let (journal, name) = (one.clone(), name.clone());
                let seq = async move { journal.append(&name, vec![vec![n]]).await };
                let mut seq = Box::pin(seq);
                assert!(poll_once(&mut seq).await.is_none());
                appends.spawn(seq);
            }
            // A refused request in the same commit harms nobody.
            let refused = one.snapshot(&bad, Seq::new(9), vec![]).await;
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
            appends.join_all().await
        }
    });
    while journal.stats().queue_depth < 51 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    blocked.release().await.unwrap();
    for seq in caller.await.unwrap() {
        seq.unwrap();
    }
    assert_eq!(journal.stats().commits, 2);
    let records = journal.replay(&name).unwrap().records;
    assert!(records.iter().zip(0..50u8).all(|((_, bytes), n)| *bytes == [n]));
    assert_eq!(records.len(), 50);
    scenario.teardown();
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_makes_callers_wait_and_a_stuck_disk_is_said() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options { queue_records: 2, append_timeout_secs: 1, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    let blocked = hold(&journal).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let journal = journal.clone();
        waiting.spawn(async move { journal.append(&stream("q/a"), vec![vec![]]).await });
    }
    for answer in waiting.join_all().await {
        assert!(matches!(answer, Err(Error::Timeout { after_secs: 1 })), "{answer:?}");
    }
    assert_eq!(journal.stats().queue_depth, 2);
    assert!(matches!(blocked.release().await, Err(Error::Timeout { .. })));
    // The outcome of a timeout is unknown: the two in the queue committed.
    journal.append(&stream("q/b"), vec![vec![]]).await.unwrap();
    assert_eq!(journal.replay(&stream("q/a")).unwrap().records.len(), 2);
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_hold_bounded_memory() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        queue_mb: 1,
        max_record_kb: 512,
        max_snapshot_kb: 512,
        append_timeout_secs: 1,
        ..Options::at(dir.path())
    };
    let journal = opened(&options).await;
    let blocked = hold(&journal).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let journal = journal.clone();
        waiting.spawn(async move { journal.append(&stream("q/a"), vec![vec![0; 400_000]]).await });
    }
    for answer in waiting.join_all().await {
        assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
    }
    assert_eq!(journal.stats().queue_depth, 2, "a third would be above 1 MiB");
    // The append timed out too, or was just in time.
    let _ = blocked.release().await;
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_above_the_limits_are_refused_before_they_queue() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { max_record_kb: 1, max_snapshot_kb: 2, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    let name = stream("q/a");
    journal.append(&name, vec![vec![0; 1024]]).await.unwrap();
    let large = journal.append(&name, vec![vec![], vec![0; 1025]]).await;
    assert!(matches!(large, Err(Error::TooLarge { bytes: 1025, max_bytes: 1024, .. })));
    let large = journal.snapshot(&name, Seq::FIRST, vec![0; 2049]).await;
    assert!(matches!(large, Err(Error::TooLarge { .. })));
    let none = journal.append(&name, vec![]).await;
    assert!(matches!(none, Err(Error::Invalid { .. })));
    assert_eq!(journal.replay(&name).unwrap().records.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_commits_what_is_queued_then_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::at(dir.path());
    let journal = opened(&options).await;
    for n in 0..30 {
        assert!(journal.events().publish_later(event("e", n)));
    }
    assert_eq!(journal.close().await, StopReason::Closed);
    let refused = journal.append(&stream("q/a"), vec![vec![]]).await;
    assert!(matches!(refused, Err(Error::Closed)));
    assert!(!journal.events().publish_later(event("e", 31)));
    let journal = opened(&options).await;
    assert_eq!(journal.events().last().get(), 30);
    // Dropping the last handle closes it too.
    let stats = journal.stats();
    assert_eq!((stats.commits, stats.poisoned), (0, None));
    drop(journal);
    while crate::util::open(&options).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_listed_by_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let journal = opened(&Options::at(dir.path())).await;
    for name in ["ws/a", "ws/ab", "ws/b", "ws-old/a", "team/a"] {
        journal.append(&stream(name), vec![vec![]; 3]).await.unwrap();
    }
    journal.snapshot(&stream("ws/b"), Seq::new(3), vec![]).await.unwrap();
    let names = |prefix: &str| -> Vec<String> {
        journal.streams(prefix).unwrap().iter().map(ToString::to_string).collect()
    };
    assert_eq!(names("ws/"), ["ws/a", "ws/ab", "ws/b"]);
    assert_eq!(names("ws/a"), ["ws/a", "ws/ab"]);
    assert_eq!(names("").len(), 5);
    assert_eq!(names("x").len(), 0);
    journal.forget(&stream("ws/b")).await.unwrap();
    journal.forget(&stream("ws/none")).await.unwrap();
    assert_eq!(names("ws/"), ["ws/a", "ws/ab"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_behind_a_fence() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options { append_timeout_secs: 1, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    let blocked = hold(&journal).await;
    let name = stream("q/late");
    let late = journal.append(&name, vec![b"late".to_vec()]).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    assert!(journal.replay(&name).unwrap().records.is_empty());
    assert!(matches!(journal.settled().await, Err(Error::Timeout { .. })), "it is not decided");
    let (fence, one) = (journal.clone(), name.clone());
    let settled = tokio::spawn(async move {
        fence.settled().await.unwrap();
        fence.replay(&one).unwrap().records.len()
    });
    while journal.stats().queue_depth < 3 {
        tokio::task::yield_now().await;
    }
    blocked.release().await.unwrap_err();
    assert_eq!(settled.await.unwrap(), 1);
    assert_eq!(journal.stats().commits, 2, "a fence is none");
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_nobody_waits_for_gets_one_outcome_in_every_case() {
    let scenario = FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let options = Options { queue_records: 2, ..Options::at(dir.path()) };
    let journal = opened(&options).await;
    let (report, mut outcomes) = tokio::sync::mpsc::channel(8);
    let append = |n: u8| {
        let records = vec![vec![n]];
        let (report, stream) = (report.clone(), stream("q/told"));
        let done: AppendCallback = Box::new(move |outcome| report.try_send((n, outcome)).unwrap());
        journal.try_append(Append { stream, records, events: Vec::new() }, done)
    };
    let blocked = hold(&journal).await;
    assert!(append(1).is_ok() && append(2).is_ok());
    let Err((given_back, _done)) = append(3) else { panic!("there is room for two") };
    assert_eq!(given_back.records, [[3]]);
    blocked.release().await.unwrap();
    for n in [1, 2] {
        let (which, outcome) = outcomes.recv().await.unwrap();
        assert_eq!((which, outcome.unwrap()), (n, Seq::new(u64::from(n))));
    }
    // Appends in the queue when the journal is closed, and after its end.
    let blocked = hold(&journal).await;
    let closing = journal.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    while journal.stats().queue_depth < 1 {
        tokio::task::yield_now().await;
    }
    assert!(append(4).is_ok());
    blocked.release().await.unwrap();
    assert_eq!(closed.await.unwrap(), StopReason::Closed);
    let (which, _either) = outcomes.recv().await.unwrap();
    assert_eq!(which, 4);
    assert!(append(5).is_err(), "the writer has ended");
    drop(report);
    scenario.teardown();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_is_reported_too() {
    let scenario = FailScenario::setup();
    for (point, action) in [("flush", "return"), ("apply", "panic(boom)")] {
        let dir = tempfile::tempdir().unwrap();
        let journal = opened(&Options::at(dir.path())).await;
        let point = format!("store::commit::{point}");
        fail::cfg(&point, action).unwrap();
        let (report, outcomes) = tokio::sync::oneshot::channel();
        let done: AppendCallback = Box::new(move |outcome| report.send(outcome).unwrap());
        let (stream, records) = (stream("q/fails"), vec![vec![1]]);
        assert!(journal.try_append(Append { stream, records, events: Vec::new() }, done).is_ok());
        assert!(outcomes.await.unwrap().is_err(), "{point}");
        fail::remove(&point);
    }
    scenario.teardown();
}
