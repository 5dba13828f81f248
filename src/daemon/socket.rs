//! The Unix socket: who may come in, and to which door they are shown.

mod halves;

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use hivekeep_kernel::{Door, Layer, ToolError};
use hivekeep_registry::{OpenSession, ToolView, User};
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::codes;
use crate::doors::{
    DaemonServices, control,
    hello::{ClientHello, DaemonWelcome, HelloReply, MAX_HELLO_BYTES},
    lines::{LineOutcome, LineReader},
    mcp,
    seats::{ConnectionSlot, ConnectionSlots},
};
use halves::{ReadHalf, WriteHalf};

/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Clients that have not said who they are. One more, and the one silent for longest has to go.
const BEFORE_HELLO: usize = 64;
/// The command line's connections. One more, and the one idle for longest has to go.
const CONTROL: usize = 64;

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
    pub(super) listener: UnixListener,
    /// Cancelled when no new clients are let in.
    pub(super) closing: CancellationToken,
    /// Cancelled when connected clients have to go.
    pub(super) end: CancellationToken,
    pub(super) inside: TaskTracker,
}

impl Socket {
    /// Lets clients in until it closes.
    pub(super) async fn serve(self) {
        let rooms = Rooms::new(self.core.config.daemon.max_connections);
        loop {
            let accepted = tokio::select! {
                () = self.closing.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (core, end) = (self.core.clone(), self.end.clone());
            // The slot is taken before the task starts, so that waiting clients are bounded, too.
            let (rooms, seat) = (rooms.clone(), rooms.before_hello.take());
            self.inside.spawn(async move {
                match (Guest::new(core, stream, end, rooms), seat) {
                    (Ok(guest), Some(seat)) => guest.show_in(seat).await,
                    (Ok(guest), None) => guest.refuse(full()).await,
                    (Err(error), _) => tracing::warn!(%error, "a client could not be let in"),
                }
            });
        }
    }
}

/// Slots for clients, one pool per kind, so that no kind takes the slots of another.
#[derive(Clone)]
struct Rooms {
    before_hello: ConnectionSlots,
    control: ConnectionSlots,
    mcp: Arc<Semaphore>,
}

impl Rooms {
    fn new(max_connections: usize) -> Self {
        Self {
            before_hello: ConnectionSlots::new(BEFORE_HELLO),
            control: ConnectionSlots::new(CONTROL),
            mcp: Arc::new(Semaphore::new(max_connections)),
        }
    }
}

fn full() -> ToolError {
    ToolError::new(Layer::Door, codes::TOO_MANY_CONNECTIONS, "the daemon has too many clients")
        .next("close some, or raise daemon.max_connections")
        .retryable()
}

/// A connected client that has not said who it is.
struct Guest {
    core: Arc<DaemonServices>,
    uid: io::Result<u32>,
    process: Option<i32>,
    lines: LineReader<BufReader<ReadHalf>>,
    writer: WriteHalf,
    end: CancellationToken,
    rooms: Rooms,
}

impl Guest {
    fn new(
        core: Arc<DaemonServices>,
        stream: UnixStream,
        end: CancellationToken,
        rooms: Rooms,
    ) -> io::Result<Self> {
        let peer = stream.peer_cred();
        let process = peer.as_ref().ok().and_then(|peer| peer.pid());
        let uid = peer.map(|peer| peer.uid());
        let (reader, writer) = halves::split(stream)?;
        let lines = LineReader::new(BufReader::new(reader), MAX_HELLO_BYTES);
        Ok(Self { core, uid, process, lines, writer, end, rooms })
    }

    async fn refuse(mut self, error: ToolError) {
        tracing::info!(code = %error.code, reason = %error.message, "a client was refused");
        // A client that has left needs no answer.
        let _gone = tell(&mut self.writer, &HelloReply::Refused(error)).await;
    }

    async fn show_in(mut self, seat: ConnectionSlot) {
        let uid = match &self.uid {
            Ok(uid) if may_enter(*uid) => *uid,
            Ok(uid) => {
                let message = format!("user {uid} is not the daemon's user");
                let error = ToolError::new(Layer::Door, codes::NOT_YOUR_DAEMON, message)
                    .next("start a daemon of your own with `hivekeep daemon`");
                return self.refuse(error).await;
            }
            Err(error) => {
                tracing::warn!(%error, "a client without credentials");
                return;
            }
        };
        let patience = Duration::from_secs(self.core.config.daemon.handshake_timeout_secs);
        let hello = tokio::select! {
            () = self.end.cancelled() => return,
            () = seat.lost() => return self.refuse(full()).await,
            hello = tokio::time::timeout(patience, read_hello(&mut self.lines)) => hello,
        };
        drop(seat);
        match hello {
            Ok(Ok(Some(hello))) => self.enter(uid, hello).await,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => self.refuse(error).await,
            Err(_) => {
                let message = format!("no hello within {} s", patience.as_secs());
                self.refuse(ToolError::new(Layer::Door, codes::HANDSHAKE_TIMEOUT, message)).await;
            }
        }
    }

    async fn enter(mut self, uid: u32, hello: ClientHello) {
        let _counted = self.core.connected();
        match hello {
            ClientHello::Control {} => {
                let Some(seat) = self.rooms.control.take() else {
                    return self.refuse(full()).await;
                };
                let tools = self.core.everything.load().digest().to_owned();
                if tell(&mut self.writer, &HelloReply::Welcome(welcome(tools))).await.is_err() {
                    return;
                }
                let max_bytes = self.core.config.daemon.max_message_bytes();
                let lines = LineReader::new(self.lines.into_reader(), max_bytes);
                let lines = lines.within(self.core.incoming.clone(), User::Uid(uid));
                let served =
                    control::serve(self.core, uid, lines, self.writer, self.end, seat).await;
                if let Err(error) = served {
                    tracing::debug!(%error, "a control connection broke");
                }
            }
            ClientHello::Mcp { toolset, tool_names, output_schemas, resume } => {
                let usual = self.core.usual_view();
                let (toolsets, listing) = mcp::small_listing(toolset);
                let view = ToolView {
                    toolsets,
                    listing,
                    names: mcp::name_style(tool_names),
                    output_schemas: output_schemas || usual.output_schemas,
                    ..usual
                };
                self.enter_mcp(uid, view, resume).await;
            }
        }
    }

    async fn enter_mcp(
        mut self,
        uid: u32,
        view: ToolView,
        resume: Option<hivekeep_kernel::SessionId>,
    ) {
        if let Err(error) = self.core.catalogue().check(&view) {
            return self.refuse(error).await;
        }
        let Ok(_place) = self.rooms.mcp.clone().try_acquire_owned() else {
            return self.refuse(full()).await;
        };
        let request = OpenSession {
            door: Door::McpStdio,
            client: format!("hivekeep mcp (uid {uid})"),
            user: User::Uid(uid),
            resume,
            profile: Default::default(),
        };
        let attachment = match self.core.sessions.open(request).await {
            Ok(attachment) => attachment,
            Err(error) => return self.refuse(error).await,
        };
        let (session, resumed) = (attachment.session, attachment.resumed);
        let patience = Duration::from_secs(self.core.config.daemon.handshake_timeout_secs);
        let core = self.core.clone();
        let _parent = core.parents.attached(session, self.process);
        let handler = mcp::McpHandler::for_connection(self.core, Arc::new(view), attachment);
        let mut welcome = welcome(handler.digest());
        (welcome.session, welcome.resumed) = (Some(session), resumed);
        if tell(&mut self.writer, &HelloReply::Welcome(welcome)).await.is_err() {
            return;
        }
        tracing::info!(%session, resumed, uid, "attached");
        let transport = handler.transport(User::Uid(uid), self.lines.into_reader(), self.writer);
        // A child: the service cancels the token it is given when it ends.
        let end = self.end.child_token();
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

fn welcome(tools: String) -> DaemonWelcome {
    DaemonWelcome {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        tools,
        session: None,
        resumed: false,
    }
}

/// The client's first line; `None` when there is none.
async fn read_hello(
    lines: &mut LineReader<BufReader<ReadHalf>>,
) -> Result<Option<ClientHello>, ToolError> {
    let wrong = |why: String| {
        ToolError::new(Layer::Door, codes::INVALID_HELLO, why)
            .next("connect with `hivekeep mcp`, or the `hivekeep` of the daemon's own version")
    };
    match lines.next().await {
        Ok(LineOutcome::Whole(line)) => {
            serde_json::from_slice(line).map(Some).map_err(|error| wrong(error.to_string()))
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
