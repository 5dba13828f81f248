mod queues;
mod stage;
mod toy;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use chrono::Utc;
use futures::FutureExt;
use hivekeep_kernel::{AdmissionPermit, Progress, SwarmId, ToolError, lock};
use hivekeep_store::Seq;
use proptest::prelude::*;

use self::{
    stage::{ADA, BEN, OPERATOR, ROOMY, Stage, eventually},
    toy::{Errand, Plan},
};
use super::{RunCursor, RunEvents, RunOptions, RunRetention, RunState, RunStatus};
use crate::log;

const SECOND: Duration = Duration::from_secs(1);

fn asks() -> Plan {
    Plan { asks: true, ..Plan::default() }
}

fn naps(ms: i64) -> Plan {
    Plan { nap_ms: Some(ms), ..Plan::default() }
}

fn of_group(group: &str) -> Plan {
    Plan { group: group.to_owned(), ..Plan::default() }
}

/// Names of events, which have each place once and times that never run back.
fn names(page: &RunEvents) -> Vec<&'static str> {
    let sequences = page.events.iter().map(|event| event.sequence);
    assert!(sequences.eq(1..=page.total as u64), "{page:?}");
    assert!(page.events.is_sorted_by_key(|event| event.recorded_at), "{page:?}");
    page.events.iter().map(|event| event.event.event_type).collect()
}

const WHOLE: [&str; 8] =
    ["begun", "stepped", "naps", "woken", "stepped", "word", "stepped", "ended"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Killed after any number of its records, the daemon or the manager, it has each record once and each effect once.
    #[test]
    fn a_run_survives_the_end_of_its_daemon_at_any_record(
        deaths in prop::collection::vec((0_usize..9, any::<bool>()), 0..5),
        nap_ms in prop_oneof![Just(0_i64), Just(30)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let mut stage = Stage::new(ROOMY).await;
            let plan = Plan { nap_ms: Some(nap_ms), ..asks() };
            let id = stage.begin(ADA, plan).await.expect("begun");
            for (records, whole) in deaths {
                until_records(&stage, &id, records).await;
                match whole {
                    true => stage = stage.crashed().await,
                    false => stage.kill_manager(),
                }
            }
            until_records(&stage, &id, WHOLE.len()).await;
            let over = stage.rested(&id).await;
            assert_eq!(over.status(), RunStatus::Completed);
            let page = stage.runs.events(ADA, &id, 0, 100).await.expect("read");
            assert_eq!(names(&page), WHOLE);
            assert_eq!(lock(&stage.world.done).len(), 3, "each step took effect once");
            assert_eq!(stage.actors(), 0);
            let stage = stage.crashed().await;
            assert_eq!(stage.view(&id).state, over.state, "it is read as it was");
            stage.daemon.journal.close().await;
        });
    }
}

/// Says the word as soon as the errand asks, and returns when it has so many records.
async fn until_records(stage: &Stage, id: &str, records: usize) {
    let enough = |view: &stage::View| view.state.records >= records;
    let view = stage.until(id, |view| enough(view) || view.state.asks()).await;
    if !enough(&view) {
        stage.say(ADA, id, "go").await.expect("it is told once");
        stage.until(id, enough).await;
    }
}

#[tokio::test]
async fn a_run_that_waits_has_no_actor_and_goes_on_when_it_is_told() {
    let stage = Stage::new(ROOMY).await;
    let id = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&id, |view| view.state.asks()).await;
    eventually(|| stage.actors() == 0 && Arc::strong_count(&stage.world.users.held) == 1).await;
    assert_eq!(stage.view(&id).status(), RunStatus::Running);
    let stage = stage.crashed().await;
    stage.say(ADA, &id, "on").await.expect("it waits");
    assert_eq!(stage.rested(&id).await.state.word.as_deref(), Some("on"));
    assert_eq!(stage.say(ADA, &id, "late").await.expect_err("it is over").code, "run_over");
    let page = stage.runs.events(ADA, &id, 2, 2).await.expect("read");
    let places: Vec<_> = page.events.iter().map(|event| event.sequence).collect();
    assert_eq!((places, page.total), (vec![3, 4], 6));
    assert!(stage.runs.events(ADA, &id, 9, 2).await.expect("read").events.is_empty());
}

#[tokio::test]
async fn events_are_read_on_as_they_come_from_any_place_without_a_gap() {
    let stage = Stage::new(ROOMY).await;
    let id = stage.begin(ADA, asks()).await.expect("begun");
    let follow = async |from: u64| {
        let (mut cursor, mut all) = (RunCursor::behind(from), Vec::new());
        loop {
            let some = stage.runs.next_events(ADA, &id, &mut cursor).await.expect("read");
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    };
    let said = async {
        stage.until(&id, |view| view.state.asks()).await;
        stage.say(ADA, &id, "go").await.expect("it waits");
    };
    let ((all, behind), ()) =
        futures::future::join(futures::future::join(follow(0), follow(4)), said).await;
    let page = stage.runs.events(ADA, &id, 0, 100).await.expect("read");
    assert_eq!(all, page.events);
    assert_eq!(behind, page.events[4..]);
    for from in 0..=all.len() {
        assert_eq!(
            follow(from as u64).await,
            page.events[from..],
            "behind {from}, when it is over"
        );
    }
    assert!(follow(99).await.is_empty());
    let mut of_another = RunCursor::default();
    assert!(stage.runs.next_events(BEN, &id, &mut of_another).await.is_err());

    // Each record has several pieces, and is read whole however few are asked for.
    let stream = log::stream::<Errand>(id.parse::<SwarmId>().expect("an id")).expect("a name");
    let (journal, mut position, mut one_by_one) = (&stage.daemon.journal, Seq::ZERO, Vec::new());
    loop {
        let read = log::read_behind::<Errand>(journal, &stream, position, 1).await.expect("read");
        let Some((last, _)) = read.last() else { break };
        position = *last;
        one_by_one.extend(read.into_iter().map(|(_, record)| Errand::event(&record)));
    }
    assert!(one_by_one.iter().eq(page.events.iter().map(|it| &it.event)), "{one_by_one:?}");
}

#[tokio::test]
async fn a_time_wakes_once_in_its_order_and_after_a_restart() {
    let stage = Stage::new(ROOMY).await;
    let late = stage.begin(ADA, naps(600)).await.expect("begun");
    let never = stage.begin(ADA, naps(3_600_000)).await.expect("begun");
    let soon = stage.begin(ADA, naps(50)).await.expect("begun");
    for id in [&late, &never, &soon] {
        stage.until(id, |view| view.state.until.is_some()).await;
    }
    let woken = stage.rested(&soon).await.state;
    assert!(woken.woken && Utc::now() >= woken.until.expect("it napped"));
    let stage = stage.crashed().await;
    let woken = stage.rested(&late).await.state;
    assert!(Utc::now() >= woken.until.expect("it napped"));
    assert!(stage.view(&never).state.naps());
    // The time that a cancellation withdraws rings nobody.
    assert_eq!(stage.runs.cancel(ADA, &never).await, Ok(true));
    let over = stage.rested(&never).await;
    assert_eq!((over.status(), over.state.woken), (RunStatus::Cancelled, false));
    for (id, names) in [(&late, 7), (&soon, 7), (&never, 5)] {
        assert_eq!(stage.runs.events(ADA, id, 0, 100).await.expect("read").total, names);
    }
}

#[tokio::test]
async fn runs_are_their_users_own_and_an_operators() {
    let stage = Stage::new(ROOMY).await;
    let mut ids = Vec::new();
    for (by, group) in [(ADA, "a"), (ADA, "b"), (BEN, "a"), (ADA, "a")] {
        let id = stage.begin(by, of_group(group)).await.expect("begun");
        stage.rested(&id).await;
        ids.push(id);
    }
    let listed = |by, group, limit| {
        let (rows, total) = stage.runs.list(by, group, limit);
        let rows: Vec<_> = rows.iter().map(|(id, _)| id.to_string()).collect();
        let at = |id: &String| ids.iter().position(|it| it == id).expect("known");
        (rows.iter().map(at).collect::<Vec<_>>(), total)
    };
    assert_eq!(listed(ADA, None, 10), (vec![3, 1, 0], 3));
    assert_eq!(listed(ADA, Some("a"), 1), (vec![3], 2));
    assert_eq!(listed(BEN, Some("b"), 10), (vec![], 0));
    assert_eq!(listed(OPERATOR, None, 3), (vec![3, 2, 1], 4));
    let id = ids[0].as_str();
    let refused: [ToolError; 6] = [
        stage.runs.get(BEN, id).err().expect("not his"),
        stage.runs.events(BEN, id, 0, 1).await.expect_err("not his"),
        stage.runs.wait(&stage.cx(BEN), id, SECOND).await.err().expect("not his"),
        stage.runs.cancel(BEN, id).await.expect_err("not his"),
        stage.runs.remove(BEN, id).await.expect_err("not his"),
        stage.say(BEN, id, "x").await.expect_err("not his"),
    ];
    assert!(refused.iter().all(|error| error.code == "errand_not_found"), "{refused:?}");
    assert!(stage.runs.get(OPERATOR, "odd").is_err());
    assert!(stage.runs.get(OPERATOR, id).is_ok());
}

#[tokio::test]
async fn so_many_run_at_a_time_and_those_that_wait_take_no_place() {
    let stage = Stage::new(RunOptions { max_running: 4, ..ROOMY }).await;
    let waiting = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&waiting, |view| view.state.asks()).await;
    stage.world.gate.store(true, SeqCst);
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(stage.begin(ADA, Plan::default()).await.expect("there is a place"));
    }
    let refused = |error: ToolError| (error.code, error.retryable, error.details["limit"].clone());
    let full = refused(stage.begin(ADA, asks()).await.expect_err("it is too much for one"));
    assert_eq!(full, ("too_many_runs".into(), true, 3.into()));
    let asking = stage.begin(BEN, Plan::default()).await.expect("one place is left to others");
    let full = refused(stage.begin(BEN, asks()).await.expect_err("all are taken"));
    assert_eq!(full, ("too_many_runs".into(), true, 4.into()));
    eventually(|| stage.actors() == 4).await;
    stage.say(ADA, &waiting, "go").await.expect("it waits");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((stage.actors(), stage.view(&waiting).state.steps), (4, 2), "it waits for a place");
    assert_eq!(stage.runs.remove(BEN, &asking).await, Ok(false), "it runs");
    assert_eq!(stage.runs.cancel(BEN, &asking).await, Ok(true));
    stage.rested(&waiting).await;
    assert_eq!(stage.rested(&asking).await.status(), RunStatus::Cancelled);
    stage.world.gate.store(false, SeqCst);
    for id in &running {
        stage.rested(id).await;
    }
    *lock(&stage.world.users.allowance) = Some(0);
    assert!(stage.begin(ADA, asks()).await.is_err(), "the tier allows none");
}

#[tokio::test]
async fn what_is_over_is_kept_by_count_and_age_and_can_be_removed() {
    let stage = Stage::new(RunOptions { kept: 3, ..ROOMY }).await;
    let open = stage.begin(ADA, asks()).await.expect("begun");
    let own = stage.begin(BEN, Plan::default()).await.expect("begun");
    stage.rested(&own).await;
    let mut last = String::new();
    for _ in 0..5 {
        last = stage.begin(ADA, Plan::default()).await.expect("begun");
        eventually(|| stage.runs.get(ADA, &last).is_ok_and(|view| view.state.rested)).await;
    }
    assert_eq!(stage.runs.list(ADA, None, 10).1, 3, "two that are over, and the one that waits");
    assert_eq!(
        stage.view(&own).status(),
        RunStatus::Completed,
        "another's runs push out none of his"
    );
    eventually(|| stage.streams() == 4).await;
    assert_eq!(stage.runs.cancel(ADA, &last).await, Ok(false), "it is over");
    assert_eq!(stage.runs.remove(ADA, &last).await, Ok(true));
    assert!(stage.runs.get(ADA, &last).is_err());
    assert_eq!(stage.runs.remove(ADA, &open).await, Ok(false), "it is not over");
    assert_eq!(stage.streams(), 3);
    let stage = stage.crashed().await;
    assert_eq!(stage.runs.list(OPERATOR, None, 10).1, 3);

    let stage = Stage::new(RunOptions { kept: 9, kept_days: 0, ..ROOMY }).await;
    let mut all = Vec::new();
    for (group, retention) in [
        ("a", RunRetention::Newest(2)),
        ("a", RunRetention::Newest(2)),
        ("b", RunRetention::Always),
        ("b", RunRetention::Days(1)),
        ("b", RunRetention::Usual),
        ("a", RunRetention::Newest(2)),
        ("b", RunRetention::Newest(2)),
    ] {
        let id = stage.begin(ADA, Plan { retention, ..of_group(group) }).await.expect("begun");
        // Where none is kept for its age it may be gone already.
        eventually(|| stage.runs.get(ADA, &id).map_or(true, |view| view.state.rested)).await;
        all.push(id);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let is_kept = || all.iter().map(|id| stage.runs.get(ADA, id).is_ok()).collect::<Vec<_>>();
    eventually(|| is_kept() == [false, true, true, true, false, true, true]).await;

    let stage = Stage::new(RunOptions { kept_days: 0, ..ROOMY }).await;
    let open = stage.begin(ADA, asks()).await.expect("begun");
    let over = stage.begin(ADA, Plan::default()).await.expect("begun");
    eventually(|| stage.runs.get(ADA, &over).is_err()).await;
    eventually(|| stage.streams() == 1).await;
    assert_eq!(stage.view(&open).status(), RunStatus::Running);
}

#[tokio::test]
async fn whoever_sees_its_end_may_remove_a_run_whose_last_step_is_left() {
    let stage = Stage::new(ROOMY).await;
    stage.world.gate.store(true, SeqCst);
    let plan = Plan { sweeps: true, ..Plan::default() };
    let id = stage.begin(ADA, plan).await.expect("begun");
    assert_eq!(stage.runs.cancel(ADA, &id).await, Ok(true));
    let over = stage.until(&id, |view| view.status().is_over()).await;
    assert!(!over.state.rested);
    let swept = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stage.world.gate.store(false, SeqCst);
    };
    let (removed, ()) = futures::future::join(stage.runs.remove(ADA, &id), swept).await;
    assert_eq!(removed, Ok(true));
    assert_eq!((stage.runs.list(ADA, None, 10).1, stage.streams()), (0, 0));
}

#[tokio::test]
async fn whoever_waits_is_told_how_far_it_is_and_is_one_of_so_many() {
    let stage = Stage::new(ROOMY).await;
    let id = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&id, |view| view.state.asks()).await;
    let (view, timed_out) =
        stage.runs.wait(&stage.cx(ADA), &id, Duration::ZERO).await.expect("it is told");
    assert!(timed_out && view.state.asks());
    let (progress, mut told) = Progress::channel(100);
    let mut cx = stage.cx(ADA);
    cx.progress = progress;
    let given_back = Arc::new(AtomicUsize::new(0));
    let counted = given_back.clone();
    cx.slot = AdmissionPermit::new(move || {
        counted.fetch_add(1, SeqCst);
    });
    let one = stage.runs.wait(&cx, &id, SECOND * 60);
    let (other, third) = (stage.cx(ADA), stage.cx(ADA));
    let other = stage.runs.wait(&other, &id, SECOND * 60);
    let all = futures::future::join(one, other);
    let said = async {
        tokio::task::yield_now().await;
        let error = stage.runs.wait(&third, &id, SECOND).await.err().expect("one too many");
        assert_eq!(error.code, "too_many_receivers");
        stage.say(ADA, &id, "go").await.expect("it waits");
    };
    let ((one, other), ()) = futures::future::join(all, said).await;
    for waited in [one, other] {
        let (view, timed_out) = waited.expect("it is told");
        assert!(!timed_out && view.status() == RunStatus::Completed);
    }
    assert_eq!(given_back.load(SeqCst), 1, "it keeps no other call out");
    assert_eq!(told.recv().await.map(|it| it.message).as_deref(), Some("2 of 3 steps"));
    let (view, _) = stage.runs.wait(&third, &id, SECOND).await.expect("it is over");
    assert_eq!(view.status(), RunStatus::Completed);

    let id = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&id, |view| view.state.asks()).await;
    let stopped = async {
        tokio::task::yield_now().await;
        stage.daemon.closing.cancel();
    };
    let cx = stage.cx(ADA);
    let (waited, ()) = futures::future::join(stage.runs.wait(&cx, &id, SECOND * 60), stopped).await;
    assert_eq!(waited.err().expect("the daemon stops").code, "daemon_stopping");
    assert_eq!(stage.begin(ADA, asks()).await.expect_err("too late").code, "daemon_stopping");
}

#[tokio::test]
async fn a_run_that_is_given_up_says_why_and_is_taken_up_at_the_next_start() {
    let stage = Stage::new(RunOptions { max_running: 1, ..ROOMY }).await;
    stage.world.panics.store(true, SeqCst);
    let id = stage.begin(ADA, Plan::default()).await.expect("begun");
    let cx = stage.cx(ADA);
    let (view, timed_out) = stage.runs.wait(&cx, &id, SECOND * 60).await.expect("it is told");
    assert!(!timed_out && view.given_up.as_deref().is_some_and(|why| why.contains("panicked")));
    assert_eq!((view.status(), view.state.steps), (RunStatus::Failed, 0));
    let mut cursor = RunCursor::default();
    let follow = async |cursor: &mut RunCursor| {
        let next = stage.runs.next_events(ADA, &id, cursor);
        tokio::time::timeout(SECOND * 60, next).await.expect("it is over").expect("read")
    };
    assert_eq!(follow(&mut cursor).await.len(), 1, "its beginning");
    assert!(follow(&mut cursor).await.is_empty(), "nothing follows before the next start");
    stage.world.panics.store(false, SeqCst);
    let other = stage.begin(ADA, Plan::default()).await.expect("it takes no place");
    stage.rested(&other).await;
    let stage = stage.crashed().await;
    assert_eq!(stage.rested(&id).await.status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_run_that_is_given_up_can_be_removed_for_good() {
    let stage = Stage::new(ROOMY).await;
    stage.world.panics.store(true, SeqCst);
    let id = stage.begin(ADA, Plan::default()).await.expect("begun");
    stage.until(&id, |view| view.given_up.is_some()).await;
    assert_eq!(stage.runs.remove(ADA, &id).await, Ok(true));
    assert_eq!(stage.streams(), 0);
    let stage = stage.crashed().await;
    assert!(stage.runs.get(ADA, &id).is_err());
}

#[tokio::test]
async fn a_run_is_begun_although_nobody_waits_for_it_and_none_that_is_not_written() {
    let stage = Stage::new(ROOMY).await;
    assert!(stage.begin(ADA, Plan::default()).now_or_never().is_none(), "it takes its time");
    eventually(|| stage.runs.list(ADA, None, 1).1 == 1).await;
    let id = stage.runs.list(ADA, None, 1).0[0].0.to_string();
    stage.rested(&id).await;
    stage.daemon.journal.close().await;
    let error = stage.begin(ADA, Plan::default()).await.expect_err("it cannot be written");
    assert_eq!((error.code.as_ref(), error.retryable), ("journal_failed", false), "{error:?}");
    assert_eq!(stage.runs.list(ADA, None, 10).1, 1);
}

#[tokio::test]
async fn a_run_that_is_over_goes_on_as_it_is_told() {
    let stage = Stage::new(RunOptions { max_running: 2, ..ROOMY }).await;
    let id = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&id, |view| view.state.asks()).await;
    assert_eq!(stage.again(ADA, &id).await.expect_err("it waits").code, "busy");
    stage.runs.cancel(ADA, &id).await.expect("cancelled");
    assert_eq!(stage.rested(&id).await.status(), RunStatus::Cancelled);
    assert_eq!(stage.again(BEN, &id).await.expect_err("not his").code, "errand_not_found");

    stage.again(ADA, &id).await.expect("it goes on");
    let stage = stage.crashed().await;
    stage.until(&id, |view| view.state.asks()).await;
    stage.say(ADA, &id, "never").await.expect("it waits");
    let over = stage.rested(&id).await;
    assert_eq!(over.status(), RunStatus::Completed, "it is not cancelled any more");
    assert_eq!(stage.again(ADA, &id).await.expect_err("refused").code, "invalid_input");
    assert_eq!(stage.view(&id).state, over.state);
    let page = stage.runs.events(ADA, &id, 3, 100).await.expect("read");
    let named: Vec<_> = page.events.iter().map(|event| event.event.event_type).collect();
    assert_eq!(named, ["cancelled", "ended", "again", "word", "stepped", "ended"]);

    // A place is taken as by one that begins, and by one of several that reopen it at a time.
    let other = stage.begin(ADA, asks()).await.expect("begun");
    stage.until(&other, |view| view.state.asks()).await;
    stage.say(ADA, &other, "on").await.expect("it waits");
    stage.rested(&other).await;
    stage.world.gate.store(true, SeqCst);
    let [one, two] = [stage.begin(ADA, of_group("")), stage.begin(BEN, of_group(""))];
    let (one, two) = (one.await.expect("begun"), two.await.expect("begun"));
    assert_eq!(stage.again(ADA, &other).await.expect_err("full").code, "too_many_runs");
    stage.world.gate.store(false, SeqCst);
    let _over = (stage.rested(&one).await, stage.rested(&two).await);
    let both = tokio::join!(stage.again(ADA, &other), stage.again(ADA, &other));
    assert!(both.0.is_ok() || both.1.is_ok(), "{both:?}");
    stage.rested(&other).await;
    let page = stage.runs.events(ADA, &other, 0, 100).await.expect("read");
    let again = page.events.iter().filter(|event| event.event.event_type == "again").count();
    assert_eq!(again, usize::from(both.0.is_ok()) + usize::from(both.1.is_ok()));
    names(&page);
}
