//! A provider that does as a test says: it answers, fails, hangs, never ends, or cuts the connection.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, Method, Uri},
    response::Response,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What a provider does with a request.
#[derive(Debug, Clone)]
pub(super) enum Play {
    /// These pieces, a moment between them, and the end.
    Pieces(Vec<String>),
    /// These pieces, and then the connection is cut.
    Cut(Vec<String>),
    /// These pieces, and then nothing more.
    Hang(Vec<String>),
    /// This piece without end.
    Endless(String),
    /// A status with a body.
    Status(u16, Value),
    /// As before, with the seconds of a `retry-after`.
    Later(u16, u64),
}

impl Play {
    pub(super) fn json(body: &Value) -> Self {
        Self::Pieces(vec![body.to_string()])
    }
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    pub(super) raw: String,
}

type Plays = Arc<dyn Fn(&Asked, usize) -> Play + Send + Sync>;

#[derive(Clone)]
struct Stage {
    play: Plays,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A provider on this host.
pub(super) struct Fake {
    stage: Stage,
    port: u16,
    served: tokio::task::JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.served.abort();
    }
}

impl Fake {
    /// A provider that plays by the request and its number among those that came, from 0.
    pub(super) async fn new(play: impl Fn(&Asked, usize) -> Play + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let stage = Stage { play: Arc::new(play), asked: Arc::default() };
        let router = Router::new().fallback(answer).with_state(stage.clone());
        let served = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("serves");
        });
        Self { stage, port, served }
    }

    /// One that plays the same each time.
    pub(super) async fn always(play: Play) -> Self {
        Self::new(move |_, _| play.clone()).await
    }

    pub(super) fn root(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.stage.asked.lock().expect("no panic").clone()
    }
}

async fn answer(
    State(stage): State<Stage>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let path = uri.to_string();
    let asked = Asked {
        method,
        path,
        headers,
        body: serde_json::from_str(&body).unwrap_or_default(),
        raw: body,
    };
    let nth = {
        let mut all = stage.asked.lock().expect("no panic");
        all.push(asked.clone());
        all.len() - 1
    };
    let play = (stage.play)(&asked, nth);
    let is_events = matches!(&play, Play::Pieces(all) | Play::Cut(all) | Play::Hang(all)
        if all.first().is_some_and(|it| it.starts_with("data:") || it.starts_with("event:")));
    let pieces = |all: Vec<String>| stream::iter(all.into_iter().map(Ok::<_, std::io::Error>));
    let body = match play {
        Play::Pieces(all) => Body::from_stream(pieces(all).then(async |piece| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            piece
        })),
        Play::Cut(all) => {
            let cut = stream::once(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(std::io::Error::other("cut"))
            });
            Body::from_stream(pieces(all).chain(cut))
        }
        Play::Hang(all) => Body::from_stream(pieces(all).chain(stream::pending())),
        Play::Endless(piece) => {
            Body::from_stream(stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone())))
        }
        Play::Status(status, body) => {
            return Response::builder()
                .status(status)
                .body(Body::from(body.to_string()))
                .expect("valid");
        }
        Play::Later(status, secs) => {
            let body = json!({ "error": { "message": "later" } });
            return Response::builder()
                .status(status)
                .header("retry-after", secs)
                .body(Body::from(body.to_string()))
                .expect("valid");
        }
    };
    let content_type = if is_events { "text/event-stream" } else { "application/json" };
    Response::builder().header("content-type", content_type).body(body).expect("valid")
}

/// Pieces of an answer over OpenAI's wire, a word each.
pub(super) fn openai(text: &str) -> Play {
    let mut pieces: Vec<_> = text
        .split_inclusive(' ')
        .map(|word| event(&json!({ "choices": [{ "delta": { "content": word } }] })))
        .collect();
    pieces.push(event(&json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] })));
    let usage = json!({ "prompt_tokens": 11, "completion_tokens": 5 });
    pieces.push(event(&json!({ "choices": [], "usage": usage })));
    pieces.push("data: [DONE]\n\n".to_owned());
    Play::Pieces(pieces)
}

/// A server-sent event.
pub(super) fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
