//! HTTP/1.1 server with bounds on connections, heads and time.
//!
//! `axum::serve` has none of these: a connection that says nothing, or reads nothing, would be kept
//! for ever.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use hivekeep_config::HttpOptions;
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1::Builder, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::body;
use crate::seats::{ConnectionSlot, ConnectionSlots};

/// Pause after a failed accept, as when file descriptors have run out, and between two looks for room.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes on their way to one client, in the kernel.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Headers of one request.
const MAX_HEADERS: usize = 64;
/// Time that requests which run may take when the door closes.
const LEAVING: Duration = Duration::from_secs(5);

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerBounds {
    /// Connections at a time. One more takes the place of the one that has said nothing for longest, or waits
    /// where all have a request.
    pub connections: usize,
    /// Bytes of the head of a request.
    pub header_bytes: usize,
    /// Time for the head of a request, for a TLS handshake, and between two requests.
    pub header_timeout: Duration,
    /// Time that a client may leave an answer unread.
    pub write_timeout: Duration,
}

impl ServerBounds {
    /// Bounds as the configuration has them.
    pub fn of(http: &HttpOptions) -> Self {
        Self {
            connections: http.max_connections,
            header_bytes: http.max_header_kb * 1024,
            header_timeout: Duration::from_secs(http.header_timeout_secs),
            write_timeout: Duration::from_secs(http.write_timeout_secs),
        }
    }
}

/// The client's end of the connection that a request came over, among its extensions.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

/// Serves until the end token fires and the requests that run then are answered.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: ServerBounds,
    end: CancellationToken,
) {
    let (slots, inside) = (ConnectionSlots::new(bounds.connections), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let serving = HttpConnection { peer, slot, router: router.clone(), bounds };
        inside.spawn(serving.run(tls.clone(), stream, end.clone()));
    }
    inside.close();
    let _gone = tokio::time::timeout(LEAVING, inside.wait()).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &ConnectionSlots,
) -> io::Result<(TcpStream, PeerAddress, Arc<ConnectionSlot>)> {
    let (stream, peer) = listener.accept().await?;
    // Nagle's algorithm would hold each small event back for 40 ms.
    stream.set_nodelay(true)?;
    // Unread answers are bounded in the kernel: they would grow to megabytes for each client.
    sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
    loop {
        if let Some(slot) = slots.take() {
            return Ok((stream, PeerAddress(peer), Arc::new(slot)));
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// A client's connection. It can lose its slot whenever it has no request.
pub struct HttpConnection<P> {
    /// The other end, which goes with each request as an extension.
    pub peer: P,
    /// Place among the listener's connections.
    pub slot: Arc<ConnectionSlot>,
    /// Routes that the other end reaches.
    pub router: Router,
    /// Bounds of heads, bodies and answers.
    pub bounds: ServerBounds,
}

/// A request of a connection, until its answer was sent.
struct RequestInWork(Arc<ConnectionSlot>);

impl RequestInWork {
    fn of(slot: &Arc<ConnectionSlot>) -> Self {
        slot.set_busy(true);
        Self(slot.clone())
    }
}

impl Drop for RequestInWork {
    fn drop(&mut self) {
        self.0.set_busy(false);
    }
}

impl<P: Copy + Send + Sync + 'static> HttpConnection<P> {
    /// Serves until the client leaves, the end token fires or the slot is lost.
    pub async fn run(
        self,
        tls: Option<TlsAcceptor>,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        end: CancellationToken,
    ) {
        let (slot, patience) = (self.slot.clone(), self.bounds.header_timeout);
        let serving = async {
            let Some(tls) = tls else { return self.serve(stream, end).await };
            match tokio::time::timeout(patience, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve(stream, end).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                Err(_) => tracing::debug!("no TLS in time"),
            }
        };
        tokio::select! {
            () = serving => {}
            () = slot.lost() => tracing::debug!("a silent connection made room for another"),
        }
    }

    async fn serve<S>(self, stream: S, end: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Self { peer, slot, router, bounds } = self;
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(bounds.write_timeout));
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, in_work) = (router.clone(), RequestInWork::of(&slot));
            async move {
                let (mut request, pending) = body::watch_unread(request.map(Body::new));
                request.extensions_mut().insert(peer);
                let Ok(mut answer) = router.oneshot(request).await;
                if let Some(pending) = pending {
                    answer = pending.settle(answer).await;
                }
                Ok::<_, Infallible>(hold_place(in_work, answer))
            }
        });
        let mut builder = Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.header_timeout)
            .max_buf_size(bounds.header_bytes)
            .max_headers(MAX_HEADERS);
        let io = TokioIo::new(Box::pin(stream));
        let served = builder.serve_connection(io, service).with_upgrades();
        let mut served = std::pin::pin!(served);
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = end.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Gives the place back when the body was sent or its client has gone: an event stream is an answer
/// whose head is there at once and whose body may last for days.
pub fn hold_place<P: Send + Unpin + 'static>(place: P, answer: Response) -> Response {
    answer.map(|body| Body::new(Placed { body, _place: place }))
}

struct Placed<P> {
    body: Body,
    _place: P,
}

impl<P: Unpin> http_body::Body for Placed<P> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::Semaphore,
    };

    use super::*;

    const MOST: usize = 4;

    /// Address of a server in which nothing is late, and how many requests have begun to wait there.
    async fn served(end: &CancellationToken) -> (SocketAddr, Arc<Semaphore>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let hour = Duration::from_secs(3_600);
        let bounds = ServerBounds {
            connections: MOST,
            header_bytes: 16 * 1024,
            header_timeout: hour,
            write_timeout: hour,
        };
        let waiting = Arc::new(Semaphore::new(0));
        let begun = waiting.clone();
        let waits = get(async move || {
            begun.add_permits(1);
            std::future::pending::<()>().await;
        });
        let router = Router::new()
            .route("/", get(async || "served").post(async || "refused"))
            .route("/read", post(async |body: String| body))
            .route("/waits", waits);
        tokio::spawn(serve(listener, None, router, bounds, end.clone()));
        (address, waiting)
    }

    async fn asks(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("written");
        stream
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        let reading = stream.read_to_string(&mut text);
        let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
        let _reset_or_ended = read.expect("it ends in time");
        text
    }

    #[tokio::test]
    async fn silent_connections_make_room_and_those_with_a_request_stay() {
        let end = CancellationToken::new();
        let (address, begun) = served(&end).await;
        let waiting = asks(address, "/waits").await;
        begun.acquire().await.expect("it is open").forget();
        let mut silent = Vec::new();
        for begun in ["", "GET / HT"].iter().cycle().take(3 * MOST) {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            stream.write_all(begun.as_bytes()).await.expect("written");
            silent.push(stream);
        }
        assert!(rest(asks(address, "/").await).await.ends_with("served"));
        assert_eq!(rest(silent.remove(0)).await, "", "the first was silent for longest");
        let mut byte = [0];
        let still = tokio::time::timeout(Duration::from_millis(50), waiting.peek(&mut byte)).await;
        assert!(still.is_err(), "a request is under way: {still:?}");
    }

    #[tokio::test]
    async fn the_end_closes_silent_connections_too() {
        let end = CancellationToken::new();
        let (address, _) = served(&end).await;
        let silent = TcpStream::connect(address).await.expect("connects");
        assert!(rest(asks(address, "/").await).await.ends_with("served"));
        end.cancel();
        assert_eq!(rest(silent).await, "");
    }

    /// Sends a head, and its body a moment later, as a slow client does; the head of the answer.
    async fn posts(stream: &mut TcpStream, path: &str, headers: &str, body: &[u8]) -> String {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.expect("written");
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(body).await.expect("written");
        let mut answer = Vec::new();
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut answer).await.expect("read"), 0, "no answer");
        }
        // The text behind the head has seven bytes or none.
        String::from_utf8(answer).expect("text").to_lowercase()
    }

    #[tokio::test]
    async fn a_connection_goes_on_behind_a_short_body_that_nobody_read() {
        let end = CancellationToken::new();
        let (address, _) = served(&end).await;
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let chunked = ("Transfer-Encoding: chunked\r\n", &b"5\r\nwords\r\n0\r\n\r\n"[..]);
        for (headers, body) in [("Content-Length: 5\r\n", &b"words"[..]), chunked] {
            for path in ["/", "/read"] {
                let answer = posts(&mut stream, path, headers, body).await;
                assert!(!answer.contains("connection: close"), "{path} {headers}: {answer}");
            }
        }
        for headers in
            ["Content-Length: 70000\r\n", "Content-Length: 5\r\nExpect: 100-continue\r\n"]
        {
            let mut stream = TcpStream::connect(address).await.expect("connects");
            let answer = posts(&mut stream, "/", headers, b"").await;
            assert!(answer.contains("200 ok") && answer.contains("connection: close"), "{answer}");
            assert!(!answer.contains("100 continue"), "{answer}");
        }
    }
}
