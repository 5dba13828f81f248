//! Queues: runs that are begun without a place, and get one in their order.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use hivekeep_kernel::lock;

use super::{
    stage::{ADA, BEN, ROOMY, Stage, eventually},
    toy::Plan,
};
use crate::runs::{RunOptions, RunQueue, RunStatus};

fn queued(name: &str, priority: i32) -> Plan {
    let queue = Some(RunQueue { name: name.to_owned(), priority });
    Plan { queue, ..Plan::default() }
}

/// Runs in the order in which they began to work.
fn order(stage: &Stage, ids: &[String]) -> Vec<usize> {
    let done = lock(&stage.world.done).clone();
    let first = done.iter().filter(|(_, step)| *step == 1);
    let at = |session| ids.iter().position(|id| stage.view(id).state.session == session);
    first.filter_map(|(session, _)| at(*session)).collect()
}

#[tokio::test]
async fn a_place_of_a_queue_is_given_by_priority_and_age_also_after_a_crash() {
    let mut stage = Stage::new(RunOptions { max_running: 4, ..ROOMY }).await;
    stage.world.gate.store(true, SeqCst);
    let mut ids = Vec::new();
    for priority in [0, 0, 0, 5, 0, 5, -1] {
        ids.push(stage.begin(ADA, queued("own", priority)).await.expect("it waits"));
    }
    let works = |stage: &Stage, id: &str| stage.view(id).state.steps == 1;
    eventually(|| works(&stage, &ids[0])).await;
    assert_eq!(stage.actors(), 1);
    assert!(ids[1..].iter().all(|id| stage.view(id).status() == RunStatus::Pending));
    let other = stage.begin(BEN, Plan::default()).await.expect("those that wait take no place");
    stage.runs.cancel(ADA, &ids[4]).await.expect("written");
    assert_eq!(stage.rested(&ids[4]).await.status(), RunStatus::Cancelled, "without a place");

    stage = stage.crashed().await;
    eventually(|| stage.actors() == 2 && works(&stage, &other)).await;
    assert_eq!(order(&stage, &ids), [0], "whoever had the place has it");
    stage.world.gate.store(false, SeqCst);
    for id in &ids {
        stage.rested(id).await;
    }
    assert_eq!(order(&stage, &ids), [0, 3, 5, 1, 2, 6]);
    stage.daemon.journal.close().await;
}

#[tokio::test]
async fn a_queue_has_as_many_places_as_it_says_and_one_that_waits_has_none() {
    let queues = BTreeMap::from([("two".to_owned(), 2)]);
    let stage = Stage::new(RunOptions { queues, ..ROOMY }).await;
    let asks = |name: &str| Plan { asks: true, ..queued(name, 0) };
    let first = stage.begin(ADA, asks("one")).await.expect("begun");
    stage.until(&first, |view| view.state.asks()).await;
    stage.world.gate.store(true, SeqCst);
    let second = stage.begin(ADA, queued("one", 0)).await.expect("begun");
    stage.until(&second, |view| view.state.steps == 1).await;
    stage.say(ADA, &first, "on").await.expect("it waits");
    let mut two = Vec::new();
    for _ in 0..3 {
        two.push(stage.begin(ADA, queued("two", 0)).await.expect("begun"));
    }
    eventually(|| two[..2].iter().all(|id| stage.view(id).state.steps == 1)).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(stage.actors(), 3, "a queue is in the way of no other");
    assert_eq!(stage.view(&two[2]).status(), RunStatus::Pending);
    assert_eq!(stage.view(&first).state.steps, 2, "its place is taken");
    stage.world.gate.store(false, SeqCst);
    for id in [&first, &second].into_iter().chain(&two) {
        assert_eq!(stage.rested(id).await.status(), RunStatus::Completed);
    }
}

#[tokio::test]
async fn queues_are_bounded_in_length_and_by_what_a_user_may_have() {
    let queues = BTreeMap::from([("long".to_owned(), 100)]);
    let stage = Stage::new(RunOptions { max_running: 4, queues, ..ROOMY }).await;
    stage.world.gate.store(true, SeqCst);
    *lock(&stage.world.users.allowance) = Some(2);
    for _ in 0..2 {
        let id = stage.begin(ADA, queued("long", 0)).await.expect("begun");
        stage.until(&id, |view| view.state.steps == 1).await;
    }
    let all = (0..1_000).map(|_| stage.begin(ADA, queued("long", 0)));
    let all = futures::future::join_all(all).await;
    assert!(all.iter().all(Result::is_ok), "{:?}", all.iter().find(|it| it.is_err()));
    let full = stage.begin(ADA, queued("long", 9)).await.expect_err("it is full");
    assert_eq!((&*full.code, &full.details["limit"]), ("too_many_runs", &1_000.into()));
    assert!(full.message.contains("wait in the queue `long`"), "{full}");
    let other = stage.begin(BEN, queued("other", 0)).await.expect("another queue");
    stage.until(&other, |view| view.state.steps == 1).await;
    assert_eq!(stage.actors(), 3, "a user's tier bounds those of a queue");
}
