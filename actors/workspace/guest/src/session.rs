//! Session of one connection: handshake, then many calls at once until it ends.
//!
//! ```text
//!             ┌──── reading (this task) ────┐
//!  carrier ──►│ preamble → hello → frames   │──► a task a call ──┐
//!             └─────────────────────────────┘                    │ bounded queue
//!  carrier ◄────────────────────────── writing (one task) ◄──────┘
//! ```
//! When a connection ends its calls are cancelled; their commands die with them.

pub mod call;
pub mod inflow;
pub mod outbox;
mod source;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hivekeep_protocol::{
    Frame, FrameKind, FromGuest, GuestCode, GuestError, GuestWelcome, HelloRefusal, HostHello,
    PROTOCOL_VERSION, ToGuest, decode, encode, limits, sync_preamble,
};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use call::{CallKind, Control, RequestContext};
use inflow::Payload;
use outbox::Outbox;
use source::{Broken, Incoming, Source};

/// Kind of byte stream that a carrier gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// A connection: it ends, and a new one begins with nothing in it.
    Connection,
    /// Single stream without an end: a new connection is only a new preamble in it.
    Endless,
}

/// Serves a byte stream until it ends. On an endless stream that may be many
/// connections one after another.
pub async fn serve<R, W>(agent: Arc<Agent>, reader: R, writer: W, stream: StreamKind)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let broken = CancellationToken::new();
    let (outbox, writing) = outbox::start(writer, broken.clone());
    let mut source = Source::new(reader, stream);
    let reading = async {
        loop {
            match connection(&agent, &mut source, &outbox).await {
                Broken::Closed => break,
                // A new connection is no error and is not reported on the console.
                Broken::Anew => {}
                Broken::Rubbish(why) if stream == StreamKind::Endless => {
                    crate::say!("link: {why}; looking for a new connection");
                }
                Broken::Rubbish(why) => {
                    crate::say!("link: closed: {why}");
                    break;
                }
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = broken.cancelled() => {}
    }
    drop(outbox);
    // The last refusal or reply still leaves; a peer that does not read cannot hold it.
    let _ = tokio::time::timeout(Duration::from_secs(1), writing).await;
}

/// From the preamble to the end of one connection.
async fn connection<R>(agent: &Arc<Agent>, source: &mut Source<R>, outbox: &Outbox) -> Broken
where
    R: AsyncRead + Unpin,
{
    if let Err(broken) = accept(agent, source, outbox).await {
        return broken;
    }
    let listening = agent.links.add(outbox.clone());
    let mut calls = Calls::new(agent.clone(), outbox.clone());
    let broken = loop {
        tokio::select! {
            biased;
            Some(ended) = calls.running.join_next_with_id(), if !calls.running.is_empty() => {
                calls.ended(ended).await;
            }
            incoming = source.next() => {
                let handled = match incoming {
                    Ok(Incoming::Frame(frame)) => calls.handle(frame),
                    Ok(Incoming::Data(id, payload)) => calls.data(id, payload),
                    Err(broken) => Err(broken),
                };
                if let Err(broken) = handled {
                    break broken;
                }
            }
        }
    };
    drop(listening);
    broken
}

/// The calls in flight on one connection. Dropping it cancels them; they clean up
/// after themselves in their own tasks.
struct Calls {
    agent: Arc<Agent>,
    outbox: Outbox,
    running: JoinSet<()>,
    by_task: HashMap<tokio::task::Id, u32>,
    by_id: HashMap<u32, Control>,
}

impl Drop for Calls {
    fn drop(&mut self) {
        for control in self.by_id.values() {
            control.cancel.cancel();
        }
        self.running.detach_all();
    }
}

impl Calls {
    fn new(agent: Arc<Agent>, outbox: Outbox) -> Self {
        let (by_task, by_id) = (HashMap::new(), HashMap::new());
        Self { agent, outbox, running: JoinSet::new(), by_task, by_id }
    }

    fn handle(&mut self, frame: Frame) -> Result<(), Broken> {
        match frame.kind {
            FrameKind::Request => return self.open(frame),
            FrameKind::Cancel => {
                if let Some(control) = self.by_id.get(&frame.id) {
                    control.ordered.cancel();
                    control.cancel.cancel();
                }
            }
            FrameKind::Credit => {
                let bytes: [u8; 4] = frame.payload.as_slice().try_into().map_err(|_| {
                    Broken::Rubbish(format!("credit of {} bytes", frame.payload.len()))
                })?;
                if let Some(control) = self.by_id.get(&frame.id) {
                    control.credit.grant(u32::from_be_bytes(bytes));
                }
            }
            FrameKind::Data => return self.data(frame.id, frame.payload.into()),
            FrameKind::End => {
                if let Some(control) = self.by_id.get(&frame.id) {
                    control.inflow.end();
                }
            }
            FrameKind::Hello | FrameKind::Welcome | FrameKind::Reply | FrameKind::Event => {
                return Err(Broken::Rubbish(format!("{:?} frame from the host", frame.kind)));
            }
        }
        Ok(())
    }

    /// Data for a call that has been answered is late, not wrong.
    fn data(&self, id: u32, payload: Payload) -> Result<(), Broken> {
        self.by_id
            .get(&id)
            .map_or(Ok(()), |control| control.inflow.push(payload).map_err(Broken::Rubbish))
    }

    fn open(&mut self, frame: Frame) -> Result<(), Broken> {
        if frame.id == 0 || self.by_id.contains_key(&frame.id) {
            return Err(Broken::Rubbish(format!("call id {} is taken", frame.id)));
        }
        if self.by_id.len() >= 2 * limits::MAX_CALLS_IN_FLIGHT + limits::MAX_STREAMS {
            return Err(Broken::Rubbish("requests beyond every limit".into()));
        }
        let request = decode::<ToGuest>(&frame.payload)
            .map_err(|error| GuestError::new(GuestCode::Unsupported, error.to_string()));
        let kind = match &request {
            Ok(ToGuest::OpenStream(_) | ToGuest::AcceptStream(_)) => CallKind::Stream,
            _ => CallKind::Ordinary,
        };
        let request = self.admit(kind).and(request);
        let (cx, control) = call::open(frame.id, kind, self.agent.clone(), self.outbox.clone());
        drop(frame);
        let task = self.running.spawn(run(cx, request));
        self.by_task.insert(task.id(), control.id);
        self.by_id.insert(control.id, control);
        Ok(())
    }

    /// Streams have places of their own, so that neither they nor the other calls keep each other out.
    fn admit(&self, kind: CallKind) -> Result<(), GuestError> {
        let (most, what) = match kind {
            CallKind::Ordinary => (limits::MAX_CALLS_IN_FLIGHT, "calls are in flight"),
            CallKind::Stream => (limits::MAX_STREAMS, "streams are open"),
        };
        if self.by_id.values().filter(|control| control.kind == kind).count() < most {
            return Ok(());
        }
        Err(GuestError::new(GuestCode::Busy, format!("{most} {what}")))
    }

    async fn ended(&mut self, ended: Result<(tokio::task::Id, ()), tokio::task::JoinError>) {
        let (task, panicked) = match &ended {
            Ok((task, ())) => (*task, false),
            Err(error) => (error.id(), true),
        };
        let Some(id) = self.by_task.remove(&task) else { return };
        self.by_id.remove(&id);
        if panicked {
            crate::say!("call {id} panicked");
            let error =
                GuestError::new(GuestCode::Internal, "the guest daemon failed on this call");
            reply_with(&self.outbox, id, Err(error)).await;
        }
    }
}

async fn run(cx: RequestContext, request: Result<ToGuest, GuestError>) {
    let ordered_stop = matches!(request, Ok(ToGuest::Shutdown(_)));
    let reply = match request {
        Ok(request) => crate::serve::answer(&cx, request).await,
        Err(error) => Err(error),
    };
    let stop = ordered_stop && reply.is_ok();
    reply_with(&cx.outbox, cx.id, reply).await;
    if stop {
        let _ = tokio::time::timeout(Duration::from_secs(1), cx.outbox.flush()).await;
        cx.agent.stop();
    }
}

/// Sends the call's one reply. A connection that is gone no longer wants it.
async fn reply_with(outbox: &Outbox, id: u32, reply: Result<FromGuest, GuestError>) {
    let payload = encode(&reply).or_else(|error| {
        let error = GuestError::new(GuestCode::TooLarge, error.to_string());
        encode(&Err::<FromGuest, _>(error))
    });
    if let Ok(payload) = payload {
        let _ = outbox.send(Frame { kind: FrameKind::Reply, id, payload }.to_bytes()).await;
    }
}

/// A peer that has not proved itself by then is dropped.
const DEADLINE: Duration = Duration::from_secs(10);

async fn accept<R: AsyncRead + Unpin>(
    agent: &Agent,
    source: &mut Source<R>,
    outbox: &Outbox,
) -> Result<(), Broken> {
    let late = |_| Broken::Rubbish("no handshake in time".into());
    match source.stream() {
        StreamKind::Endless => loop {
            let nonce = source.preamble().await?;
            match timeout(DEADLINE, greet(agent, source, outbox, nonce)).await {
                // The host repeats its preamble until it hears the echo, so the rest
                // of them stand before its hello.
                Ok(Err(Broken::Anew | Broken::Rubbish(_))) | Err(_) => {}
                Ok(done) => return done,
            }
        },
        StreamKind::Connection => {
            let shaking = async {
                let nonce = source.preamble().await?;
                greet(agent, source, outbox, nonce).await
            };
            timeout(DEADLINE, shaking).await.map_err(late)?
        }
    }
}

async fn greet<R: AsyncRead + Unpin>(
    agent: &Agent,
    source: &mut Source<R>,
    outbox: &Outbox,
    nonce: [u8; 16],
) -> Result<(), Broken> {
    let gone = |_| Broken::Closed;
    outbox.send(sync_preamble(nonce).to_vec()).await.map_err(gone)?;
    let frame = source.frame().await?;
    if frame.kind != FrameKind::Hello {
        return Err(Broken::Rubbish(format!("{:?} frame before the hello", frame.kind)));
    }
    let hello: HostHello =
        decode(&frame.payload).map_err(|error| Broken::Rubbish(format!("hello: {error}")))?;
    let answer = judge(agent, &hello);
    let payload = encode(&answer).map_err(|error| Broken::Rubbish(error.to_string()))?;
    let frame = Frame { kind: FrameKind::Welcome, id: 0, payload };
    outbox.send(frame.to_bytes()).await.map_err(gone)?;
    answer.map(drop).map_err(|refusal| {
        crate::say!("link: refused: {refusal}");
        Broken::Rubbish("refused".into())
    })
}

/// The token is judged first: a stranger learns nothing about versions.
fn judge(agent: &Agent, hello: &HostHello) -> Result<GuestWelcome, HelloRefusal> {
    let hash = blake3::hash(&hello.token);
    if !bool::from(hash.as_bytes().ct_eq(&agent.persona.token_hash())) {
        return Err(HelloRefusal::Token);
    }
    if !(hello.min_version..=hello.max_version).contains(&PROTOCOL_VERSION) {
        let (min_version, max_version) = (PROTOCOL_VERSION, PROTOCOL_VERSION);
        return Err(HelloRefusal::Version { min_version, max_version });
    }
    Ok(GuestWelcome {
        version: PROTOCOL_VERSION,
        guest_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: agent.persona.instance_id(),
        daemon_starts: agent.identity.daemon_starts,
        containment: agent.contain.kind(),
    })
}
