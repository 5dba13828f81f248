//! Scripted guest for tests: it speaks the protocol, and breaks it on request.

mod serve;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use hivekeep_protocol::{
    Containment, Exit, FromGuest, GuestCode, GuestError, GuestWelcome, HelloRefusal,
    PROTOCOL_VERSION, Pong, ReadFileReply, RunCommandReply, Stream, ToGuest,
};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::AttemptError;
use crate::carrier::{Carrier, Connection};

/// Behaviour of the guest at the start of a connection.
#[derive(Debug, Clone)]
pub enum HelloBehaviour {
    /// Welcomes the host.
    Welcome,
    /// Sends these bytes of an older connection, then accepts.
    StaleBytes(Vec<u8>),
    /// Hears only the n-th preamble; those before are lost.
    HearsPreamble(u32),
    /// Loses the hello after the first echo, as after a late preamble.
    LosesFirstHello,
    /// Takes the connection and never sends anything.
    Silent,
    /// Closes at once.
    HangsUp,
    /// Sends garbage without end.
    EndlessRubbish,
    /// Answers the hello with this refusal, and closes.
    Refuses(HelloRefusal),
}

/// Behaviour of the guest for a request.
#[derive(Clone)]
pub enum RequestBehaviour {
    /// Answers at once, without content.
    Reply(Result<FromGuest, GuestError>),
    /// Sends data under credit, then answers.
    Send(Vec<(Stream, Vec<u8>)>, Result<FromGuest, GuestError>),
    /// Sends this many bytes of content under credit, then reports it.
    Content(u64),
    /// Takes content up to its end, then answers.
    Receive(Result<FromGuest, GuestError>),
    /// Waits for the cancel and confirms it.
    Stall,
    /// Opens the stream and sends back what comes, up to its end.
    Echo,
    /// Does not answer, cancelled or not.
    Ignore,
    /// Sends raw bytes, made for the call's id, in place of frames.
    Raw(Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>),
    /// Closes the connection.
    HangUp,
}

/// Observation of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// Hello with this token.
    Hello([u8; 32]),
    /// Request and its call.
    Request(u32, ToGuest),
    /// Number of bytes of content of a call.
    Data(u32, usize),
    /// End of a call's content.
    End(u32),
    /// Cancel of a call.
    Cancel(u32),
    /// End of the connection.
    Gone,
}

type Script = Arc<dyn Fn(&ToGuest) -> RequestBehaviour + Send + Sync>;

/// Guest that acts by a script.
#[derive(Clone)]
pub struct FakeGuest {
    opening: HelloBehaviour,
    script: Script,
    seen: mpsc::UnboundedSender<Observation>,
}

impl RequestBehaviour {
    /// Makes an [`RequestBehaviour::Raw`] of a function.
    pub fn raw(bytes: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::Raw(Arc::new(bytes))
    }
}

impl FakeGuest {
    /// Makes a guest and the receiver of its observations. The script decides for each request.
    pub fn new(
        script: impl Fn(&ToGuest) -> RequestBehaviour + Send + Sync + 'static,
    ) -> (Self, mpsc::UnboundedReceiver<Observation>) {
        #[expect(clippy::disallowed_methods, reason = "bounded by the test's own calls")]
        let (seen, receiver) = mpsc::unbounded_channel();
        (Self { opening: HelloBehaviour::Welcome, script: Arc::new(script), seen }, receiver)
    }

    /// Makes a guest that answers pings, repeats a shell script on stdout, and has every file with
    /// its path as content.
    pub fn obliging() -> (Self, mpsc::UnboundedReceiver<Observation>) {
        Self::new(obliging)
    }

    /// Sets the opening.
    pub fn opening(mut self, opening: HelloBehaviour) -> Self {
        self.opening = opening;
        self
    }

    /// Makes a carrier that reaches this guest in memory.
    pub fn carrier(self) -> FakeCarrier {
        FakeCarrier::new(self)
    }

    fn saw(&self, seen: Observation) {
        // A test that does not look drops the receiver.
        let _ = self.seen.send(seen);
    }
}

/// Script of [`FakeGuest::obliging`].
pub fn obliging(request: &ToGuest) -> RequestBehaviour {
    match request {
        ToGuest::Ping(ping) => {
            RequestBehaviour::Reply(Ok(FromGuest::Ping(Pong { payload: ping.payload.clone() })))
        }
        ToGuest::RunCommand(exec) => {
            let output = format!("{:?}", exec.argv).into_bytes();
            let done = exec_done(output.len() as u64, 0);
            RequestBehaviour::Send(vec![(Stream::Stdout, output)], Ok(FromGuest::RunCommand(done)))
        }
        ToGuest::ReadFile(read) => {
            let content = read.path.clone().into_bytes();
            let bytes = content.len() as u64;
            let done = ReadFileReply { sent_bytes: bytes, size_bytes: bytes, mode: 0o644 };
            RequestBehaviour::Send(vec![(Stream::Content, content)], Ok(FromGuest::ReadFile(done)))
        }
        _ => RequestBehaviour::Reply(Err(GuestError::new(
            GuestCode::Unsupported,
            "not in this script",
        ))),
    }
}

/// Result of a command that exited with 0 after writing so many bytes.
pub fn exec_done(stdout_total_bytes: u64, stderr_total_bytes: u64) -> RunCommandReply {
    RunCommandReply {
        exit: Exit::Code(0),
        timed_out: false,
        stdout_total_bytes,
        stderr_total_bytes,
        killed_stragglers: 0,
        elapsed_ms: 1,
    }
}

fn welcome() -> GuestWelcome {
    GuestWelcome {
        version: PROTOCOL_VERSION,
        guest_version: "0.0.0-fake".into(),
        boot_id: "00000000-0000-0000-0000-000000000000".into(),
        daemon_starts: 1,
        containment: Containment::Subreaper,
    }
}

/// Carrier that reaches a [`FakeGuest`] through memory.
pub struct FakeCarrier {
    guest: FakeGuest,
    has_connections: bool,
    not_yet: AtomicU32,
    dials: Arc<AtomicU32>,
}

impl FakeCarrier {
    fn new(guest: FakeGuest) -> Self {
        Self { guest, has_connections: true, not_yet: AtomicU32::new(0), dials: Arc::default() }
    }

    /// Refuses the first `dials`, as before the guest is up.
    pub fn refusing_first(mut self, dials: u32) -> Self {
        self.not_yet = AtomicU32::new(dials);
        self
    }

    /// Behaves as a stream without connections (virtio-serial).
    pub fn without_connections(mut self) -> Self {
        self.has_connections = false;
        self
    }

    /// Counts the dials.
    pub fn dials(&self) -> Arc<AtomicU32> {
        self.dials.clone()
    }
}

#[async_trait]
impl Carrier for FakeCarrier {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn has_connections(&self) -> bool {
        self.has_connections
    }

    async fn connect(&self) -> Result<Connection, AttemptError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        let early = |left: u32| left.checked_sub(1);
        if self.not_yet.fetch_update(Ordering::SeqCst, Ordering::SeqCst, early).is_ok() {
            return Err(AttemptError::Connect(io::ErrorKind::ConnectionRefused.into()));
        }
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        tokio::spawn(self.guest.clone().serve(theirs));
        let (reader, writer) = tokio::io::split(ours);
        Ok(Connection { reader: Box::new(reader), writer: Box::new(writer) })
    }
}

impl FakeGuest {
    /// Serves every connection to a Unix socket until the returned task is aborted.
    ///
    /// # Errors
    /// Fails when the socket cannot be bound.
    pub fn listen(self, path: &Path) -> io::Result<tokio::task::JoinHandle<()>> {
        let listener = UnixListener::bind(path)?;
        Ok(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.clone().serve(stream));
            }
        }))
    }
}
