//! Tests of a session's life, from opening to forgetting.

use std::{collections::BTreeSet, time::Duration};

use hivekeep_kernel::{Door, Resources, SessionId};
use hivekeep_ports::{SessionQuotas as _, SessionToolsets as _};
use serde_json::json;

use crate::{
    OpenSession, SessionRow, SessionsHandle,
    sessions::{EndReason, SessionState, session},
    test_util::{
        Stage,
        stage::{eventually, running},
    },
};

fn client(resume: Option<SessionId>) -> OpenSession {
    let user = crate::User::Uid(2);
    OpenSession {
        door: Door::McpStdio,
        client: "tester".to_owned(),
        user,
        resume,
        profile: Default::default(),
    }
}

async fn row(sessions: &SessionsHandle, id: SessionId) -> SessionRow {
    sessions.list().await.into_iter().find(|row| row.session == id).expect("listed")
}

/// Lets this much time pass at once.
async fn skip(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn ended(sessions: &SessionsHandle, id: SessionId) -> SessionRow {
    for _ in 0..2_000 {
        let row = row(sessions, id).await;
        if row.state == SessionState::Ended {
            return row;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the session does not end");
}

#[tokio::test]
async fn a_detached_session_is_resumed_within_its_grace() {
    let stage = Stage::new(Stage::loose()).await;
    let first = stage.sessions.open(client(None)).await.expect("opens");
    let id = first.session;
    assert!(!first.resumed);
    drop(first);
    let standing = stage.sessions.standing(id).await;
    assert!(!standing.attached && !standing.ended);
    let again = stage.sessions.open(client(Some(id))).await.expect("resumes");
    assert!(again.resumed && again.session == id && again.notice.is_none());
    assert!(stage.sessions.standing(id).await.attached);
    for kind in ["session.detached", "session.resumed"] {
        assert_eq!(stage.events(kind, 1).await[0].subject, id.to_string());
    }
}

#[tokio::test]
async fn after_its_grace_it_ends_and_resuming_gives_a_new_one_that_says_so() {
    let stage = Stage::new(Stage::loose()).await;
    let id = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.events("session.detached", 1).await;
    skip(Duration::from_secs(3_599)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stage.sessions.standing(id).await.ended, "not yet");
    skip(Duration::from_secs(2)).await;
    let row = ended(&stage.sessions, id).await;
    assert_eq!(row.end_reason, Some(EndReason::GraceOver));
    assert!(stage.sessions.standing(id).await.ended, "what it owned is orphaned");
    let new = stage.sessions.open(client(Some(id))).await.expect("opens");
    assert!(!new.resumed && new.session != id);
    assert!(new.notice.as_ref().expect("a notice").contains(&id.to_string()));
    assert_eq!(stage.events("session.ended", 1).await[0].data["reason"], "grace_over");
}

#[tokio::test]
async fn loaded_toolsets_are_told_once_and_outlive_the_daemon() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let stage = Stage::new(Stage::loose()).await;
    let attachment = stage.sessions.open(client(None)).await.expect("opens");
    let (id, mut told) = (attachment.session, attachment.toolsets());
    assert_eq!(stage.sessions.loaded(id), set(&[]));
    for (wanted, new) in [(&["web", "git"][..], &["web", "git"][..]), (&["git", "fs"], &["fs"])] {
        assert_eq!(stage.sessions.load(id, set(wanted)).await.expect("is written"), set(new));
        assert!(told.has_changed().expect("it lives"));
        told.mark_unchanged();
    }
    assert_eq!(stage.sessions.load(id, set(&["web"])).await.expect("is there"), set(&[]));
    assert!(!told.has_changed().expect("it lives"), "nothing changed");
    drop(attachment);
    let stage = stage.restarted(Stage::loose()).await;
    let again = stage.sessions.open(client(Some(id))).await.expect("resumes");
    assert_eq!(*again.toolsets().borrow(), set(&["fs", "git", "web"]));
    stage.sessions.end(id).await.expect("ends");
    let refused = stage.sessions.load(id, set(&["vault"])).await.expect_err("it is over");
    assert_eq!(refused.code, "session_ended");
}

#[tokio::test]
async fn a_resume_stops_the_clock() {
    let stage = Stage::new(Stage::loose()).await;
    let id = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.events("session.detached", 1).await;
    skip(Duration::from_secs(3_000)).await;
    let again = stage.sessions.open(client(Some(id))).await.expect("resumes");
    skip(Duration::from_secs(3_000)).await;
    drop(again);
    stage.events("session.detached", 2).await;
    skip(Duration::from_secs(3_000)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stage.sessions.standing(id).await.ended, "the grace time began anew");
}

#[tokio::test]
async fn work_that_holds_a_session_keeps_it_without_a_client() {
    let stage = Stage::new(Stage::loose()).await;
    let id = stage.sessions.open(client(None)).await.expect("opens").session;
    let hold = stage.sessions.hold(id);
    assert!(hold.holds());
    stage.events("session.detached", 1).await;
    skip(Duration::from_secs(3_601)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let standing = stage.sessions.standing(id).await;
    assert_eq!((standing.ended, standing.calls_in_flight), (false, 1));
    assert_eq!(
        (standing.idle_for, row(&stage.sessions, id).await.calls_total),
        (Duration::ZERO, 0)
    );
    drop(hold);
    skip(Duration::from_secs(3_601)).await;
    ended(&stage.sessions, id).await;
    assert!(!stage.sessions.hold(id).holds(), "what is over is not kept");
}

#[tokio::test]
async fn a_running_call_keeps_a_session_without_a_client() {
    let stage = Stage::new(Stage::loose()).await;
    let attachment = stage.sessions.open(client(None)).await.expect("opens");
    let id = attachment.session;
    let mut request = stage.request("toy_wait", json!({ "ms": 100_000_000 }));
    request.session = id;
    request.timeout = Some(Duration::from_secs(50_000));
    let dispatcher = stage.dispatcher.clone();
    let call = tokio::spawn(async move { dispatcher.call(request).await });
    eventually("it waits", || stage.marks.running.load(std::sync::atomic::Ordering::SeqCst) == 1)
        .await;
    drop(attachment);
    stage.events("session.detached", 1).await;
    skip(Duration::from_secs(3_601)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let standing = stage.sessions.standing(id).await;
    assert_eq!((standing.ended, standing.calls_in_flight), (false, 1));
    call.abort();
    eventually("the call is over", || {
        stage.dispatcher.tools().iter().all(|row| row.in_flight == 0)
    })
    .await;
    skip(Duration::from_secs(3_601)).await;
    ended(&stage.sessions, id).await;
}

#[tokio::test]
async fn several_clients_may_hold_one_session() {
    let stage = Stage::new(Stage::loose()).await;
    let one = stage.sessions.open(client(None)).await.expect("opens");
    let two = stage.sessions.open(client(Some(one.session))).await.expect("attaches");
    let id = one.session;
    drop(one);
    assert_eq!(row(&stage.sessions, id).await.attachments, 1);
    assert_eq!(row(&stage.sessions, id).await.state, SessionState::Attached);
    drop(two);
    assert_eq!(row(&stage.sessions, id).await.state, SessionState::Detached);
}

#[tokio::test]
async fn sessions_survive_a_restart_of_the_daemon_and_ended_ones_stay_ended() {
    let stage = Stage::new(Stage::loose()).await;
    let kept = stage.sessions.open(client(None)).await.expect("opens").session;
    let over = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.sessions.end(over).await.expect("ends");
    let stage = stage.restarted(Stage::loose()).await;
    let standing = stage.sessions.standing(kept).await;
    assert!(!standing.ended && !standing.attached);
    assert_eq!(row(&stage.sessions, kept).await.client, "tester");
    assert!(stage.sessions.standing(over).await.ended);
    let again = stage.sessions.open(client(Some(kept))).await.expect("resumes");
    assert!(again.resumed);
    drop(again);
    stage.events_of("session.detached", Some(&kept.to_string()), 2).await;
    skip(Duration::from_secs(3_601)).await;
    ended(&stage.sessions, kept).await;
}

#[tokio::test]
async fn a_session_outlives_its_actors() {
    let stage = Stage::new(Stage::loose()).await;
    let id = stage.attachment.session;
    stage.sessions.reserve(id, Resources::workspace(1, 1)).await.expect("fits");
    stage.crash("sessions").await;
    running(&stage.census, &[&format!("sessions/{id}")]).await;
    let row = row(&stage.sessions, id).await;
    assert_eq!((row.state, row.used.workspaces), (SessionState::Attached, 1));
    let again = stage.sessions.open(client(Some(id))).await.expect("attaches");
    assert!(again.resumed);
    stage.sessions.end(id).await.expect("ends");
    assert!(stage.sessions.standing(id).await.ended);
}

#[tokio::test]
async fn a_named_session_is_one_and_lasts() {
    let stage = Stage::new(Stage::loose()).await;
    let opens = (0..8).map(|_| stage.sessions.open_named("cli-0", client(None)));
    let all: Vec<_> = futures::future::join_all(opens).await;
    let ids: std::collections::HashSet<_> =
        all.iter().map(|one| one.as_ref().expect("opens").session).collect();
    assert_eq!(ids.len(), 1, "one session, however many open it at once");
    let fresh = all.iter().filter(|one| !one.as_ref().expect("opens").resumed).count();
    assert_eq!(fresh, 1);
    drop(all);
    stage.events("session.detached", 1).await;
    skip(Duration::from_secs(1_000_000)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let again = stage.sessions.open_named("cli-0", client(None)).await.expect("attaches");
    assert!(again.resumed && ids.contains(&again.session));
    stage.sessions.end(again.session).await.expect("it ends when told");
    let other = stage.sessions.open_named("cli-0", client(None)).await.expect("opens");
    assert!(!other.resumed && other.session != again.session);
}

#[tokio::test]
async fn there_are_never_too_many_and_idle_ones_make_room() {
    let mut options = Stage::loose();
    options.sessions.max_sessions = 3.try_into().expect("above zero");
    let stage = Stage::new(options).await;
    let holds = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.sessions.reserve(holds, Resources::workspace(1, 1)).await.expect("fits");
    let idle = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.events_of("session.detached", Some(&idle.to_string()), 1).await;
    let third = stage.sessions.open(client(None)).await.expect("the idle one makes room");
    let ended = stage.events_of("session.ended", Some(&idle.to_string()), 1).await;
    assert_eq!(ended[0].data["reason"], json!(EndReason::MadeRoom));
    for _ in 0..2_000 {
        if stage.sessions.list().await.iter().all(|row| row.session != idle) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let streams = stage.journal.streams(&format!("session/{idle}")).expect("reads");
    assert_eq!(streams, [], "it did nothing, and leaves nothing");
    let error = stage.sessions.open(client(None)).await.expect_err("all hold something");
    assert_eq!((error.code.as_ref(), error.retryable), ("too_many_sessions", true));
    assert!(!stage.sessions.standing(holds).await.ended);
    drop(third);
    stage.sessions.open(client(None)).await.expect("there is room again");
}

#[tokio::test]
async fn ended_sessions_are_forgotten_after_a_while() {
    let mut options = Stage::loose();
    options.sessions.ended_kept_secs = 0;
    let stage = Stage::new(options).await;
    let id = stage.sessions.open(client(None)).await.expect("opens").session;
    stage.sessions.end(id).await.expect("ends");
    skip(Duration::from_secs(61)).await;
    for _ in 0..2_000 {
        if stage.sessions.list().await.iter().all(|row| row.session != id) {
            assert!(stage.sessions.standing(id).await.ended, "nobody is over");
            let streams = stage.journal.streams(&format!("session/{id}")).expect("reads");
            assert_eq!(streams, []);
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not forgotten");
}

#[tokio::test]
async fn what_cannot_be_written_is_not_so() {
    let stage = Stage::new(Stage::loose()).await;
    let id = stage.attachment.session;
    stage.journal.close().await;
    let refused = stage.sessions.open(client(None)).await.expect_err("not written");
    assert_eq!((refused.code.as_ref(), refused.retryable), ("journal_failed", true));
    assert_eq!(stage.sessions.list().await.len(), 1);
    let refused = stage.sessions.end(id).await.expect_err("not written");
    assert_eq!(refused.code, "journal_failed");
    assert!(!stage.sessions.standing(id).await.ended);
    let again = stage.sessions.open(client(Some(id))).await.expect("it can still be held");
    assert!(again.resumed);
}

#[tokio::test]
async fn a_journal_that_makes_no_sense_is_refused_whole() {
    let stage = Stage::new(Stage::loose()).await;
    let stream = hivekeep_store::StreamId::new("session", "not-an-id").expect("a stream name");
    stage.journal.append(&stream, vec![b"{}".to_vec()]).await.expect("written");
    let census = hivekeep_kernel::Census::default();
    let policy = hivekeep_kernel::RestartPolicy::ENTITY;
    let address = hivekeep_kernel::Address::vacant(census.probe("other", "sessions", policy));
    let restored = SessionsHandle::restore(
        &Stage::loose(),
        Resources::default(),
        stage.journal.clone(),
        census,
        address,
    );
    assert!(matches!(restored, Err(hivekeep_runtime::log::LogError::Unreadable { .. })));
}

/// Makes the actor of a session fail until it is given up.
async fn give_up(stage: &Stage, id: SessionId) {
    let shared = stage.sessions.0.get(id).expect("known");
    for _ in 0..2_000 {
        if shared.ended().is_some() {
            return;
        }
        // It is down for a while between two incarnations.
        let _between = shared.tell(session::Msg::Fail);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it is not given up");
}

#[tokio::test]
async fn a_session_whose_actor_is_given_up_is_over() {
    let stage = Stage::new(Stage::loose()).await;
    let held = stage.sessions.open_named("cli-0", client(None)).await.expect("opens");
    let id = held.session;
    stage.sessions.reserve(id, Resources::workspace(1, 1)).await.expect("fits");
    give_up(&stage, id).await;
    held.over().await;
    let row = row(&stage.sessions, id).await;
    assert_eq!((row.state, row.end_reason), (SessionState::Ended, Some(EndReason::Failed)));
    assert_eq!(row.used.workspaces, 1, "what it owned is there to be adopted");
    let named = stage.sessions.open_named("cli-0", client(None)).await.expect("its name is free");
    assert!(!named.resumed && named.session != id);
    let resumed = stage.sessions.open(client(Some(id))).await.expect("opens");
    assert!(!resumed.resumed && resumed.notice.as_ref().expect("a notice").contains("is over"));
    stage.sessions.end(id).await.expect("it is over already");
    assert_eq!(stage.events_of("session.ended", Some(&id.to_string()), 1).await.len(), 1);
    let stage = stage.restarted(Stage::loose()).await;
    assert!(stage.sessions.standing(id).await.ended, "it is recorded");
}
