//! The Unix socket: who may come in, and to which door they are shown: HTTP, with the routes of the control door and
//! of the API, or MCP.

mod halves;

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use axum::Router;
use hivekeep_door_mcp as mcp;
use hivekeep_door_server::{
    DaemonServices, codes,
    hello::{ClientHello, DaemonWelcome, HelloReply, MAX_HELLO_BYTES},
    lines::{LineOutcome, LineReader},
    seats::{ConnectionSlot, ConnectionSlots},
};
use hivekeep_kernel::{Door, Layer, ToolError};
use hivekeep_registry::{OpenSession, ToolView, User};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::control;
use halves::{ReadHalf, WriteHalf};

/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Clients that have not said who they are. One more, and the one silent for longest has to go.
const BEFORE_HELLO: usize = 64;
/// Connections over HTTP, as the command line's. One more, and the one idle for longest has to go.
const HTTP: usize = 64;

/// Makes the socket. The lock is held, so an old one has nobody behind it.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // The folder lets nobody else in; this is the second bolt.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The open socket.
pub(super) struct Socket {
    pub(super) core: Arc<DaemonServices>,
    /// Served to clients that speak HTTP.
    pub(super) routes: Router,
    pub(super) listener: UnixListener,
    /// Cancelled when no new clients are let in.
    pub(super) closing: CancellationToken,
    /// Cancelled when connected clients have to go.
    pub(super) end: CancellationToken,
    pub(super) inside: TaskTracker,
    pub(super) rooms: Rooms,
}

impl Socket {
    /// Lets clients in until it closes.
    pub(super) async fn serve(self) {
        let socket = Arc::new(self);
        loop {
            let accepted = tokio::select! {
                () = socket.closing.cancelled() => return,
                accepted = socket.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // The slot is taken before the task starts, so that waiting clients are bounded, too.
            let (guest, seat) = (Guest::new(&socket, stream), socket.rooms.before_hello.take());
            socket.inside.spawn(async move {
                match (guest, seat) {
                    (Ok(guest), Some(seat)) => guest.show_in(seat).await,
                    (Ok(guest), None) => guest.refuse(full()).await,
                    (Err(error), _) => tracing::warn!(%error, "a client could not be let in"),
                }
            });
        }
    }
}

/// Slots for clients, one pool per kind, so that no kind takes the slots of another.
pub(super) struct Rooms {
    before_hello: ConnectionSlots,
    http: ConnectionSlots,
    mcp: Arc<Semaphore>,
}

impl Rooms {
    pub(super) fn new(max_connections: usize) -> Self {
        Self {
            before_hello: ConnectionSlots::new(BEFORE_HELLO),
            http: ConnectionSlots::new(HTTP),
            mcp: Arc::new(Semaphore::new(max_connections)),
        }
    }
}

fn full() -> ToolError {
    ToolError::new(Layer::Door, codes::TOO_MANY_CONNECTIONS, "the daemon has too many clients")
        .next("close some, or raise daemon.max_connections")
        .retryable()
}

/// First words of a client.
enum Opening {
    Http,
    Mcp(ClientHello),
}

/// A connected client that has not said who it is.
struct Guest {
    socket: Arc<Socket>,
    uid: u32,
    process: Option<i32>,
    reader: BufReader<ReadHalf>,
    writer: WriteHalf,
}

impl Guest {
    fn new(socket: &Arc<Socket>, stream: UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let (uid, process) = (peer.uid(), peer.pid());
        let (reader, writer) = halves::split(stream)?;
        let (socket, reader) = (socket.clone(), BufReader::new(reader));
        Ok(Self { socket, uid, process, reader, writer })
    }

    async fn refuse(mut self, error: ToolError) {
        tracing::info!(code = %error.code, reason = %error.message, "a client was refused");
        // A client that has left needs no answer.
        let _gone = tell(&mut self.writer, &HelloReply::Refused(error)).await;
    }

    async fn show_in(mut self, seat: ConnectionSlot) {
        if !may_enter(self.uid) {
            let message = format!("user {} is not the daemon's user", self.uid);
            let error = ToolError::new(Layer::Door, codes::NOT_YOUR_DAEMON, message)
                .next("start a daemon of your own with `hivekeep daemon`");
            return self.refuse(error).await;
        }
        let patience = self.socket.core.config.daemon.handshake_timeout_secs;
        let patience = Duration::from_secs(patience);
        let opening = tokio::select! {
            () = self.socket.end.cancelled() => return,
            () = seat.lost() => return self.refuse(full()).await,
            opening = tokio::time::timeout(patience, read_opening(&mut self.reader)) => opening,
        };
        match opening {
            Ok(Ok(Some(Opening::Http))) => self.serve_http(seat).await,
            Ok(Ok(Some(Opening::Mcp(hello)))) => {
                drop(seat);
                self.enter(hello).await;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => self.refuse(error).await,
            Err(_) => {
                let message = format!("no hello within {} s", patience.as_secs());
                self.refuse(ToolError::new(Layer::Door, codes::HANDSHAKE_TIMEOUT, message)).await;
            }
        }
    }

    async fn serve_http(self, seat: ConnectionSlot) {
        let Socket { core, routes, end, rooms, .. } = &*self.socket;
        let _counted = core.connected();
        let free = rooms.http.take().map(|slot| (slot, routes.clone()));
        // A client that is refused keeps the place that it has.
        let (slot, routes) = free.unwrap_or_else(|| (seat, control::refusing(full())));
        let stream = tokio::io::join(self.reader, self.writer);
        control::serve(stream, self.uid, slot, routes, &core.config.http, end.clone()).await;
    }

    async fn enter(mut self, hello: ClientHello) {
        let (core, uid) = (self.socket.core.clone(), self.uid);
        let _counted = core.connected();
        let ClientHello::Mcp { toolset, tool_names, output_schemas, resume } = hello;
        let usual = core.usual_view();
        let (toolsets, listing) = mcp::small_listing(toolset);
        let view = ToolView {
            toolsets,
            listing,
            names: mcp::name_style(tool_names),
            output_schemas: output_schemas || usual.output_schemas,
            ..usual
        };
        if let Err(error) = core.catalogue().check(&view) {
            return self.refuse(error).await;
        }
        let Ok(_place) = self.socket.rooms.mcp.clone().try_acquire_owned() else {
            return self.refuse(full()).await;
        };
        let request = OpenSession {
            door: Door::McpStdio,
            client: format!("hivekeep mcp (uid {uid})"),
            user: User::Uid(uid),
            resume,
            profile: Default::default(),
        };
        let attachment = match core.sessions.open(request).await {
            Ok(attachment) => attachment,
            Err(error) => return self.refuse(error).await,
        };
        let (session, resumed) = (attachment.session, attachment.resumed);
        let patience = Duration::from_secs(core.config.daemon.handshake_timeout_secs);
        let _parent = core.parents.attached(session, self.process);
        let handler = mcp::McpHandler::for_connection(core.clone(), Arc::new(view), attachment);
        let welcome = DaemonWelcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            tools: handler.digest(),
            session: Some(session),
            resumed,
        };
        if tell(&mut self.writer, &HelloReply::Welcome(welcome)).await.is_err() {
            return;
        }
        tracing::info!(%session, resumed, uid, "attached");
        let transport = handler.transport(User::Uid(uid), self.reader, self.writer);
        // A child: the service cancels the token it is given when it ends.
        let end = self.socket.end.child_token();
        let begun = rmcp::service::serve_server_with_ct(mcp::BoxedService(handler), transport, end);
        match tokio::time::timeout(patience, begun).await {
            Ok(Ok(running)) => {
                let quit = running.waiting().await;
                tracing::info!(%session, ?quit, "detached");
            }
            Ok(Err(error)) => {
                tracing::info!(%session, %error, "detached before the protocol began");
            }
            // The client's slot is freed for others; the client can come back with its session.
            Err(_) => tracing::info!(%session, "detached: the protocol did not begin in time"),
        }
    }
}

/// Admits the daemon's own user, and root, who could get in anyway.
fn may_enter(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The client's first words; `None` when it leaves without any. HTTP is left unread.
async fn read_opening(reader: &mut BufReader<ReadHalf>) -> Result<Option<Opening>, ToolError> {
    if let Ok([b'A'..=b'Z', ..]) = reader.fill_buf().await {
        return Ok(Some(Opening::Http));
    }
    let wrong = |why: String| {
        ToolError::new(Layer::Door, codes::INVALID_HELLO, why)
            .next("connect with `hivekeep mcp`, or the `hivekeep` of the daemon's own version")
    };
    match LineReader::new(reader, MAX_HELLO_BYTES).next().await {
        Ok(LineOutcome::Whole(line)) => {
            let hello = serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?;
            Ok(Some(Opening::Mcp(hello)))
        }
        Ok(LineOutcome::TooLong) => Err(wrong("the first line is too long".to_owned())),
        Ok(LineOutcome::End) | Err(_) => Ok(None),
    }
}

async fn tell(writer: &mut WriteHalf, answer: &HelloReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
