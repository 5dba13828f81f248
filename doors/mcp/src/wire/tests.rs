use tokio::io::{AsyncReadExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split};

use hivekeep_config::{Config, DaemonOptions};
use hivekeep_door_server::incoming::{MessageRoom, SHORT_BYTES};
use hivekeep_kernel::User;
use rmcp::ErrorData;

use super::{unread::MOST, *};

type Ours = McpTransport<BufReader<ReadHalf<DuplexStream>>, WriteHalf<DuplexStream>>;

/// The wire and its client, with so much room between them.
fn pair(buffer: usize) -> (Ours, DuplexStream) {
    pair_within(buffer, &MessageRoom::new(&Config::default()))
}

/// The same, with this room for long messages.
fn pair_within(buffer: usize, incoming: &MessageRoom) -> (Ours, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(buffer);
    let (reader, writer) = split(ours);
    let options = DaemonOptions {
        messages_per_sec: u32::MAX.try_into().expect("above 0"),
        ..Default::default()
    };
    let pace = RateBuckets::new(&options);
    let lines =
        LineReader::new(BufReader::new(reader), 1 << 20).within(incoming.clone(), User::Uid(0));
    (McpTransport::new(lines, writer, pace), theirs)
}

async fn say(client: &mut DuplexStream, text: &str) {
    client.write_all(format!("{text}\n").as_bytes()).await.expect("written");
}

fn ping(id: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

fn answer(id: usize) -> ServerJsonRpcMessage {
    let id = RequestId::Number(i64::try_from(id).expect("small"));
    ServerJsonRpcMessage::error(ErrorData::internal_error("x".repeat(100), None), Some(id))
}

/// What is received.
async fn now(wire: &mut Ours) -> Option<ClientJsonRpcMessage> {
    tokio::time::timeout(Duration::from_secs(60), wire.receive()).await.ok().flatten()
}

#[tokio::test]
async fn nothing_is_read_while_answers_are_unread() {
    let (mut wire, mut client) = pair(4096);
    let mut sending = tokio::task::JoinSet::new();
    for id in 0..MOST {
        say(&mut client, &ping(id)).await;
        assert!(now(&mut wire).await.is_some(), "{id}");
        sending.spawn(wire.send(answer(id)));
    }
    // What fits into the pipe is written; fill it up.
    for _ in 0..MOST {
        sending.spawn(wire.send(answer(9_999)));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(wire.unread.full());
    say(&mut client, &ping(1_000)).await;
    let waiting = tokio::time::timeout(Duration::from_millis(50), wire.receive()).await;
    assert!(waiting.is_err());
    let mut read = vec![0; 1 << 16];
    while wire.unread.full() {
        assert_ne!(client.read(&mut read).await.expect("reads"), 0, "it goes on");
        tokio::task::yield_now().await;
    }
    assert!(now(&mut wire).await.is_some(), "it is read on");
}

/// Whether all the room for long messages is free.
async fn all_free(incoming: &MessageRoom) -> bool {
    let longest = async {
        let mut held = Vec::new();
        for user in 1..=8 {
            held.push(incoming.reserve(User::Uid(user)).await);
        }
    };
    tokio::time::timeout(Duration::from_secs(1), longest).await.is_ok()
}

/// A request that needs room.
fn long_ping(id: usize) -> String {
    let padding = "x".repeat(2 * SHORT_BYTES);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"x":"{padding}"}}}}"#)
}

#[tokio::test(start_paused = true)]
async fn half_a_long_message_ends_its_connection_in_time_though_answers_are_unread() {
    let incoming = MessageRoom::new(&Config::default());
    let (mut wire, mut client) = pair_within(4096, &incoming);
    let long = long_ping(1);
    let begun = tokio::time::timeout(Duration::from_secs(1), async {
        tokio::join!(client.write_all(&long.as_bytes()[..long.len() - 10]), wire.receive())
    });
    assert!(begun.await.is_err(), "it is not whole");
    assert!(!all_free(&incoming).await);
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..2 * MOST {
        sending.spawn(wire.send(answer(9_999)));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(wire.unread.full());
    let ended = tokio::time::timeout(Duration::from_secs(60), wire.receive()).await;
    assert!(ended.expect("in time").is_none());
    drop(wire);
    assert!(all_free(&incoming).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_holds_no_room_of_its_request() {
    let incoming = MessageRoom::new(&Config::default());
    let (mut wire, mut client) = pair_within(4096, &incoming);
    let text = long_ping(1) + "\n";
    let (written, handler) = tokio::join!(client.write_all(text.as_bytes()), now(&mut wire));
    written.expect("written");
    let handler = handler.expect("received");
    assert!(!all_free(&incoming).await, "in work it has its room");
    let mut sending = tokio::task::JoinSet::new();
    for id in 0..MOST {
        sending.spawn(wire.send(answer(id + 2)));
    }
    let answering = sending.spawn(wire.send(answer(1)));
    drop(handler);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!answering.is_finished(), "nobody reads it");
    assert!(all_free(&incoming).await);
}

#[tokio::test]
async fn a_message_above_the_limit_is_answered() {
    let (mut wire, mut client) = pair(4 << 20);
    say(&mut client, &"x".repeat((1 << 20) + 1)).await;
    say(&mut client, &ping(1)).await;
    assert!(now(&mut wire).await.is_some(), "the next one is read");
    let mut told = vec![0; 256];
    let length = client.read(&mut told).await.expect("reads");
    let told = String::from_utf8_lossy(&told[..length]).into_owned();
    assert!(told.contains("-32600") && told.contains("daemon.max_message_mb"), "{told}");
}

#[tokio::test]
async fn an_id_that_is_used_twice_gives_no_place_away() {
    let (mut wire, mut client) = pair(1 << 16);
    let mut handlers = Vec::new();
    for _ in 0..3 {
        say(&mut client, &ping(7)).await;
        handlers.push(now(&mut wire).await.expect("received"));
    }
    assert_eq!(wire.places.available_permits(), IN_WORK - 3, "each handler has its own");
    wire.send(answer(7)).await.expect("written");
    assert_eq!(wire.places.available_permits(), IN_WORK - 3);
    drop(handlers);
    assert_eq!(wire.places.available_permits(), IN_WORK);
}

#[tokio::test]
async fn a_cancelled_request_gives_its_place_back_with_its_handler() {
    let (mut wire, mut client) = pair(1 << 16);
    say(&mut client, &ping(7)).await;
    let handler = now(&mut wire).await.expect("received");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    say(&mut client, cancel).await;
    now(&mut wire).await.expect("received");
    assert_eq!(wire.places.available_permits(), IN_WORK - 1);
    drop(handler);
    assert_eq!(wire.places.available_permits(), IN_WORK);
}
