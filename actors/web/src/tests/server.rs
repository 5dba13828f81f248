//! A server that says what a test wants, byte for byte, and remembers what it was asked.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// What the server does with a request.
pub(super) enum Reply {
    /// Says it and hangs up.
    Bytes(Vec<u8>),
    /// Says the first once and the second without an end, each time after a pause.
    Endless(Vec<u8>, Vec<u8>, Duration),
}

/// A request: the head in lower case, and the body.
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) head: String,
    pub(super) body: String,
}

type Handler = dyn Fn(&Asked, usize) -> Reply + Send + Sync;

pub(super) struct Server {
    pub(super) at: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// A server at 127.0.0.1. The handler is told how many requests there were before.
    pub(super) async fn new(
        handler: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::at(("127.0.0.1", 0), None, handler).await
    }

    pub(super) async fn at(
        at: (&str, u16),
        tls: Option<TlsAcceptor>,
        handler: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(at).await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, handler): (_, Arc<Handler>) = (heads.clone(), Arc::new(handler));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, handler, tls) = (seen.clone(), handler.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &seen, &*handler).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, &seen, &*handler).await;
                            }
                        }
                    }
                });
            }
        });
        Self { at, heads, task }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// URL with a name in place of the address.
    pub(super) fn named(&self, name: &str, path: &str) -> String {
        format!("http://{name}:{}{path}", self.at.port())
    }

    /// First lines of all requests.
    pub(super) fn asked(&self) -> Vec<String> {
        let heads = self.heads.lock().expect("no panic");
        heads.iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }

    /// Requests, those for rules not counted.
    pub(super) fn pages_asked(&self) -> usize {
        self.asked().iter().filter(|line| !line.contains("robots.txt")).count()
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    heads: &Mutex<Vec<String>>,
    handler: &Handler,
) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1).and_then(|it| it.lines().next());
            if rest.len() >= length.and_then(|it| it.parse().ok()).unwrap_or(0) {
                break (head.to_owned(), rest.to_owned());
            }
        }
    };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let asked = Asked { path, head: head.to_lowercase(), body };
    let before = {
        let mut heads = heads.lock().expect("no panic");
        heads.push(asked.head.clone());
        heads.len() - 1
    };
    match handler(&asked, before) {
        Reply::Bytes(bytes) => {
            let _gone = stream.write_all(&bytes).await;
            let _gone = stream.shutdown().await;
        }
        Reply::Endless(first, more, pause) => {
            let mut piece = first;
            while stream.write_all(&piece).await.is_ok() && stream.flush().await.is_ok() {
                piece.clone_from(&more);
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// An answer with a status line's rest, headers and a body.
pub(super) fn reply(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Reply {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !headers.iter().any(|(name, _)| *name == "content-length") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    Reply::Bytes([head.as_bytes(), b"\r\n", body].concat())
}

pub(super) fn ok(kind: &str, body: impl AsRef<[u8]>) -> Reply {
    reply("200 OK", &[("content-type", kind)], body)
}

pub(super) fn redirect(to: &str) -> Reply {
    reply("302 Found", &[("location", to)], "")
}

/// The handler of a server without rules.
pub(super) fn no_rules(
    page: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
) -> impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static {
    move |asked, _| match asked.path.as_str() {
        "/robots.txt" => reply("404 Not Found", &[], ""),
        _ => page(asked),
    }
}
