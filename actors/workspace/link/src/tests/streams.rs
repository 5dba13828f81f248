use std::{future::poll_fn, io, pin::Pin, task::Poll};

use hivekeep_protocol::{
    Frame, FrameKind, FromGuest, GuestCode, GuestError, Pong, Stream, StreamClosed, encode,
    limits::{MAX_STREAMS, STREAM_CHUNK_BYTES, STREAM_WINDOW_BYTES},
};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::*;
use crate::{GuestStream, LinkDown, Violation, fake::obliging};

const MIB: usize = 1024 * 1024;

fn frame(kind: FrameKind, id: u32, payload: Vec<u8>) -> Vec<u8> {
    Frame { kind, id, payload }.to_bytes()
}

fn content(id: u32, bytes: &[u8]) -> Vec<u8> {
    frame(FrameKind::Data, id, [&[Stream::Content as u8], bytes].concat())
}

fn credit(id: u32, bytes: u32) -> Vec<u8> {
    frame(FrameKind::Credit, id, bytes.to_be_bytes().to_vec())
}

fn reply(id: u32, reply: Result<FromGuest, GuestError>) -> Vec<u8> {
    frame(FrameKind::Reply, id, encode(&reply).unwrap())
}

fn echoing(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::OpenStream(_) | ToGuest::AcceptStream(_) => RequestBehaviour::Echo,
        other => obliging(other),
    }
}

/// A stream that the guest answers with these bytes, and its link.
async fn answered_by(
    bytes: impl Fn(u32) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> (Link, Result<GuestStream, LinkError>) {
    let (link, _seen) = link_to(move |request| match request {
        ToGuest::OpenStream(_) => RequestBehaviour::raw(bytes.clone()),
        other => obliging(other),
    })
    .await;
    let stream = link.open_stream(80, wait()).await;
    (link, stream)
}

async fn poll_read_once(stream: &mut GuestStream) -> Poll<io::Result<()>> {
    let mut byte = [0];
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_read(cx, &mut ReadBuf::new(&mut byte))))
        .await
}

async fn poll_write_once(stream: &mut GuestStream, bytes: &[u8]) -> Poll<io::Result<usize>> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_write(cx, bytes))).await
}

/// Writes until there is no more room.
async fn fill(stream: &mut GuestStream) -> usize {
    let (bytes, mut written) = (vec![7; MIB], 0);
    // The writer of the link runs between two looks.
    for _ in 0..1000 {
        match poll_write_once(stream, &bytes).await {
            Poll::Ready(len) => written += len.unwrap(),
            Poll::Pending => tokio::task::yield_now().await,
        }
    }
    written
}

#[tokio::test]
async fn megabytes_go_both_ways_at_once_and_each_half_ends_by_itself() {
    let (link, _seen) = link_to(echoing).await;
    let stream = link.open_stream(80, wait()).await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..9 * MIB + 5).map(|n| (n / 251) as u8).collect();
    let writing = async {
        to.write_all(&sent).await.unwrap();
        to.shutdown().await.unwrap();
        assert_eq!(to.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(writing, from.read_to_end(&mut got));
    assert_eq!(read.unwrap(), sent.len());
    assert!(got == sent);
    drop((from, to));
    link.ping(wait()).await.unwrap();
    assert_eq!(link.calls_in_flight(), 0);
}

#[tokio::test]
async fn a_refused_port_is_the_guests_typed_error() {
    let (_link, stream) = answered_by(|id| {
        reply(id, Err(GuestError::new(GuestCode::PortClosed, "nothing on port 80")))
    })
    .await;
    let refused = stream.unwrap_err();
    assert!(matches!(&refused, LinkError::Guest(error) if error.code == GuestCode::PortClosed));
    assert_eq!(crate::link_error(refused).code, "port_closed");
}

#[tokio::test]
async fn a_connection_of_a_program_is_a_stream_of_the_same_kind() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::AcceptStream(accept) if accept.port == 9_000 => RequestBehaviour::Stall,
        other => echoing(other),
    })
    .await;
    let mut stream = link.accept_stream(8_000, wait()).await.unwrap();
    stream.write_all(b"asked").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"asked");
    // Nobody connects: the wait is given up in the guest, too.
    let brief = CallTerms::at_most(Duration::from_millis(20));
    let late = link.accept_stream(9_000, brief).await;
    assert!(matches!(late, Err(LinkError::Deadline(_))), "{late:?}");
    cancel_seen(&mut seen).await;
    assert!(link.is_up());
}

#[tokio::test]
async fn a_guest_of_an_older_daemon_takes_no_connections_and_says_so() {
    let (link, _seen) = link_to(obliging).await;
    let refused = link.accept_stream(8_000, wait()).await.unwrap_err();
    assert_eq!(crate::link_error(refused).code, "guest_unsupported");
}

#[tokio::test]
async fn a_broken_connection_is_no_end_of_file() {
    let broken = |id| {
        let gone = GuestError::new(GuestCode::Io, "port 80: reset ".to_owned() + &"x".repeat(9000));
        [credit(id, 10), content(id, b"half an ans"), reply(id, Err(gone))].concat()
    };
    let (_link, stream) = answered_by(broken).await;
    let mut stream = stream.unwrap();
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((error.kind(), &got[..]), (io::ErrorKind::ConnectionReset, &b"half an ans"[..]));
    assert!(error.to_string().len() < 600, "unbounded words of a guest");
    assert!(stream.write_all(b"more").await.is_err());
}

#[tokio::test]
async fn what_came_before_the_link_went_is_read_and_then_it_fails() {
    let (link, stream) = answered_by(|id| [credit(id, 1), content(id, b"last")].concat()).await;
    let mut stream = stream.unwrap();
    // Behind the data in the same stream.
    link.ping(wait()).await.unwrap();
    link.close(LinkDown::Closed);
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((error.kind(), &got[..]), (io::ErrorKind::ConnectionAborted, &b"last"[..]));
    let error = stream.write_all(b"more").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
}

#[tokio::test]
async fn a_dropped_stream_is_cancelled_and_an_unanswered_dial_obeys_its_deadline() {
    let (link, mut seen) = link_to(|request| match request {
        ToGuest::OpenStream(open) if open.port == 1 => RequestBehaviour::Stall,
        other => echoing(other),
    })
    .await;
    drop(link.open_stream(80, wait()).await.unwrap());
    cancel_seen(&mut seen).await;
    let brief = CallTerms::at_most(Duration::from_millis(20));
    let late = link.open_stream(1, brief).await;
    assert!(matches!(late, Err(LinkError::Deadline(_))), "{late:?}");
    cancel_seen(&mut seen).await;
}

#[tokio::test]
async fn a_guest_that_does_not_read_holds_back_its_writer_alone() {
    let (link, stream) = answered_by(|id| credit(id, STREAM_WINDOW_BYTES)).await;
    let mut stalled = stream.unwrap();
    assert_eq!(fill(&mut stalled).await, STREAM_WINDOW_BYTES as usize);
    link.ping(wait()).await.unwrap();
    let echo = link.exec(shell("still", 100), wait(), |_, _| {}).await.unwrap();
    assert!(!echo.stdout.bytes.is_empty());
}

#[tokio::test]
async fn a_guest_that_grants_without_bound_makes_nothing_wait_in_memory() {
    let (_link, stream) =
        answered_by(|id| [credit(id, u32::MAX), credit(id, u32::MAX)].concat()).await;
    let mut stream = stream.unwrap();
    // The link's writer does not run between the looks.
    let mut queued = 0;
    while let Poll::Ready(len) = poll_write_once(&mut stream, &vec![0; MIB]).await {
        queued += len.unwrap();
    }
    assert!(queued <= 2 * STREAM_CHUNK_BYTES, "{queued} bytes are queued");
}

#[tokio::test]
async fn streams_have_places_of_their_own() {
    let (link, _seen) = link_to(echoing).await;
    let mut open = Vec::new();
    for _ in 0..MAX_STREAMS {
        open.push(link.open_stream(80, wait()).await.unwrap());
    }
    let brief = || CallTerms::at_most(Duration::from_millis(20));
    let more = link.open_stream(80, brief()).await;
    assert!(matches!(more, Err(LinkError::Deadline(_))), "{more:?}");
    link.exec(shell("others pass", 100), wait(), |_, _| {}).await.unwrap();
    let mut first = open.pop().unwrap();
    first.shutdown().await.unwrap();
    first.read_to_end(&mut Vec::new()).await.unwrap();
    drop(first);
    link.open_stream(80, wait()).await.unwrap();
}

#[tokio::test]
async fn each_breach_of_a_stream_ends_the_link_with_its_reason() {
    let closed = || FromGuest::OpenStream(StreamClosed { sent_bytes: 0 });
    let over = |id| {
        let chunk = content(id, &[0; STREAM_CHUNK_BYTES]);
        chunk.repeat(STREAM_WINDOW_BYTES as usize / STREAM_CHUNK_BYTES + 1)
    };
    for (name, violation) in [
        ("data beyond the credit", over(1)),
        (
            "a second end",
            [frame(FrameKind::End, 1, vec![]), frame(FrameKind::End, 1, vec![])].concat(),
        ),
        ("data behind the end", [frame(FrameKind::End, 1, vec![]), content(1, b"x")].concat()),
        ("another stream's data", frame(FrameKind::Data, 1, vec![Stream::Stdout as u8, 1])),
        ("closed before this side ended", reply(1, Ok(closed()))),
        ("another kind of reply", reply(1, Ok(FromGuest::Ping(Pong { payload: vec![] })))),
    ] {
        let (link, stream) = answered_by(move |id| renumbered(&violation, id)).await;
        assert!(matches!(stream, Err(LinkError::Down(_))), "{name}: {stream:?}");
        assert!(matches!(link.closed().await, LinkDown::Violation(_)), "{name}");
    }
    let (link, _seen) =
        link_to(|_| RequestBehaviour::raw(|id| frame(FrameKind::End, id, vec![]))).await;
    link.exec(shell("x", 10), wait(), |_, _| {}).await.unwrap_err();
    let expected = Violation::UnexpectedKind(FrameKind::End);
    assert_eq!(
        link.closed().await,
        LinkDown::Violation(expected),
        "an end of what is not a stream"
    );
}

/// The same frames for another call.
fn renumbered(mut bytes: &[u8], id: u32) -> Vec<u8> {
    let (mut decoder, mut out) = (hivekeep_protocol::Decoder::default(), Vec::new());
    while !bytes.is_empty() {
        let (used, Some(one)) = decoder.push(bytes).unwrap() else { panic!("half a frame") };
        out.extend(frame(one.kind, id, one.payload));
        bytes = &bytes[used..];
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the sizes of the pieces on either side, the bytes come back whole and in order.
    #[test]
    fn any_pieces_arrive_in_order(
        pieces in proptest::collection::vec(0usize..200_000, 0..12),
        read_at_once in 1usize..100_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (link, _seen) = link_to(echoing).await;
            let (mut from, mut to) = tokio::io::split(link.open_stream(80, wait()).await.unwrap());
            let mut sent = Vec::new();
            for (number, len) in pieces.iter().enumerate() {
                sent.push(vec![number as u8; *len]);
            }
            let writing = async {
                for piece in &sent {
                    to.write_all(piece).await.unwrap();
                }
                to.shutdown().await.unwrap();
            };
            let reading = async {
                let (mut got, mut buffer) = (Vec::new(), vec![0; read_at_once]);
                loop {
                    match from.read(&mut buffer).await.unwrap() {
                        0 => return got,
                        len => got.extend_from_slice(&buffer[..len]),
                    }
                }
            };
            let ((), got) = tokio::join!(writing, reading);
            assert!(got == sent.concat());
        });
    }

    /// Whatever a hostile guest sends for a stream: no panic, every wait ends, and what is held stays
    /// within the window.
    #[test]
    fn a_hostile_guest_never_panics_a_stream(
        frames in proptest::collection::vec(
            (
                prop_oneof![
                    6 => Just(FrameKind::Data),
                    3 => Just(FrameKind::Credit),
                    2 => Just(FrameKind::End),
                    1 => Just(FrameKind::Reply),
                ],
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..20),
                    (0usize..70_000).prop_map(|len| vec![0; len]),
                    Just(vec![0, 1, 0, 0]),
                ],
            ),
            0..30,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let sent = frames.clone();
            let (link, _seen) = link_to(move |_| {
                let sent = sent.clone();
                RequestBehaviour::raw(move |id| {
                    sent.iter().flat_map(|(kind, payload)| frame(*kind, id, payload.clone())).collect()
                })
            }).await;
            let brief = CallTerms::at_most(Duration::from_millis(30));
            if let Ok(mut stream) = link.open_stream(80, brief).await {
                let _ = poll_write_once(&mut stream, &[1; 1000]).await;
                for held in link.core().calls.held_bytes() {
                    assert!(held <= STREAM_WINDOW_BYTES as usize, "{held} bytes held");
                }
                for _ in 0..100 {
                    if !matches!(poll_read_once(&mut stream).await, Poll::Ready(Ok(()))) {
                        break;
                    }
                }
            }
        });
    }
}
