//! Streams to ports, carried by a host as small as it can be.

use std::time::Duration;

use hivekeep_protocol::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::client::{Call, Host, PATIENCE};
use crate::guest::{Guest, Way};

const MIB: usize = 1 << 20;

/// A stream's bytes, and its reply once it has ended.
type Carried = (DuplexStream, JoinHandle<Result<FromGuest, GuestError>>);

async fn open(host: &Host, port: u16) -> Result<Carried, GuestError> {
    opened(host.call(OpenStream { port }.into_wire()).await).await
}

async fn opened(mut call: Call) -> Result<Carried, GuestError> {
    let first = call.next().await;
    if first.kind == FrameKind::Reply {
        return Err(decode::<Result<FromGuest, GuestError>>(&first.payload)
            .expect("a reply")
            .expect_err("it has not ended"));
    }
    assert_eq!(first.kind, FrameKind::Credit, "the first word is that it is connected");
    let credit = u32::from_be_bytes(first.payload.try_into().expect("four bytes"));
    assert_eq!(credit, limits::STREAM_WINDOW_BYTES);
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    Ok((ours, tokio::spawn(carry(call, theirs, credit as usize))))
}

async fn carry(
    mut call: Call,
    io: DuplexStream,
    mut credit: usize,
) -> Result<FromGuest, GuestError> {
    let (mut from, mut to) = tokio::io::split(io);
    let (mut buffer, mut ended) = (vec![0; limits::STREAM_CHUNK_BYTES], false);
    buffer[0] = Stream::Content as u8;
    loop {
        let room = (buffer.len() - 1).min(credit);
        tokio::select! {
            frame = call.frames.recv() => {
                let frame = frame.expect("the link holds");
                match frame.kind {
                    FrameKind::Credit => {
                        let more = frame.payload.try_into().expect("four bytes");
                        credit += u32::from_be_bytes(more) as usize;
                    }
                    FrameKind::Data => {
                        let _gone = to.write_all(&frame.payload[1..]).await;
                        let used = u32::try_from(frame.payload.len() - 1).expect("small");
                        call.send(FrameKind::Credit, &used.to_be_bytes()).await;
                    }
                    FrameKind::End => to.shutdown().await.expect("half-closed"),
                    _ => return decode(&frame.payload).expect("a reply"),
                }
            }
            read = from.read(&mut buffer[1..=room]), if !ended && room > 0 => {
                let len = read.expect("memory");
                credit -= len;
                ended = len == 0;
                match len {
                    0 => call.send(FrameKind::End, &[]).await,
                    len => call.send(FrameKind::Data, &buffer[..=len]).await,
                }
            }
        }
    }
}

/// A port of this host, which is the guest's too.
async fn listening(address: &str) -> (u16, TcpListener) {
    let listener = TcpListener::bind(address).await.expect("a port");
    (listener.local_addr().expect("bound").port(), listener)
}

async fn connected(host: &Host) -> (Carried, TcpStream) {
    let (port, listener) = listening("127.0.0.1:0").await;
    let carried = open(host, port).await.expect("it listens");
    (carried, listener.accept().await.expect("a connection").0)
}

fn pattern(len: usize, step: usize) -> Vec<u8> {
    (0..len).map(|n| (n / step) as u8).collect()
}

#[tokio::test]
async fn megabytes_go_both_ways_at_once_and_each_half_ends_by_itself() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let ((stream, reply), mut server) = connected(&host).await;
    let (mut from, mut to) = tokio::io::split(stream);
    let (up, down) = (pattern(24 * MIB + 7, 251), pattern(16 * MIB + 3, 127));
    let (mut server_read, mut server_write) = server.split();
    let client = async {
        to.write_all(&up).await.expect("written");
        to.shutdown().await.expect("half-closed");
    };
    let sends = async {
        server_write.write_all(&down).await.expect("written");
        server_write.shutdown().await.expect("half-closed");
    };
    let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
    let ((), (), up_read, down_read) = tokio::join!(
        client,
        sends,
        server_read.read_to_end(&mut got_up),
        from.read_to_end(&mut got_down)
    );
    assert_eq!((up_read.expect("read"), down_read.expect("read")), (up.len(), down.len()));
    assert!(got_up == up && got_down == down);
    let closed = FromGuest::OpenStream(StreamClosed { sent_bytes: down.len() as u64 });
    assert_eq!(reply.await.expect("no panic"), Ok(closed), "both halves ended");
    assert!(guest.peak_rss_bytes() < 32 << 20, "{} bytes", guest.peak_rss_bytes());
}

#[tokio::test]
async fn an_answer_comes_after_the_question_has_ended() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let ((mut stream, _reply), mut server) = connected(&host).await;
    stream.write_all(b"how much is it?").await.expect("written");
    stream.shutdown().await.expect("half-closed");
    let mut question = String::new();
    server.read_to_string(&mut question).await.expect("read to the end");
    server.write_all(b"a penny").await.expect("the other half is open");
    drop(server);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("read to the end");
    assert_eq!((&*question, &*answer), ("how much is it?", "a penny"));
}

#[tokio::test]
async fn a_port_without_a_listener_is_refused_by_its_code() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let (port, listener) = listening("127.0.0.1:0").await;
    drop(listener);
    for (port, code) in [(port, GuestCode::PortClosed), (0, GuestCode::Invalid)] {
        assert_eq!(open(&host, port).await.expect_err("refused").code, code);
    }
}

#[tokio::test]
async fn ipv6s_loopback_and_an_own_address_are_found_too() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    match TcpListener::bind("[::1]:0").await {
        Ok(listener) => {
            let port = listener.local_addr().expect("bound").port();
            open(&host, port).await.expect("by ::1");
        }
        Err(error) => hivekeep_skip::skip(format_args!("no IPv6 loopback: {error}")),
    }
    // Asks the kernel for the address that it would leave by; nothing is sent.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    let own = probe.connect("192.0.2.1:9").and_then(|()| probe.local_addr());
    match own {
        Ok(own) if !own.ip().is_loopback() => {
            let (port, _listener) = listening(&format!("{}:0", own.ip())).await;
            open(&host, port).await.expect("by its own address");
        }
        other => hivekeep_skip::skip(format_args!("this host has no other address: {other:?}")),
    }
}

/// Waits for the end of a connection, in order or not.
async fn ends(server: &mut TcpStream) {
    let read = tokio::time::timeout(PATIENCE, server.read(&mut [0; 8])).await.expect("it ends");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_cancelled_stream_closes_the_connection() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let (port, listener) = listening("127.0.0.1:0").await;
    let mut call = host.call(OpenStream { port }.into_wire()).await;
    let mut server = listener.accept().await.expect("a connection").0;
    call.cancel().await;
    assert_eq!(call.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    ends(&mut server).await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_told_as_an_error() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let ((mut stream, reply), server) = connected(&host).await;
    stream.write_all(b"unread").await.expect("written");
    server.peek(&mut [0]).await.expect("it came");
    // With unread bytes in it a close is a reset.
    drop(server);
    assert_eq!(reply.await.expect("no panic").expect_err("reset").code, GuestCode::Io);
}

#[tokio::test]
async fn the_links_end_closes_the_connection() {
    let guest = Guest::start(Way::Subreaper);
    let (port, listener) = listening("127.0.0.1:0").await;
    let payload = encode(&OpenStream { port }.into_wire()).expect("a request");
    let link = crate::link::raw_call(&guest.socket(), payload);
    let mut server = listener.accept().await.expect("a connection").0;
    drop(link);
    ends(&mut server).await;
}

/// Bytes that a writer gets rid of before it has to wait.
async fn written_until_stalled(mut to: impl AsyncWriteExt + Unpin) -> usize {
    let (chunk, mut written) = (vec![7; 64 << 10], 0);
    while let Ok(len) = tokio::time::timeout(Duration::from_secs(1), to.write(&chunk)).await {
        written += len.expect("open");
    }
    written
}

#[tokio::test]
async fn a_slow_reader_slows_its_writer_and_nobody_else() {
    let guest = Guest::start(Way::Subreaper);
    // What the sockets' own buffers take is the kernel's to say.
    let most = 32 * MIB;
    let host = Host::to(&guest).await;
    let ((stream, _reply), mut server) = connected(&host).await;
    let (mut from, to) = tokio::io::split(stream);
    assert!(written_until_stalled(to).await < most, "the port does not read");
    assert!(written_until_stalled(&mut server).await < most, "the host does not read");
    host.ask(Ping { payload: vec![] }).await.expect("others pass");
    let ((mut other, _other_reply), mut other_server) = connected(&host).await;
    other.write_all(b"x").await.expect("written");
    assert_eq!(other_server.read_u8().await.expect("read"), b'x');
    drop(server);
    let mut rest = Vec::new();
    let _reset = from.read_to_end(&mut rest).await;
    assert!(!rest.is_empty());
    assert!(guest.peak_rss_bytes() < 32 << 20, "{} bytes", guest.peak_rss_bytes());
}

#[tokio::test]
async fn streams_beyond_their_places_are_refused_and_keep_no_call_out() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let (port, _listener) = listening("127.0.0.1:0").await;
    let mut open = Vec::new();
    for _ in 0..limits::MAX_STREAMS {
        let mut call = host.call(OpenStream { port }.into_wire()).await;
        let granted = call.next().await;
        assert_eq!(granted.kind, FrameKind::Credit);
        assert_eq!(granted.payload, limits::STREAM_WINDOW_BYTES.to_be_bytes());
        open.push(call);
    }
    let mut more = host.call(OpenStream { port }.into_wire()).await;
    assert_eq!(more.reply().await.expect_err("full").code, GuestCode::Busy);
    for _ in 0..limits::MAX_CALLS_IN_FLIGHT {
        host.ask(Ping { payload: vec![] }).await.expect("other calls pass");
    }
    let mut first = open.remove(0);
    first.cancel().await;
    assert_eq!(first.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
    let mut again = host.call(OpenStream { port }.into_wire()).await;
    assert_eq!(again.next().await.kind, FrameKind::Credit);
}

#[tokio::test]
async fn a_host_that_sends_beyond_its_credit_or_behind_its_end_is_cut_off() {
    let guest = Guest::start(Way::Subreaper);
    let (port, _listener) = listening("127.0.0.1:0").await;
    for behind_the_end in [false, true] {
        let host = Host::to(&guest).await;
        let mut call = host.call(OpenStream { port }.into_wire()).await;
        assert_eq!(call.next().await.kind, FrameKind::Credit);
        let piece = [&[Stream::Content as u8][..], &[7; limits::STREAM_CHUNK_BYTES]].concat();
        if behind_the_end {
            call.send(FrameKind::End, &[]).await;
            call.send(FrameKind::Data, &piece[..2]).await;
        } else {
            // More than the sockets and the window take together.
            for _ in 0..16 * MIB / limits::STREAM_CHUNK_BYTES {
                call.send(FrameKind::Data, &piece).await;
            }
        }
        while tokio::time::timeout(PATIENCE, call.frames.recv()).await.expect("it ends").is_some() {
        }
    }
    Host::to(&guest).await.ask(Ping { payload: vec![] }).await.expect("the daemon lives");
}

/// A port that nothing listens on.
async fn free_port() -> u16 {
    listening("127.0.0.1:0").await.0
}

async fn accepting(host: &Host, port: u16) -> Call {
    host.call(AcceptStream { port }.into_wire()).await
}

/// Connects to the guest's daemon as a program does, once it listens.
async fn program(port: u16) -> TcpStream {
    let connecting = async {
        loop {
            match TcpStream::connect(("127.0.0.1", port)).await {
                Ok(stream) => return stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, connecting).await.expect("it listens")
}

#[tokio::test]
async fn connections_of_programs_are_taken_in_their_order_and_end_by_halves() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let port = free_port().await;
    let mut waiting = Some(accepting(&host, port).await);
    // The second waits until somebody takes it.
    let mut programs = [program(port).await, program(port).await];
    for program in &mut programs {
        let call = match waiting.take() {
            Some(call) => call,
            None => accepting(&host, port).await,
        };
        let (mut stream, reply) = opened(call).await.expect("taken");
        program.write_all(b"how much is it?").await.expect("written");
        program.shutdown().await.expect("half-closed");
        let mut question = String::new();
        stream.read_to_string(&mut question).await.expect("read to the end");
        stream.write_all(b"a penny").await.expect("the other half is open");
        stream.shutdown().await.expect("half-closed");
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.expect("read to the end");
        assert_eq!((&*question, &*answer), ("how much is it?", "a penny"));
        let closed = FromGuest::AcceptStream(StreamClosed { sent_bytes: 15 });
        assert_eq!(reply.await.expect("no panic"), Ok(closed));
    }
}

#[tokio::test]
async fn a_program_that_connects_while_the_host_is_away_waits_for_it() {
    let guest = Guest::start(Way::Subreaper);
    let port = free_port().await;
    let host = Host::to(&guest).await;
    let waiting = accepting(&host, port).await;
    let mut cut = program(port).await;
    let carried = opened(waiting).await.expect("taken");
    drop((carried, host));
    // What was carried ends with the link; what comes afterwards waits.
    ends(&mut cut).await;
    let mut later = program(port).await;
    later.write_all(b"hello").await.expect("written");
    let host = Host::to(&guest).await;
    let (mut stream, _reply) = opened(accepting(&host, port).await).await.expect("taken");
    let mut read = [0; 5];
    stream.read_exact(&mut read).await.expect("read");
    assert_eq!(&read, b"hello");
}

#[tokio::test]
async fn a_wait_for_a_connection_is_refused_bounded_and_cancelled() {
    let guest = Guest::start(Way::Subreaper);
    let host = Host::to(&guest).await;
    let (taken, _others) = listening("127.0.0.1:0").await;
    for (port, code) in [(taken, GuestCode::PortTaken), (80, GuestCode::Invalid)] {
        let refused = opened(accepting(&host, port).await).await.expect_err("refused");
        assert_eq!(refused.code, code);
    }
    let port = free_port().await;
    let mut waiting = Vec::new();
    for _ in 0..limits::MAX_STREAMS {
        waiting.push(accepting(&host, port).await);
    }
    let mut more = accepting(&host, port).await;
    assert_eq!(more.reply().await.expect_err("full").code, GuestCode::Busy);
    let mut first = waiting.remove(0);
    first.cancel().await;
    assert_eq!(first.reply().await.expect_err("cancelled").code, GuestCode::Cancelled);
}
