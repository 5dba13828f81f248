//! HTTP/1.1 exchange with a guest. The guest is not trusted: heads, lines and texts are bounded.

use std::{future::poll_fn, pin::Pin};

use hivekeep_kernel::ports::ByteStream;
use hyper::{
    Request, StatusCode,
    body::{Body as _, Incoming},
    client::conn::http1,
    header,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{Answer, failed};

/// Longest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Longest line of an answer: a result with its forms.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// Longest text of an answer that has no lines.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A connection that nothing was sent on.
pub(super) struct Exchange {
    sender: http1::SendRequest<String>,
    /// Ends with the exchange, and the connection with it.
    connection: JoinSet<()>,
}

/// Answer as it comes.
pub(super) struct Coming {
    pub(super) status: StatusCode,
    body: Incoming,
    read: Vec<u8>,
    _connection: JoinSet<()>,
    _sender: http1::SendRequest<String>,
}

impl Exchange {
    pub(super) async fn over(stream: Box<dyn ByteStream>) -> Answer<Self> {
        let handshake =
            http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream));
        let (sender, driven) = handshake.await.map_err(broken)?;
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            if let Err(error) = driven.await {
                tracing::debug!(%error, "a connection to an interpreter broke");
            }
        });
        Ok(Self { sender, connection })
    }

    /// Sends a request; the answer has begun.
    pub(super) async fn send(mut self, method: &str, path: &str, body: &Value) -> Answer<Coming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string())
            .map_err(|error| failed(format!("the request cannot be made: {error}")))?;
        let (head, body) = self.sender.send_request(request).await.map_err(broken)?.into_parts();
        let (_connection, _sender) = (self.connection, self.sender);
        Ok(Coming { status: head.status, body, read: Vec::new(), _connection, _sender })
    }

    /// Sends a request and reads the whole answer.
    pub(super) async fn ask(
        self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer<(StatusCode, String)> {
        let mut answer = self.send(method, path, body).await?;
        Ok((answer.status, answer.text().await?))
    }
}

impl Coming {
    /// The next line, without its end; `None` at the end of the answer.
    pub(super) async fn line(&mut self) -> Answer<Option<Vec<u8>>> {
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.read[looked_at..].iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(looked_at + end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(Some(line));
            }
            looked_at = self.read.len();
            if !self.more(MAX_LINE_BYTES).await? {
                let last = std::mem::take(&mut self.read);
                return Ok((!last.is_empty()).then_some(last));
            }
        }
    }

    /// Reads the whole body as text.
    pub(super) async fn text(&mut self) -> Answer<String> {
        while self.more(MAX_TEXT_BYTES).await? {}
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned())
    }

    /// Reads a piece; false at the end.
    async fn more(&mut self, most: usize) -> Answer<bool> {
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(false) };
        if let Ok(data) = frame.map_err(broken)?.into_data() {
            self.read.extend_from_slice(&data);
        }
        match self.read.len() <= most {
            true => Ok(true),
            false => {
                Err(failed(format!("an answer of the interpreter has more than {most} bytes")))
            }
        }
    }
}

fn broken(error: hyper::Error) -> hivekeep_kernel::ToolError {
    failed(format!("the connection to the interpreter broke: {error}"))
}
