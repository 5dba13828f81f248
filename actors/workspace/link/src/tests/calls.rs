use futures::future::join_all;
use hivekeep_kernel::EffectKey;
use hivekeep_protocol::{
    FileStat, GuestCode, GuestError, JobList, JobPoll, JobWait, Ping, limits::MAX_PAYLOAD_BYTES,
};

use super::*;
use crate::{Ending, LinkDown, fake::obliging};

fn stalling(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::JobList(_) | ToGuest::JobWait(_) | ToGuest::RunOnce(_) => RequestBehaviour::Stall,
        ToGuest::FileStat(_) => RequestBehaviour::Ignore,
        other => obliging(other),
    }
}

fn stat() -> FileStat {
    FileStat { path: "/x".into() }
}

#[tokio::test]
async fn a_cancel_reaches_the_guest_and_is_confirmed() {
    let (link, mut seen) = link_to(stalling).await;
    let wait = wait();
    let cancel = wait.cancel.clone();
    let asking = tokio::spawn({
        let link = link.clone();
        async move { link.ask(JobList, wait).await }
    });
    let Some(Observation::Request(id, _)) = seen.recv().await else { panic!("no request") };
    cancel.cancel();
    assert_eq!(cancel_seen(&mut seen).await, id);
    let outcome = asking.await.unwrap();
    assert!(matches!(outcome, Err(LinkError::Cancelled(Ending::Confirmed))), "{outcome:?}");
    assert_eq!(link.calls_in_flight(), 0);
}

#[tokio::test]
async fn a_deadline_cancels_and_says_when_the_guest_did_not_confirm() {
    let (link, mut seen) = link_to(stalling).await;
    let outcome = link.ask(stat(), CallTerms::at_most(Duration::from_millis(20))).await;
    assert!(matches!(outcome, Err(LinkError::Deadline(Ending::Unconfirmed))), "{outcome:?}");
    cancel_seen(&mut seen).await;
    link.ping(wait()).await.unwrap();
    assert_eq!(link.calls_in_flight(), 1, "the guest still owes its reply");
}

#[tokio::test]
async fn a_wait_that_is_over_sends_nothing() {
    let (link, mut seen) = link_to(obliging).await;
    let over = wait();
    over.cancel.cancel();
    let outcome = link.ask(JobList, over).await;
    assert!(matches!(outcome, Err(LinkError::Cancelled(Ending::NotSent))), "{outcome:?}");
    link.ping(wait()).await.unwrap();
    assert!(matches!(seen.recv().await, Some(Observation::Request(_, ToGuest::Ping(_)))));
}

#[tokio::test]
async fn a_command_under_a_key_that_is_given_up_goes_on_when_the_daemon_closes_and_only_then() {
    let (link, mut seen) = link_to(stalling).await;
    let (effect, closing) = (EffectKey { key: "k".into(), again: false }, CancellationToken::new());
    for closes in [false, true] {
        for cancels in [false, true] {
            let terms = wait();
            let cancel = terms.cancel.clone();
            let mut once = Box::pin(link.exec_once(&effect, shell("x", 1), false, terms, &closing));
            tokio::select! {
                outcome = &mut once => panic!("{outcome:?}"),
                begun = seen.recv() => {
                    assert!(matches!(begun, Some(Observation::Request(_, ToGuest::RunOnce(_)))));
                }
            }
            if closes {
                closing.cancel();
            }
            if cancels {
                cancel.cancel();
                assert!(matches!(once.await, Err(LinkError::Cancelled(_))));
            } else {
                drop(once);
            }
            link.ping(wait()).await.unwrap();
            let mut is_told = false;
            while let Some(told) = seen.recv().await {
                is_told |= matches!(told, Observation::Cancel(_));
                if matches!(told, Observation::Request(_, ToGuest::Ping(_))) {
                    break;
                }
            }
            assert_eq!(is_told, !closes, "dropped: {}", !cancels);
        }
    }
}

#[tokio::test]
async fn a_dropped_future_cancels_in_the_guest() {
    let (link, mut seen) = link_to(stalling).await;
    let mut asking = Box::pin(link.ask(JobList, wait()));
    let id = tokio::select! {
        outcome = &mut asking => panic!("{outcome:?}"),
        Some(Observation::Request(id, _)) = seen.recv() => id,
    };
    drop(asking);
    assert_eq!(cancel_seen(&mut seen).await, id);
    // The confirmation comes before the pong, and closes the call.
    link.ping(wait()).await.unwrap();
    while link.calls_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(link.is_up());
}

#[tokio::test]
async fn the_guests_error_is_the_callers() {
    let (link, _seen) =
        link_to(|_| RequestBehaviour::Reply(Err(GuestError::new(GuestCode::NoSpace, "disk full"))))
            .await;
    let outcome = link.ask(stat(), wait()).await;
    assert!(matches!(outcome, Err(LinkError::Guest(e)) if e.code == GuestCode::NoSpace));
}

#[tokio::test]
async fn a_request_beyond_the_frame_limit_is_refused_before_it_is_sent() {
    let (link, _seen) = link_to(obliging).await;
    let huge = Ping { payload: vec![0; MAX_PAYLOAD_BYTES] };
    assert!(matches!(link.ask(huge, wait()).await, Err(LinkError::Request(_))));
    link.ping(wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once_all_get_their_own_answer() {
    let (link, _seen) = link_to(obliging).await;
    let calls = (0..1000u32).map(|n| {
        let link = link.clone();
        tokio::spawn(async move {
            let payload = n.to_be_bytes().to_vec();
            assert_eq!(
                link.ask(Ping { payload: payload.clone() }, wait()).await.unwrap().payload,
                payload
            );
        })
    });
    for done in join_all(calls).await {
        done.unwrap();
    }
    assert_eq!(link.calls_in_flight(), 0);
}

#[tokio::test]
async fn never_more_calls_than_the_guest_serves_and_a_ping_still_passes() {
    let (link, mut seen) = link_to(stalling).await;
    let stuck: Vec<_> = (0..300)
        .map(|_| {
            let link = link.clone();
            tokio::spawn(async move { link.ask(JobList, wait()).await })
        })
        .collect();
    // However many wait for news, they take no place of others.
    let poll = JobPoll { job_id: "j".into(), stdout_from: 0, stderr_from: 0, max_bytes: 1 };
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let (link, poll) = (link.clone(), poll.clone());
            let request = JobWait { poll, wait_ms: 1 };
            tokio::spawn(async move { link.ask_waiting(request, wait()).await })
        })
        .collect();
    let (mut lists, mut waits) = (0, 0);
    while lists + waits < 248 {
        match seen.recv().await {
            Some(Observation::Request(_, ToGuest::JobList(_))) => lists += 1,
            Some(Observation::Request(_, ToGuest::JobWait(_))) => waits += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((lists, waits), (184, 64));
    link.ping(wait()).await.unwrap();
    assert_eq!(link.calls_in_flight(), 248);
    stuck.iter().for_each(tokio::task::JoinHandle::abort);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_end_of_the_link_ends_every_call() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::FileStat(_) => RequestBehaviour::HangUp,
        other => stalling(other),
    })
    .await;
    let waiting = tokio::spawn({
        let link = link.clone();
        async move { link.ask(JobList, wait()).await }
    });
    seen.recv().await;
    let outcome = link.ask(stat(), wait()).await;
    assert!(matches!(outcome, Err(LinkError::Down(LinkDown::Ended))), "{outcome:?}");
    assert!(matches!(waiting.await.unwrap(), Err(LinkError::Down(LinkDown::Ended))));
    assert!(!link.is_up());
    assert!(matches!(link.ping(wait()).await, Err(LinkError::Down(LinkDown::Ended))));
}
