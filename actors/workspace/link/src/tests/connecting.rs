use std::sync::atomic::Ordering;

use hivekeep_protocol::{HelloRefusal, sync_preamble};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
};

use super::*;
use crate::{AttemptError, Endpoint, LinkDown, fake::HelloBehaviour};

fn short() -> LinkOptions {
    LinkOptions {
        deadline_ms: 3_000,
        attempt_timeout_ms: 700,
        dial_timeout_ms: 300,
        ..LinkOptions::default()
    }
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

async fn connect_with(
    carrier: &FakeCarrier,
    options: LinkOptions,
) -> Result<(Link, GuestWelcome), LinkError> {
    Link::connect_over(carrier, &token(), &options, &CancellationToken::new()).await
}

#[tokio::test]
async fn greets_with_the_token_and_answers() {
    let (guest, mut seen) = FakeGuest::obliging();
    let (link, welcome) = connect(&guest.carrier()).await.unwrap();
    assert_eq!(welcome.guest_version, "0.0.0-fake");
    assert_eq!(seen.recv().await, Some(Observation::Hello([7; 32])));
    link.ping(wait()).await.unwrap();
}

#[tokio::test]
async fn dialling_too_early_is_tried_again() {
    let carrier = FakeGuest::obliging().0.carrier().refusing_first(5);
    let dials = carrier.dials();
    connect(&carrier).await.unwrap();
    assert_eq!(dials.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_socket_that_comes_up_late_is_found() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent.sock");
    let endpoint = Endpoint::Unix { path: path.clone(), peer_uid: own_uid() };
    let connecting = tokio::spawn(async move {
        Link::connect(&endpoint, &token(), &LinkOptions::default(), &CancellationToken::new()).await
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _serving = FakeGuest::obliging().0.listen(&path).unwrap();
    let (link, _) = connecting.await.unwrap().unwrap();
    link.ping(wait()).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_socket_is_not_spoken_to() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent.sock");
    let (guest, mut seen) = FakeGuest::obliging();
    let _serving = guest.listen(&path).unwrap();
    let endpoint = Endpoint::VirtioSerial { path, peer_uid: own_uid() + 1 };
    let outcome =
        Link::connect(&endpoint, &token(), &LinkOptions::default(), &CancellationToken::new())
            .await;
    assert!(matches!(outcome, Err(LinkError::WrongPeer { actual, .. }) if actual == own_uid()));
    assert_eq!(seen.recv().await, Some(Observation::Gone), "not even a hello");
}

#[tokio::test]
async fn a_silent_guest_is_dialled_again_until_the_deadline() {
    let carrier = FakeGuest::obliging().0.opening(HelloBehaviour::Silent).carrier();
    let dials = carrier.dials();
    let outcome = connect_with(&carrier, short()).await;
    assert!(matches!(outcome, Err(LinkError::Unreachable { last: AttemptError::Silent, .. })));
    assert!(dials.load(Ordering::SeqCst) >= 3);
}

#[tokio::test]
async fn a_closed_port_is_dialled_again_until_the_deadline() {
    let carrier = FakeGuest::obliging().0.opening(HelloBehaviour::HangsUp).carrier();
    let outcome = connect_with(&carrier, short()).await;
    let Err(LinkError::Unreachable { attempts, last }) = outcome else { panic!("{outcome:?}") };
    assert!(attempts > 1);
    assert!(matches!(last, AttemptError::Closed | AttemptError::Connect(_)), "{last}");
}

#[tokio::test]
async fn a_refusal_is_final() {
    let carrier =
        FakeGuest::obliging().0.opening(HelloBehaviour::Refuses(HelloRefusal::Token)).carrier();
    let dials = carrier.dials();
    assert!(matches!(connect(&carrier).await, Err(LinkError::Refused(HelloRefusal::Token))));
    assert_eq!(dials.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn stale_bytes_before_the_echo_are_dropped() {
    let mut stale = vec![0xff; 300_000];
    stale.extend_from_slice(&sync_preamble([9; 16]));
    stale.extend_from_slice(&sync_preamble([8; 16])[..20]);
    let guest = FakeGuest::obliging().0.opening(HelloBehaviour::StaleBytes(stale));
    let (link, _) = connect(&guest.carrier().without_connections()).await.unwrap();
    link.ping(wait()).await.unwrap();
}

#[tokio::test]
async fn lost_preambles_are_repeated_where_the_carrier_has_no_connections() {
    for nth in [2, 4] {
        let guest = FakeGuest::obliging().0.opening(HelloBehaviour::HearsPreamble(nth));
        let carrier = guest.carrier().without_connections();
        let dials = carrier.dials();
        connect(&carrier).await.unwrap();
        assert_eq!(dials.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_lost_hello_begins_a_new_round_on_the_same_stream() {
    let guest = FakeGuest::obliging().0.opening(HelloBehaviour::LosesFirstHello);
    let carrier = guest.carrier().without_connections();
    let dials = carrier.dials();
    let (link, _) = connect(&carrier).await.unwrap();
    link.ping(wait()).await.unwrap();
    assert_eq!(dials.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn endless_rubbish_ends_the_attempt() {
    let carrier = FakeGuest::obliging().0.opening(HelloBehaviour::EndlessRubbish).carrier();
    let options = LinkOptions {
        deadline_ms: 30_000,
        attempt_timeout_ms: 30_000,
        retry_first_ms: 60_000,
        ..short()
    };
    let outcome = connect_with(&carrier, options).await;
    assert!(
        matches!(outcome, Err(LinkError::Unreachable { last: AttemptError::NotAGuest(_), .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn connecting_is_cancelled_at_once() {
    let carrier = FakeGuest::obliging().0.opening(HelloBehaviour::Silent).carrier();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = Link::connect_over(&carrier, &token(), &LinkOptions::default(), &cancel).await;
    assert!(matches!(outcome, Err(LinkError::Cancelled(_))));
}

#[tokio::test]
async fn dropping_the_last_handle_closes() {
    let (guest, mut seen) = FakeGuest::obliging();
    let (link, _) = connect(&guest.carrier()).await.unwrap();
    let (clone, closed) = (link.clone(), link.closed());
    drop(link);
    clone.ping(wait()).await.unwrap();
    drop(clone);
    assert_eq!(closed.await, LinkDown::Closed);
    while seen.recv().await.expect("the guest sees the end") != Observation::Gone {}
}

/// Fake vhost-user-vsock device: for three dials it closes without a reply (port not open), sends
/// nothing, then connects.
#[tokio::test]
async fn a_vhost_user_device_is_asked_for_the_port() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("vsock");
    let listener = UnixListener::bind(&path).unwrap();
    let device = tokio::spawn(async move {
        let (closed, _) = listener.accept().await.unwrap();
        drop(closed);
        let (_silent, _) = listener.accept().await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut order = [0; 13];
        stream.read_exact(&mut order).await.unwrap();
        assert_eq!(&order, b"CONNECT 5000\n");
        stream.write_all(b"OK 5000\n").await.unwrap();
        FakeGuest::obliging().0.serve(stream).await;
    });
    let endpoint = Endpoint::VhostUserVsock { uds_path: path, port: 5000, peer_uid: own_uid() };
    let options = LinkOptions { deadline_ms: 20_000, ..short() };
    let (link, _) =
        Link::connect(&endpoint, &token(), &options, &CancellationToken::new()).await.unwrap();
    link.ping(wait()).await.unwrap();
    drop(link);
    device.await.unwrap();
}

#[test]
fn an_endpoint_survives_the_journal() {
    let endpoint = Endpoint::VhostUserVsock { uds_path: "/run/v".into(), port: 5000, peer_uid: 3 };
    let json = serde_json::to_string(&endpoint).unwrap();
    assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), endpoint);
    assert!(json.contains(r#""carrier":"vhost-user-vsock""#), "{json}");
}
