//! Carriers of DevTools frames: a pair of pipes, where a zero byte ends each message, and a WebSocket.

use std::{io, time::Duration};

use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{ChildStdin, ChildStdout},
    sync::mpsc,
    time::timeout,
};
use tokio_tungstenite::{
    client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};
use url::Url;

use crate::cdp::{Frames, MAX_FRAME_BYTES};

/// Frames on their way in either direction.
const QUEUE: usize = 64;
const READ_BYTES: usize = 256 * 1024;
/// Largest answer with the address of the browser's target.
const VERSION_BYTES: u64 = 64 * 1024;
/// Time to find and greet a browser that runs elsewhere.
const GREETING: Duration = Duration::from_secs(10);

/// Carrier over the pipes of a Chrome that the daemon runs. A frame beyond the bound ends it.
pub(crate) fn over_pipes(stdin: ChildStdin, stdout: ChildStdout) -> Frames {
    let (out, mut outgoing) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (incoming, input) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let mut stdin = stdin;
        while let Some(mut frame) = outgoing.recv().await {
            frame.push(0);
            if stdin.write_all(&frame).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        let mut stdout = BufReader::with_capacity(READ_BYTES, stdout);
        loop {
            let mut frame = Vec::new();
            let mut bounded = (&mut stdout).take(MAX_FRAME_BYTES as u64);
            let read = bounded.read_until(0, &mut frame).await;
            if read.is_err() || frame.pop() != Some(0) || incoming.send(frame).await.is_err() {
                break;
            }
        }
    });
    Frames { out, input }
}

/// Carrier over a WebSocket to a browser that runs elsewhere.
///
/// # Errors
/// The reason, for people.
pub(crate) async fn over_socket(url: &str) -> Result<Frames, String> {
    let greeted = timeout(GREETING, greet(url)).await;
    greeted.map_err(|_| format!("`{url}` does not answer within {} s", GREETING.as_secs()))?
}

async fn greet(url: &str) -> Result<Frames, String> {
    let failed = |error: &dyn std::fmt::Display| format!("`{url}` cannot be reached: {error}");
    let mut target = Url::parse(url).map_err(|error| failed(&error))?;
    if target.scheme() == "http" {
        let path = browser_target(&target).await.map_err(|error| failed(&error))?;
        target.set_path(&path);
        // A change between schemes that are both special.
        let _done = target.set_scheme("ws");
    }
    let stream = connect(&target).await.map_err(|error| failed(&error))?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES));
    let greeted = client_async_with_config(target.as_str(), stream, Some(config)).await;
    let (mut sink, mut stream) = greeted.map_err(|error| failed(&error))?.0.split();
    let (out, mut outgoing) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (incoming, input) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await {
            let Ok(text) = String::from_utf8(frame) else { break };
            if sink.send(Message::text(text)).await.is_err() {
                break;
            }
        }
        let _closed = sink.close().await;
    });
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            let Message::Text(text) = message else { continue };
            if incoming.send(text.as_bytes().to_vec()).await.is_err() {
                break;
            }
        }
    });
    Ok(Frames { out, input })
}

async fn connect(url: &Url) -> io::Result<TcpStream> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    TcpStream::connect((host, url.port_or_known_default().unwrap_or(80))).await
}

/// Path of the browser's own target, which the browser tells at a fixed place.
async fn browser_target(url: &Url) -> io::Result<String> {
    let mut stream = connect(url).await?;
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let request =
        format!("GET /json/version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = BufReader::new(stream).take(VERSION_BYTES);
    let mut line = String::new();
    while answer.read_line(&mut line).await? > 0 {
        if let Some((_, rest)) = line.split_once("\"webSocketDebuggerUrl\"") {
            let told = rest.split('"').nth(1).and_then(|told| Url::parse(told).ok());
            let told = told.map(|told| told.path().to_owned());
            return told.ok_or_else(|| io::Error::other("it tells no address of its target"));
        }
        line.clear();
    }
    Err(io::Error::other("it is not a browser that can be debugged"))
}
