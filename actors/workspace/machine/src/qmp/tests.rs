//! QMP client against a scripted peer on a real socket.

use std::path::PathBuf;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::*;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(10);

/// Serves connections one after the other, as QEMU does. `script` maps a command to the lines it
/// answers with; `$ID` stands for the command's id.
fn peer(script: fn(&str) -> Vec<String>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("qmp");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream, script).await;
        }
    });
    (dir, path)
}

async fn serve(stream: UnixStream, script: fn(&str) -> Vec<String>) {
    let mut stream = BufReader::new(stream);
    let greeting = b"{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n";
    if stream.write_all(greeting).await.is_err() {
        return;
    }
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|count| count > 0) {
        let command: Value = serde_json::from_str(&line).unwrap();
        let name = command["execute"].as_str().unwrap();
        let lines = match name {
            "qmp_capabilities" => vec!["{\"return\": {}, \"id\": $ID}".to_owned()],
            name => script(name),
        };
        for answer in lines {
            if answer == "hang up" {
                return;
            }
            let answer = answer.replace("$ID", &command["id"].to_string()) + "\n";
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
        line.clear();
    }
}

#[tokio::test]
async fn answers_find_their_asker_and_events_their_reader() {
    let (_dir, path) = peer(|name| match name {
        "query-status" => vec![
            "{\"event\": \"RESUME\", \"timestamp\": {}}".into(),
            "{\"return\": {\"status\": \"running\"}, \"id\": $ID}".into(),
        ],
        _ => vec![
            "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"no\"}, \"id\": $ID}".into(),
        ],
    });
    let (client, mut events) = QmpClient::connect(&path, LONG).await.unwrap();
    let status = client.execute("query-status", Value::Null, LONG).await.unwrap();
    assert_eq!(status["status"], "running");
    assert_eq!(events.recv().await.unwrap().name, "RESUME");
    let refused = client.execute("nonsense", Value::Null, LONG).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { ref class, .. } if class == "CommandNotFound"));
}

#[tokio::test]
async fn a_silent_command_times_out_and_the_connection_stays() {
    let (_dir, path) = peer(|name| match name {
        "silent" => vec![],
        _ => vec!["{\"return\": {}, \"id\": $ID}".into()],
    });
    let (client, _events) = QmpClient::connect(&path, LONG).await.unwrap();
    let late = client.execute("silent", Value::Null, SHORT).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    client.execute("stop", Value::Null, LONG).await.unwrap();
}

#[tokio::test]
async fn a_second_client_is_served_after_the_first_has_gone() {
    let (_dir, path) = peer(|_| vec!["{\"return\": {}, \"id\": $ID}".into()]);
    let (first, _events) = QmpClient::connect(&path, LONG).await.unwrap();
    assert!(matches!(QmpClient::connect(&path, SHORT).await, Err(Error::Timeout { .. })));
    drop(first);
    QmpClient::connect(&path, LONG).await.unwrap();
}

#[tokio::test]
async fn hang_ups_and_rubbish_end_the_connection_with_a_reason() {
    let (_dir, path) = peer(|name| match name {
        "rubbish" => vec!["this is not JSON".into()],
        "endless" => vec!["x".repeat(LINE_BYTES + 1)],
        _ => vec!["hang up".into()],
    });
    for command in ["quit", "rubbish", "endless"] {
        let (client, _events) = QmpClient::connect(&path, LONG).await.unwrap();
        let closed = client.execute(command, Value::Null, LONG).await.unwrap_err();
        assert!(matches!(closed, Error::Closed(_)), "{command}: {closed}");
    }
}

#[tokio::test]
async fn a_flood_of_events_is_bounded_and_counted() {
    let (_dir, path) = peer(|_| {
        let mut lines = vec!["{\"event\": \"X\"}".to_owned(); EVENT_QUEUE + 36];
        lines.push("{\"return\": {}, \"id\": $ID}".into());
        lines
    });
    let (client, events) = QmpClient::connect(&path, LONG).await.unwrap();
    client.execute("flood", Value::Null, LONG).await.unwrap();
    assert_eq!(events.len(), EVENT_QUEUE);
    assert_eq!(client.dropped_events(), 36);
}

#[tokio::test]
async fn nobody_listening_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let result = QmpClient::connect(&dir.path().join("none"), LONG).await;
    assert!(matches!(result, Err(Error::Connect(_))));
}
