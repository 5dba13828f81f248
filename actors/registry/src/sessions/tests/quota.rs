//! Quotas under concurrency and across ends.

use hivekeep_kernel::{Resources, SessionId, ports::Sessions as _};

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
