//! Quotas under concurrency and across ends.

use std::sync::Arc;

use hivekeep_kernel::{Resources, SessionId};
use hivekeep_ports::{Reservation, SessionQuotas as _};

use crate::test_util::Stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_at_once_get_exactly_what_there_is() {
    let mut options = Stage::loose();
    options.quota.max_workspaces = 20;
    options.quota.max_memory_mb = 20 * 100;
    let stage = Stage::new(options).await;
    let (sessions, session) = (stage.sessions.clone(), stage.attachment.session);
    let one = Resources::workspace(100, 1);
    for round in 0..20 {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let sessions = sessions.clone();
                tokio::spawn(async move { sessions.reserve(session, one).await })
            })
            .collect();
        let mut got = 0;
        for task in tasks {
            match task.await.expect("no panic") {
                Ok(()) => got += 1,
                Err(error) => assert_eq!(error.code, "quota_exceeded"),
            }
        }
        assert_eq!(got, 20, "round {round}");
        (0..20).for_each(|_| sessions.release(session, one));
    }
    let row = &sessions.list().await[0];
    assert_eq!(row.used, Resources::default());
}

#[tokio::test]
async fn what_is_restored_counts_and_a_session_that_is_over_reserves_nothing() {
    let mut options = Stage::loose();
    options.quota.max_workspaces = 2;
    let stage = Stage::new(options).await;
    let (sessions, session) = (&stage.sessions, stage.attachment.session);
    let one = Resources::workspace(1, 1);
    sessions.restore(session, one);
    sessions.restore(session, one);
    let full = sessions.reserve(session, one).await.expect_err("full");
    assert_eq!(full.details["used"]["workspaces"], 2);
    sessions.end(session).await.expect("ends");
    let over = sessions.reserve(session, one).await.expect_err("over");
    assert_eq!(over.code, "session_ended");
    // What it owned may still be given back, and strangers do no harm.
    sessions.release(session, one);
    assert_eq!(sessions.list().await[0].used, one);
    let stranger = SessionId::new();
    sessions.restore(stranger, one);
    sessions.release(stranger, one);
    assert_eq!(sessions.reserve(stranger, one).await.expect_err("unknown").code, "session_unknown");
}

#[tokio::test]
async fn what_the_daemon_has_for_a_session_is_counted_and_no_client_gets_to_it() {
    let mut options = Stage::loose();
    options.quota.max_workspaces = 1;
    let stage = Stage::new(options).await;
    let (sessions, session) = (&stage.sessions, stage.attachment.session);
    let (stand_in, one) = (session.stand_in(), Resources::workspace(1, 1));
    sessions.reserve(stand_in, one).await.expect("reserved");
    assert_eq!(sessions.reserve(session, one).await.expect_err("it is its").code, "quota_exceeded");
    assert_eq!(sessions.user(stand_in), sessions.user(session));
    assert_eq!(sessions.attach(stand_in).await.expect_err("none").code, "session_unknown");
    sessions.end(session).await.expect("ends");
    // A workspace of it is not left over, whatever became of the session.
    let standing = sessions.standing(stand_in).await;
    assert!(!standing.ended && standing.attached && standing.calls_in_flight > 0, "{standing:?}");
    sessions.release(stand_in, one);
    assert_eq!(sessions.list().await[0].used, Resources::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_drawn_from_a_reservation_is_counted_once() {
    let mut options = Stage::loose();
    options.quota.max_workspaces = 6;
    let stage = Stage::new(options).await;
    let (sessions, session) = (stage.sessions.clone(), stage.attachment.session);
    let used = async || stage.sessions.list().await[0].used;
    let one = Resources::workspace(10, 1);
    for round in 0..20 {
        let five = Reservation::take(Arc::new(sessions.clone()), session, one.times(5)).await;
        let five = five.expect("there is room");
        assert_eq!(used().await, one.times(5));
        assert!(sessions.reserve(session, one.times(2)).await.is_err(), "they are not free");
        let draws: Vec<_> = (0..8)
            .map(|_| {
                let five = five.clone();
                tokio::spawn(async move { five.draw(one).await })
            })
            .collect();
        let mut got = 0;
        for draw in draws {
            match draw.await.expect("no panic") {
                Ok(()) => got += 1,
                Err(error) => assert_eq!(error.code, "quota_exceeded"),
            }
        }
        // Five out of it, and the sixth that the session may have beside it.
        assert_eq!((got, five.left()), (6, Resources::default()), "round {round}");
        assert_eq!(used().await, one.times(6));
        drop(five);
        assert_eq!(used().await, one.times(6), "what was drawn is the drawers'");
        (0..6).for_each(|_| sessions.release(session, one));
    }
}

#[tokio::test]
async fn what_nobody_drew_goes_back_with_the_last_that_holds_it() {
    let mut options = Stage::loose();
    options.quota.max_memory_mb = 100;
    let stage = Stage::new(options).await;
    let (sessions, session) = (Arc::new(stage.sessions.clone()), stage.attachment.session);
    let used = async || stage.sessions.list().await[0].used;
    let take = |what| Reservation::take(sessions.clone(), session, what);
    assert_eq!(take(Resources::workspace(101, 1)).await.expect_err("over").code, "quota_exceeded");
    assert_eq!(used().await, Resources::default(), "all of it or nothing");

    let all = take(Resources::workspace(30, 1).times(3)).await.expect("fits");
    let other = all.clone();
    drop(all);
    other.draw(Resources::workspace(30, 1)).await.expect("there");
    // More than is left of it: the rest has to fit by itself, and does not.
    let much = Resources::workspace(80, 2);
    assert_eq!(other.draw(much).await.expect_err("over").code, "quota_exceeded");
    assert_eq!(other.left(), Resources::workspace(30, 1).times(2), "a refusal takes nothing");
    let more = Resources::workspace(65, 3);
    other.draw(more).await.expect("60 of it and 5 beside it");
    assert_eq!(used().await.memory_mb, 95);
    drop(other);
    assert_eq!(used().await, Resources::workspace(30, 1).plus(more), "the rest went back");

    let late = take(Resources::workspace(1, 0)).await.expect("fits");
    stage.sessions.end(session).await.expect("ends");
    let over = late.draw(Resources::workspace(1, 0)).await.expect_err("over");
    assert_eq!(over.code, "session_ended");
}
