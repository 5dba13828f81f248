//! Handshake of the host: finds the guest in the byte stream and authenticates to it.

use std::time::Duration;

use hivekeep_protocol::{
    Decoder, Frame, FrameKind, GuestWelcome, HelloRefusal, HostHello, PROTOCOL_VERSION, SYNC_LEN,
    decode, encode, nonce_of, sync_preamble,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroize;

use crate::carrier::{Carrier, Connection};
use crate::error::{AttemptError, Ending, LinkError};
use crate::options::{LinkOptions, LinkToken};
use crate::reader::READ_BYTES;

/// Maximum number of stale bytes dropped before an attempt is given up.
const MAX_STALE_BYTES: u64 = 64 * 1024 * 1024;

/// The preamble is repeated this often quickly,
const QUICK_REPEATS: u32 = 4;
const QUICK_GAP: Duration = Duration::from_millis(250);
/// then slowly: a guest that takes it for the inside of an older frame looks for
/// a preamble again after [`hivekeep_protocol::limits::MID_FRAME_GAP_MS`] of silence.
const SLOW_GAP: Duration = Duration::from_millis(3_000);

/// Time limit of the welcome. Where preambles are repeated, a guest may take a late one for the start of the
/// next connection and miss the hello. Then all begins again.
const WELCOME_WITHIN: Duration = Duration::from_millis(1_000);

/// Maximum length of a text in a welcome.
const MAX_TEXT_BYTES: usize = 256;

/// Connection to a guest that accepted.
pub(super) struct Greeted {
    pub(super) welcome: GuestWelcome,
    /// Bytes received after the welcome.
    pub(super) received: Vec<u8>,
}

/// Makes the handshake. The caller bounds the time.
pub(super) async fn greet(
    connection: &mut Connection,
    token: &LinkToken,
    repeat: bool,
) -> Result<Greeted, AttemptError> {
    let mut greeting = Greeting { connection, received: Vec::new(), stale_bytes: 0, repeat };
    loop {
        greeting.find_echo().await?;
        greeting.send_hello(token).await?;
        let welcome = greeting.read_welcome();
        let answer = if repeat {
            timeout(WELCOME_WITHIN, welcome).await.unwrap_or(Err(AttemptError::Silent))
        } else {
            welcome.await
        };
        match answer {
            Ok(welcome) => return Ok(Greeted { welcome, received: greeting.received }),
            Err(AttemptError::Silent | AttemptError::NotAGuest(_)) if repeat => {}
            Err(error) => return Err(error),
        }
    }
}

/// Performs both steps of a handshake with an untrusted guest.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) async fn answered(mut connection: Connection, repeat: bool) {
    let received = Vec::new();
    let mut greeting = Greeting { connection: &mut connection, received, stale_bytes: 0, repeat };
    let _ = read_more(&mut greeting.connection.reader, &mut greeting.received).await;
    let _ = greeting.drop_to_echo(&sync_preamble([0; 16]));
    let _ = greeting.read_welcome().await;
}

struct Greeting<'a> {
    connection: &'a mut Connection,
    /// Bytes received and not used yet.
    received: Vec<u8>,
    stale_bytes: u64,
    repeat: bool,
}

impl Greeting<'_> {
    /// Sends a fresh preamble until it comes back; drops everything before it.
    async fn find_echo(&mut self) -> Result<(), AttemptError> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| AttemptError::Connect(error.into()))?;
        let preamble = sync_preamble(nonce);
        let (mut sent, mut next) = (0, Instant::now());
        loop {
            if self.drop_to_echo(&preamble)? {
                return Ok(());
            }
            tokio::select! {
                _ = sleep_until(next), if sent == 0 || self.repeat => {
                    let writer = &mut self.connection.writer;
                    writer.write_all(&preamble).await.map_err(AttemptError::Connect)?;
                    writer.flush().await.map_err(AttemptError::Connect)?;
                    sent += 1;
                    next = Instant::now() + if sent < QUICK_REPEATS { QUICK_GAP } else { SLOW_GAP };
                }
                read = read_more(&mut self.connection.reader, &mut self.received) => read?,
            }
        }
    }

    /// Drops received bytes up to the end of the preamble if it is there; otherwise keeps the last
    /// bytes, which may be its beginning.
    fn drop_to_echo(&mut self, preamble: &[u8; SYNC_LEN]) -> Result<bool, AttemptError> {
        let at = self.received.windows(SYNC_LEN).position(|window| window == preamble);
        let stale = match at {
            Some(at) => at + SYNC_LEN,
            None => self.received.len().saturating_sub(SYNC_LEN - 1),
        };
        self.received.drain(..stale);
        self.stale_bytes += stale as u64;
        if at.is_none() && self.stale_bytes > MAX_STALE_BYTES {
            return Err(AttemptError::NotAGuest("endless bytes and no echo of the preamble"));
        }
        Ok(at.is_some())
    }

    async fn send_hello(&mut self, token: &LinkToken) -> Result<(), AttemptError> {
        let mut hello = HostHello {
            min_version: PROTOCOL_VERSION,
            max_version: PROTOCOL_VERSION,
            token: token.bytes(),
        };
        let encoded = encode(&hello);
        hello.token.zeroize();
        let payload = encoded.map_err(|_| AttemptError::NotAGuest("unencodable hello"))?;
        let mut frame = Frame { kind: FrameKind::Hello, id: 0, payload };
        let mut bytes = frame.to_bytes();
        frame.payload.zeroize();
        let writer = &mut self.connection.writer;
        let sent = async {
            writer.write_all(&bytes).await?;
            writer.flush().await
        };
        let sent = sent.await;
        bytes.zeroize();
        sent.map_err(AttemptError::Connect)
    }

    async fn read_welcome(&mut self) -> Result<GuestWelcome, AttemptError> {
        loop {
            match self.first_frame()? {
                // On an endless stream the replies of an older link's calls may come first.
                Some(frame) if self.repeat && frame.kind != FrameKind::Welcome => continue,
                Some(frame) => return welcome_of(&frame),
                None => {}
            }
            read_more(&mut self.connection.reader, &mut self.received).await?;
        }
    }

    /// First frame received, once it is complete. Echoes of repeated preambles before it are
    /// dropped.
    fn first_frame(&mut self) -> Result<Option<Frame>, AttemptError> {
        let magic = &sync_preamble([0; 16])[..SYNC_LEN / 2];
        loop {
            let known = self.received.len().min(magic.len());
            if known == 0 || self.received[..known] != magic[..known] {
                break;
            }
            match self.received.first_chunk::<SYNC_LEN>() {
                Some(echo) if nonce_of(echo).is_some() => drop(self.received.drain(..SYNC_LEN)),
                _ => return Ok(None),
            }
        }
        let lost = |_| AttemptError::NotAGuest("the answer to the hello is not a frame");
        let (used, frame) = Decoder::default().push(&self.received).map_err(lost)?;
        if frame.is_some() {
            self.received.drain(..used);
        }
        Ok(frame)
    }
}

async fn read_more(
    reader: &mut super::carrier::CarrierReader,
    received: &mut Vec<u8>,
) -> Result<(), AttemptError> {
    received.reserve(READ_BYTES.saturating_sub(received.len()).max(4096));
    match reader.read_buf(received).await {
        Ok(0) => Err(AttemptError::Closed),
        Ok(_) => Ok(()),
        Err(error) => Err(AttemptError::Connect(error)),
    }
}

fn welcome_of(frame: &Frame) -> Result<GuestWelcome, AttemptError> {
    if frame.kind != FrameKind::Welcome || frame.id != 0 {
        return Err(AttemptError::NotAGuest("the answer to the hello is not a welcome"));
    }
    let answer: Result<GuestWelcome, HelloRefusal> = decode(&frame.payload)
        .map_err(|_| AttemptError::NotAGuest("the welcome cannot be decoded"))?;
    let welcome = answer.map_err(AttemptError::Refused)?;
    if welcome.version != PROTOCOL_VERSION {
        let version = welcome.version;
        let refusal = HelloRefusal::Version { min_version: version, max_version: version };
        return Err(AttemptError::Refused(refusal));
    }
    if welcome.guest_version.len() > MAX_TEXT_BYTES || welcome.boot_id.len() > MAX_TEXT_BYTES {
        return Err(AttemptError::NotAGuest("the welcome's texts are too long"));
    }
    Ok(welcome)
}

/// Connects with retries until a guest accepts, refuses, or the deadline passes.
pub(super) async fn dial(
    carrier: &dyn Carrier,
    token: &LinkToken,
    options: &LinkOptions,
    cancel: &CancellationToken,
) -> Result<(Connection, Greeted), LinkError> {
    let deadline = Instant::now() + options.deadline();
    let mut pause = Duration::from_millis(options.retry_first_ms.max(1));
    let mut attempts = 0;
    loop {
        attempts += 1;
        let limit = deadline.min(Instant::now() + options.attempt_timeout());
        let tried = tokio::select! {
            biased;
            _ = cancel.cancelled() => return Err(LinkError::Cancelled(Ending::NotSent)),
            tried = timeout_at(limit, attempt(carrier, token, options)) => tried,
        };
        let last = match tried.unwrap_or(Err(AttemptError::Silent)) {
            Ok(greeted) => return Ok(greeted),
            Err(error) => match error.into_final() {
                Ok(fatal) => return Err(fatal),
                Err(last) => last,
            },
        };
        tracing::trace!(carrier = carrier.name(), attempts, %last, "no guest yet");
        let next = Instant::now() + pause;
        if next >= deadline {
            return Err(LinkError::Unreachable { attempts, last });
        }
        tokio::select! {
            biased;
            _ = cancel.cancelled() => return Err(LinkError::Cancelled(Ending::NotSent)),
            _ = sleep_until(next) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(options.retry_max_ms.max(1)));
    }
}

async fn attempt(
    carrier: &dyn Carrier,
    token: &LinkToken,
    options: &LinkOptions,
) -> Result<(Connection, Greeted), AttemptError> {
    let mut connection = timeout(options.dial_timeout(), carrier.connect())
        .await
        .unwrap_or(Err(AttemptError::Silent))?;
    let greeted = greet(&mut connection, token, !carrier.has_connections()).await?;
    Ok((connection, greeted))
}
