//! The Unix socket: who may come in, and to which door they are shown.

mod halves;

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use hivekeep_kernel::{Door, Layer, ToolError};
use hivekeep_registry::{OpenSession, View};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::doors::{
    Core, control,
    hello::{Answer, Hello, Welcome},
    lines::{Line, Lines},
    mcp,
};
use halves::{ReadHalf, WriteHalf};

/// Pause after a failed accept, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    pub(super) core: Arc<Core>,
    pub(super) listener: UnixListener,
    /// No new clients from then on.
    pub(super) closing: CancellationToken,
    /// Those inside have to go.
    pub(super) end: CancellationToken,
    pub(super) inside: TaskTracker,
}

impl Socket {
    /// Lets clients in until it closes.
    pub(super) async fn serve(self) {
        let room = Arc::new(Semaphore::new(self.core.config.daemon.max_connections));
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
            let place = room.clone().try_acquire_owned();
            self.inside.spawn(async move {
                let guest = match Guest::new(core, stream, end) {
                    Ok(guest) => guest,
                    Err(error) => {
                        tracing::warn!(%error, "a client could not be let in");
                        return;
                    }
                };
                match place {
                    Ok(_place) => guest.show_in().await,
                    Err(_) => guest.refuse(full()).await,
                }
            });
        }
    }
}

fn full() -> ToolError {
    ToolError::new(Layer::Door, "too_many_connections", "the daemon has too many clients")
        .next("close some, or raise daemon.max_connections")
        .retryable()
}

/// A client that has connected and is nobody yet.
struct Guest {
    core: Arc<Core>,
    uid: io::Result<u32>,
    lines: Lines<BufReader<ReadHalf>>,
    writer: WriteHalf,
    end: CancellationToken,
}

impl Guest {
    fn new(core: Arc<Core>, stream: UnixStream, end: CancellationToken) -> io::Result<Self> {
        let uid = stream.peer_cred().map(|peer| peer.uid());
        let (reader, writer) = halves::split(stream)?;
        let lines = Lines::new(BufReader::new(reader), core.config.daemon.max_message_bytes());
        Ok(Self { core, uid, lines, writer, end })
    }

    async fn refuse(mut self, error: ToolError) {
        tracing::info!(code = %error.code, reason = %error.message, "a client was refused");
        // A client that left does not mind.
        let _gone = tell(&mut self.writer, &Answer::Refused(error)).await;
    }

    async fn show_in(mut self) {
        let uid = match &self.uid {
            Ok(uid) if may_enter(*uid) => *uid,
            Ok(uid) => {
                let message = format!("user {uid} is not the daemon's user");
                let error = ToolError::new(Layer::Door, "not_your_daemon", message)
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
            hello = tokio::time::timeout(patience, hear(&mut self.lines)) => hello,
        };
        match hello {
            Ok(Ok(Some(hello))) => self.enter(uid, hello).await,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => self.refuse(error).await,
            Err(_) => {
                let message = format!("no hello within {} s", patience.as_secs());
                self.refuse(ToolError::new(Layer::Door, "handshake_timeout", message)).await;
            }
        }
    }

    async fn enter(mut self, uid: u32, hello: Hello) {
        let _counted = self.core.connected();
        match hello {
            Hello::Control {} => {
                let tools = self.core.everything.digest().to_owned();
                if tell(&mut self.writer, &Answer::Welcome(welcome(tools))).await.is_err() {
                    return;
                }
                let served =
                    control::serve(self.core, uid, self.lines, self.writer, self.end).await;
                if let Err(error) = served {
                    tracing::debug!(%error, "a control connection broke");
                }
            }
            Hello::Mcp { toolset, tool_names, resume } => {
                let view = View {
                    toolsets: toolset,
                    names: mcp::name_style(tool_names),
                    ..View::default()
                };
                self.enter_mcp(uid, view, resume).await;
            }
        }
    }

    async fn enter_mcp(mut self, uid: u32, view: View, resume: Option<hivekeep_kernel::SessionId>) {
        if let Err(error) = view.check(&self.core.catalogue) {
            return self.refuse(error).await;
        }
        let request = OpenSession {
            door: Door::McpStdio,
            client: format!("hivekeep mcp (uid {uid})"),
            resume,
        };
        let attachment = match self.core.sessions.open(request).await {
            Ok(attachment) => attachment,
            Err(error) => return self.refuse(error).await,
        };
        let (session, resumed) = (attachment.session, attachment.resumed);
        let max_bytes = self.core.config.daemon.max_message_bytes();
        let handler = mcp::Handler::for_connection(self.core, Arc::new(view), attachment);
        let mut welcome = welcome(handler.digest().to_owned());
        (welcome.session, welcome.resumed) = (Some(session), resumed);
        if tell(&mut self.writer, &Answer::Welcome(welcome)).await.is_err() {
            return;
        }
        tracing::info!(%session, resumed, uid, "attached");
        let transport = AsyncRwTransport::new_server(self.lines.into_reader(), self.writer)
            .with_max_line_length(max_bytes);
        let transport = handler.transport(transport);
        // A child: the service cancels the token it is given when it ends.
        let end = self.end.child_token();
        match rmcp::service::serve_server_with_ct(handler, transport, end).await {
            Ok(running) => {
                let quit = running.waiting().await;
                tracing::info!(%session, ?quit, "detached");
            }
            Err(error) => tracing::info!(%session, %error, "detached before the protocol began"),
        }
    }
}

/// The daemon's own user, and root, who could anyway.
fn may_enter(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn welcome(tools: String) -> Welcome {
    Welcome {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        tools,
        session: None,
        resumed: false,
    }
}

/// The first line. None when there is none.
async fn hear(lines: &mut Lines<BufReader<ReadHalf>>) -> Result<Option<Hello>, ToolError> {
    let wrong = |why: String| {
        ToolError::new(Layer::Door, "invalid_hello", why)
            .next("connect with `hivekeep mcp`, or the `hivekeep` of the daemon's own version")
    };
    match lines.next().await {
        Ok(Line::Whole(line)) => {
            serde_json::from_slice(line).map(Some).map_err(|error| wrong(error.to_string()))
        }
        Ok(Line::TooLong) => Err(wrong("the first line is too long".to_owned())),
        Ok(Line::End) | Err(_) => Ok(None),
    }
}

async fn tell(writer: &mut WriteHalf, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
