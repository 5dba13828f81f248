//! HTTP/1.1 server with bounds on connections, heads and time.
//!
//! `axum::serve` has none of these: a connection that says nothing, or reads nothing, would be kept
//! for ever.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::server::conn::http1::Builder;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes on their way to one client, in the kernel.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// Headers of one request.
const MAX_HEADERS: usize = 64;
/// Time that requests which run may take when the door closes.
const LEAVING: Duration = Duration::from_secs(5);

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub(in crate::doors) struct ServerBounds {
    /// One more connection waits to be accepted.
    pub(in crate::doors) connections: usize,
    /// Of the head of a request.
    pub(in crate::doors) header_bytes: usize,
    /// Time for the head of a request, for a TLS handshake, and between two requests.
    pub(in crate::doors) header_timeout: Duration,
    /// Time that a client may leave an answer unread.
    pub(in crate::doors) write_timeout: Duration,
}

/// The client's end of the connection that a request came over, among its extensions.
#[derive(Debug, Clone, Copy)]
pub(in crate::doors) struct PeerAddress(pub(in crate::doors) SocketAddr);

/// Serves until the end token fires and the requests that run then are answered.
pub(in crate::doors) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: ServerBounds,
    end: CancellationToken,
) {
    let (places, inside) = (Arc::new(Semaphore::new(bounds.connections)), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, router, end) = (tls.clone(), router.clone(), end.clone());
        inside.spawn(async move {
            let _place = place;
            match tls {
                None => connection((stream, peer), router, bounds, end).await,
                Some(tls) => {
                    let shaken = tokio::time::timeout(bounds.header_timeout, tls.accept(stream));
                    match shaken.await {
                        Ok(Ok(stream)) => connection((stream, peer), router, bounds, end).await,
                        Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                        Err(_) => tracing::debug!("no TLS in time"),
                    }
                }
            }
        });
    }
    inside.close();
    let _gone = tokio::time::timeout(LEAVING, inside.wait()).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, PeerAddress, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    // Nagle's algorithm would hold each small event back for 40 ms.
    stream.set_nodelay(true)?;
    // What a client leaves unread is not the host's memory: it would grow to megabytes for each.
    sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES)?;
    Ok((stream, PeerAddress(peer), place))
}

async fn connection<S>(
    (stream, peer): (S, PeerAddress),
    router: Router,
    bounds: ServerBounds,
    end: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(bounds.write_timeout));
    let router = router.map_request(move |mut request: axum::http::Request<_>| {
        request.extensions_mut().insert(peer);
        request.map(Body::new)
    });
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.header_timeout)
        .max_buf_size(bounds.header_bytes)
        .max_headers(MAX_HEADERS);
    let io = TokioIo::new(Box::pin(stream));
    let served = builder.serve_connection(io, TowerToHyperService::new(router)).with_upgrades();
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
