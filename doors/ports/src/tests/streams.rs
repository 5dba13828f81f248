//! Bodies, upgrades and bounds.

use super::*;

const HOST: &str = "80-web.localhost";

/// A public port and its listener.
async fn listened(options: PortUrlOptions) -> (Stage, TcpListener) {
    let stage = Stage::with(options).await;
    let id = stage.workspace("web", User::Uid(1));
    stage.url(id, "web", public(true)).await;
    let listener = stage.listen(id, 80).await;
    (stage, listener)
}

async fn client(stage: &Stage, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(stage.address).await.expect("connects");
    client.write_all(request.as_bytes()).await.expect("written");
    client
}

async fn accepted(listener: &TcpListener) -> (TcpStream, String) {
    let (mut port, _) = listener.accept().await.expect("a connection");
    let head = head(&mut port).await;
    (port, head)
}

async fn reads(stream: &mut TcpStream, wanted: &str) {
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got).await.expect("it comes");
    assert_eq!(String::from_utf8_lossy(&got), wanted);
}

#[tokio::test]
async fn an_answer_arrives_piece_by_piece_and_a_broken_one_is_not_whole() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let get = format!("GET /events HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let mut client = client(&stage, &get).await;
    let (mut port, _) = accepted(&listener).await;
    let begun =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    port.write_all(begun.as_bytes()).await.expect("written");
    head(&mut client).await;
    for n in 0..3 {
        // The next one is written when this one was read.
        let event = format!("data: {n}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        port.write_all(chunk.as_bytes()).await.expect("written");
        reads(&mut client, &chunk).await;
    }
    drop(port);
    let mut rest = Vec::new();
    let _reset = client.read_to_end(&mut rest).await;
    assert_eq!(rest, b"", "no last chunk: the client knows that it is not all");
}

#[tokio::test]
async fn a_body_arrives_piece_by_piece_before_its_end() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let post = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut client = client(&stage, &post).await;
    let (mut port, head_seen) = accepted(&listener).await;
    assert!(head_seen.contains("transfer-encoding: chunked"), "{head_seen}");
    for piece in ["3\r\nabc\r\n", "4\r\ndefg\r\n"] {
        client.write_all(piece.as_bytes()).await.expect("written");
        reads(&mut port, piece).await;
    }
    client.write_all(b"0\r\n\r\n").await.expect("written");
    reads(&mut port, "0\r\n\r\n").await;
    port.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("written");
    assert!(head(&mut client).await.starts_with("HTTP/1.1 204"));
}

#[tokio::test]
async fn a_client_keeps_its_connection_over_requests_and_large_answers() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let body = "0123456789abcdef".repeat(1 << 16);
    let answered = body.clone();
    let answering = tokio::spawn(async move {
        for _ in 0..3 {
            let (mut port, _) = accepted(&listener).await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answered.len());
            port.write_all(head.as_bytes()).await.expect("written");
            port.write_all(answered.as_bytes()).await.expect("written");
        }
    });
    let mut client = client(&stage, "").await;
    for n in 0..3 {
        let get = format!("GET /{n} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
        client.write_all(get.as_bytes()).await.expect("written");
        head(&mut client).await;
        let mut got = vec![0; body.len()];
        client.read_exact(&mut got).await.expect("all of it");
        assert!(got == body.as_bytes());
    }
    answering.await.expect("no panic");
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: 80-web.localhost\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";

async fn upgraded(stage: &Stage, listener: &TcpListener) -> (TcpStream, TcpStream) {
    upgraded_at(stage, listener, UPGRADE).await
}

async fn upgraded_at(
    stage: &Stage,
    listener: &TcpListener,
    request: &str,
) -> (TcpStream, TcpStream) {
    let mut client = client(stage, request).await;
    let (mut port, seen) = accepted(listener).await;
    let seen = seen.to_ascii_lowercase();
    for line in ["connection: upgrade", "upgrade: websocket", "sec-websocket-key: x"] {
        assert!(seen.contains(line), "{seen}");
    }
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                  Sec-WebSocket-Accept: y\r\n\r\nfirst";
    port.write_all(switch.as_bytes()).await.expect("written");
    let answer = head(&mut client).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("sec-websocket-accept: y"));
    reads(&mut client, "first").await;
    (client, port)
}

#[tokio::test]
async fn an_upgrade_carries_bytes_both_ways_until_a_side_ends_or_the_door_closes() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let (mut client, mut port) = upgraded(&stage, &listener).await;
    for n in 0..3 {
        client.write_all(format!("up {n}").as_bytes()).await.expect("written");
        reads(&mut port, &format!("up {n}")).await;
        port.write_all(format!("down {n}").as_bytes()).await.expect("written");
        reads(&mut client, &format!("down {n}")).await;
    }
    drop(client);
    assert_eq!(port.read(&mut [0; 8]).await.expect("it ends"), 0);
    let (mut client, _port) = upgraded(&stage, &listener).await;
    stage.end.cancel();
    let ended = client.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn what_is_asked_of_one_workspace_leaves_half_of_the_places_to_others() {
    let options = PortUrlOptions { max_upgrades: 2, max_requests: 4, ..Default::default() };
    let (stage, listener) = listened(options).await;
    let other = stage.workspace("other", User::Uid(1));
    stage.url(other, "other", public(true)).await;
    let of_other = stage.listen(other, 80).await;
    let (_client, _port) = upgraded(&stage, &listener).await;
    let mut refused = client(&stage, UPGRADE).await;
    assert!(head(&mut refused).await.starts_with("HTTP/1.1 503"));
    // Requests that wait for their answers.
    let get = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let client = client(&stage, &get).await;
        waiting.push((client, accepted(&listener).await));
    }
    let (status, _, why) = stage.get(HOST, "/", &[]).await;
    assert_eq!(status, 503);
    assert!(why.contains("http.ports.max_requests"), "{why}");
    let to_other = UPGRADE.replace("80-web", "80-other");
    let _others = upgraded_at(&stage, &of_other, &to_other).await;
    stage.repeats(other, 80).await;
    assert_eq!(stage.get("80-other.localhost", "/", &[]).await.0, 200);
    let (_, (mut port, _)) = waiting.pop().expect("two");
    port.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("written");
    drop(waiting);
    drop(port);
}

#[tokio::test]
async fn a_client_that_goes_takes_its_request_with_it() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let get = format!("GET /long HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let client = client(&stage, &get).await;
    let (mut port, _) = accepted(&listener).await;
    drop(client);
    let ended = port.read(&mut [0; 8]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_port_that_switches_unasked_is_not_passed_on() {
    let (stage, listener) = listened(PortUrlOptions::default()).await;
    let get = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    for asked in [get.as_str(), UPGRADE] {
        let mut client = client(&stage, asked).await;
        let (mut port, _) = accepted(&listener).await;
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
        port.write_all(switch.as_bytes()).await.expect("written");
        assert!(head(&mut client).await.starts_with("HTTP/1.1 502"));
    }
}
