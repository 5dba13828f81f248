use std::sync::{Arc, atomic::Ordering};

use hivekeep_protocol::HelloRefusal;
use ractor::{Actor, ActorRef};
use tokio::sync::mpsc::unbounded_channel;

use super::*;
use crate::{
    LinkChange, LinkDown, LinkSupervisor, LinkSupervisorArgs, LinkSupervisorMsg,
    LinkSupervisorOptions,
    fake::{HelloBehaviour, obliging},
};

fn options() -> LinkSupervisorOptions {
    LinkSupervisorOptions {
        ping_idle_ms: 30,
        ping_timeout_ms: 100,
        reconnect_first_ms: 5,
        reconnect_max_ms: 50,
        ..LinkSupervisorOptions::default()
    }
}

async fn keep(
    carrier: FakeCarrier,
    options: LinkSupervisorOptions,
) -> (ActorRef<LinkSupervisorMsg>, UnboundedReceiver<LinkChange>) {
    #[expect(clippy::disallowed_methods, reason = "bounded by the test's own reconnects")]
    let (sender, news) = unbounded_channel();
    let args = LinkSupervisorArgs {
        carrier: Arc::new(carrier),
        token: tokio::sync::watch::channel(token()).1,
        options,
        on_change: Arc::new(move |news| drop(sender.send(news))),
    };
    let (supervisor, _) = Actor::spawn(None, LinkSupervisor, args).await.unwrap();
    (supervisor, news)
}

async fn up(news: &mut UnboundedReceiver<LinkChange>) -> Link {
    match news.recv().await {
        Some(LinkChange::Up { link, .. }) => link,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lost_link_is_told_and_made_anew() {
    let (guest, _seen) = FakeGuest::new(|request| match request {
        ToGuest::RunCommand(_) => RequestBehaviour::HangUp,
        other => obliging(other),
    });
    let (_supervisor, mut news) = keep(guest.carrier(), options()).await;
    for _ in 0..3 {
        let link = up(&mut news).await;
        let outcome = link.exec(shell("x", 1), wait(), |_, _| {}).await;
        assert!(matches!(outcome, Err(LinkError::Down(_))));
        assert!(matches!(news.recv().await, Some(LinkChange::Down { reason: LinkDown::Ended })));
    }
}

#[tokio::test]
async fn a_hung_guest_is_reported_and_so_is_its_return() {
    let hung = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (guest, _seen) = FakeGuest::new({
        let hung = hung.clone();
        move |request| {
            if hung.load(Ordering::SeqCst) { RequestBehaviour::Ignore } else { obliging(request) }
        }
    });
    let (_supervisor, mut news) = keep(guest.carrier(), options()).await;
    let link = up(&mut news).await;
    assert!(matches!(news.recv().await, Some(LinkChange::Unresponsive)));
    hung.store(false, Ordering::SeqCst);
    assert!(matches!(news.recv().await, Some(LinkChange::Responsive)));
    assert!(link.is_up());
}

#[tokio::test]
async fn where_a_restarted_guest_does_not_show_the_link_is_made_anew() {
    let (guest, _seen) = FakeGuest::new(|_| RequestBehaviour::Ignore);
    let (_supervisor, mut news) = keep(guest.carrier().without_connections(), options()).await;
    let _link = up(&mut news).await;
    assert!(matches!(news.recv().await, Some(LinkChange::Unresponsive)));
    let reason = match news.recv().await {
        Some(LinkChange::Down { reason }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason, LinkDown::Unresponsive);
    up(&mut news).await;
}

#[tokio::test]
async fn a_refusal_is_told_and_waits_for_the_owner() {
    let guest = FakeGuest::obliging().0.opening(HelloBehaviour::Refuses(HelloRefusal::Token));
    let carrier = guest.carrier();
    let dials = carrier.dials();
    let (supervisor, mut news) = keep(carrier, options()).await;
    let refused = |news| matches!(news, Some(LinkChange::Refused { error: LinkError::Refused(_) }));
    assert!(refused(news.recv().await));
    assert_eq!(dials.load(Ordering::SeqCst), 1);
    supervisor.cast(LinkSupervisorMsg::reconnect()).unwrap();
    assert!(refused(news.recv().await));
    assert_eq!(dials.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_guest_that_is_not_there_is_told_each_round() {
    let carrier = FakeGuest::obliging().0.carrier().refusing_first(u32::MAX);
    let link = LinkOptions { deadline_ms: 50, ..LinkOptions::default() };
    let (_supervisor, mut news) = keep(carrier, LinkSupervisorOptions { link, ..options() }).await;
    for _ in 0..2 {
        assert!(matches!(news.recv().await, Some(LinkChange::Unreachable { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn links_that_never_last_are_made_ever_more_rarely() {
    let (guest, _seen) = FakeGuest::obliging();
    let options = LinkSupervisorOptions {
        reconnect_first_ms: 100,
        reconnect_max_ms: 3_000,
        ..LinkSupervisorOptions::default()
    };
    let (_supervisor, mut news) = keep(guest.carrier(), options).await;
    let mut pauses = Vec::new();
    for _ in 0..7 {
        up(&mut news).await.close(LinkDown::Closed);
        let lost = tokio::time::Instant::now();
        assert!(matches!(news.recv().await, Some(LinkChange::Down { .. })));
        while news.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        pauses.push(lost.elapsed().as_millis() as u64 / 10 * 10);
    }
    // Virtual time: the pauses are exact but for the handshake's own timers.
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert!(pauses[0] >= 100 && pauses[1] >= 200 && *pauses.last().unwrap() >= 3_000, "{pauses:?}");
}

#[tokio::test]
async fn stopping_the_supervisor_closes_the_link() {
    let (supervisor, mut news) = keep(FakeGuest::obliging().0.carrier(), options()).await;
    let link = up(&mut news).await;
    supervisor.stop(None);
    assert_eq!(link.closed().await, LinkDown::Closed);
}
