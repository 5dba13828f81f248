//! Server of one connection of a [`FakeGuest`].

use std::{collections::HashMap, sync::Arc, time::Duration};

use hivekeep_protocol::{
    Decoder, Frame, FrameKind, FromGuest, GuestCode, GuestError, GuestWelcome, HelloRefusal,
    HostHello, ReadFileReply, SYNC_LEN, Stream, StreamClosed, SyncScanner, ToGuest, decode, encode,
    limits::{DATA_CHUNK_BYTES, INITIAL_CREDIT_BYTES, STREAM_WINDOW_BYTES},
    sync_preamble,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

use super::{FakeGuest, HelloBehaviour, Observation, RequestBehaviour, welcome};

type Reply = Result<FromGuest, GuestError>;

/// Call as the guest knows it.
#[derive(Clone)]
struct Call {
    id: u32,
    credit: Arc<Semaphore>,
    cancel: CancellationToken,
    /// Reply to send at the end of the content.
    at_end: Option<Reply>,
    /// Grants credit for the content that comes.
    reads: bool,
    /// Takes the content of a stream that is echoed; bounded by the credit that follows the echo.
    echo: Option<mpsc::UnboundedSender<Vec<u8>>>,
    out: mpsc::Sender<Vec<u8>>,
}

impl FakeGuest {
    /// Serves one connection to its end.
    pub async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut reader, mut writer) = tokio::io::split(stream);
        if let Some((received, mut decoder)) = self.open(&mut reader, &mut writer).await {
            let (out, queue) = mpsc::channel(4);
            let writing = tokio::spawn(write_all(writer, queue));
            self.follow(reader, &mut decoder, received, out).await;
            writing.abort();
        }
        self.saw(Observation::Gone);
    }

    /// Performs the handshake. `None` when the connection is not served further.
    async fn open<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        reader: &mut ReadHalf<S>,
        writer: &mut WriteHalf<S>,
    ) -> Option<(Vec<u8>, Decoder)> {
        match &self.opening {
            HelloBehaviour::HangsUp => return None,
            HelloBehaviour::EndlessRubbish => loop {
                writer.write_all(&[0x5a; 64 * 1024]).await.ok()?;
            },
            HelloBehaviour::StaleBytes(bytes) => writer.write_all(bytes).await.ok()?,
            _ => {}
        }
        let (mut scanner, mut preambles, mut echoes) = (SyncScanner::default(), 0, 0);
        let mut received = Vec::new();
        loop {
            if reader.read_buf(&mut received).await.ok()? == 0 {
                return None;
            }
            let mut at = 0;
            while let (used, Some(nonce)) = scanner.push(&received[at..]) {
                at += used;
                preambles += 1;
                match &self.opening {
                    HelloBehaviour::Silent => continue,
                    HelloBehaviour::HearsPreamble(nth) if preambles < *nth => continue,
                    _ => writer.write_all(&sync_preamble(nonce)).await.ok()?,
                }
                echoes += 1;
                let lost = matches!(self.opening, HelloBehaviour::LosesFirstHello) && echoes == 1;
                if !lost {
                    return self.greet(reader, writer, received.split_off(at)).await;
                }
            }
            received.clear();
        }
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        reader: &mut ReadHalf<S>,
        writer: &mut WriteHalf<S>,
        mut received: Vec<u8>,
    ) -> Option<(Vec<u8>, Decoder)> {
        let mut decoder = Decoder::default();
        loop {
            let (used, frame) = decoder.push(&received).ok()?;
            received.drain(..used);
            let Some(frame) = frame else {
                if reader.read_buf(&mut received).await.ok()? == 0 {
                    return None;
                }
                continue;
            };
            let hello: HostHello = decode(&frame.payload).ok()?;
            self.saw(Observation::Hello(hello.token));
            let answer: Result<GuestWelcome, HelloRefusal> = match &self.opening {
                HelloBehaviour::Refuses(refusal) => Err(refusal.clone()),
                _ => Ok(welcome()),
            };
            writer.write_all(&frame_of(FrameKind::Welcome, 0, encode(&answer).ok()?)).await.ok()?;
            return answer.is_ok().then_some((received, decoder));
        }
    }

    async fn follow<R: AsyncRead + Unpin>(
        &self,
        mut reader: R,
        decoder: &mut Decoder,
        mut received: Vec<u8>,
        out: mpsc::Sender<Vec<u8>>,
    ) {
        let mut calls = HashMap::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let mut bytes = &received[..];
            while !bytes.is_empty() {
                let Ok((used, frame)) = decoder.push(bytes) else { return };
                bytes = &bytes[used..];
                if let Some(frame) = frame
                    && self.take(frame, &mut calls, &out).await.is_none()
                {
                    return;
                }
            }
            match reader.read(&mut buffer).await {
                Ok(len) if len > 0 => received = buffer[..len].to_vec(),
                _ => return,
            }
        }
    }

    /// Handles a frame; `None` ends the connection.
    async fn take(
        &self,
        Frame { kind, id, payload }: Frame,
        calls: &mut HashMap<u32, Call>,
        out: &mpsc::Sender<Vec<u8>>,
    ) -> Option<()> {
        match (kind, calls.get(&id)) {
            (FrameKind::Request, _) => {
                let request: ToGuest = decode(&payload).ok()?;
                self.saw(Observation::Request(id, request.clone()));
                let window = match request {
                    ToGuest::OpenStream(_) | ToGuest::AcceptStream(_) => STREAM_WINDOW_BYTES,
                    _ => INITIAL_CREDIT_BYTES,
                };
                let credit = Arc::new(Semaphore::new(window as usize));
                let cancel = CancellationToken::new();
                let act = (self.script)(&request);
                // A guest that sends raw bytes sends nothing else, so it grants no credit.
                let reads = !matches!(act, RequestBehaviour::Raw(_));
                let (at_end, echo, out) = (None, None, out.clone());
                let mut call = Call { id, credit, cancel, at_end, reads, echo, out };
                match act {
                    RequestBehaviour::Echo => call.start_echo(),
                    RequestBehaviour::HangUp => return None,
                    RequestBehaviour::Raw(bytes) => call.out.send(bytes(id)).await.ok()?,
                    RequestBehaviour::Receive(reply) => call.at_end = Some(reply),
                    act => drop(tokio::spawn(call.clone().act(act))),
                }
                calls.insert(id, call);
            }
            (FrameKind::Data, Some(call)) => {
                let len = payload.len() - 1;
                self.saw(Observation::Data(id, len));
                match &call.echo {
                    Some(echo) => drop(echo.send(payload)),
                    None if call.reads => call.grant(len).await?,
                    None => {}
                }
            }
            (FrameKind::End, Some(call)) => {
                self.saw(Observation::End(id));
                if let Some(echo) = &call.echo {
                    let _ = echo.send(Vec::new());
                }
                if let Some(reply) = call.at_end.clone() {
                    call.reply(reply).await?;
                }
            }
            (FrameKind::Cancel, call) => {
                self.saw(Observation::Cancel(id));
                if let Some(call) = call {
                    call.cancel.cancel();
                    if call.at_end.is_some() {
                        call.reply(Err(cancelled())).await?;
                    }
                }
            }
            (FrameKind::Credit, Some(call)) => {
                call.credit.add_permits(u32::from_be_bytes(payload.try_into().ok()?) as usize);
            }
            _ => return None,
        }
        Some(())
    }
}

impl Call {
    fn start_echo(&mut self) {
        #[expect(
            clippy::disallowed_methods,
            reason = "bounded by the credit that follows the echo"
        )]
        let (echo, pieces) = mpsc::unbounded_channel();
        self.echo = Some(echo);
        drop(tokio::spawn(self.clone().echo(pieces)));
    }

    /// Echoes data frames; an empty one is the end.
    async fn echo(mut self, mut pieces: mpsc::UnboundedReceiver<Vec<u8>>) -> Option<()> {
        self.echo = None;
        self.grant(STREAM_WINDOW_BYTES as usize).await?;
        let mut sent_bytes = 0;
        while let Some(piece) = pieces.recv().await.filter(|piece| !piece.is_empty()) {
            self.data(Stream::Content, &piece[1..]).await?;
            self.grant(piece.len() - 1).await?;
            sent_bytes += (piece.len() - 1) as u64;
        }
        self.out.send(frame_of(FrameKind::End, self.id, Vec::new())).await.ok()?;
        self.reply(Ok(FromGuest::OpenStream(StreamClosed { sent_bytes }))).await
    }

    async fn act(self, act: RequestBehaviour) -> Option<()> {
        match act {
            RequestBehaviour::Reply(reply) => self.reply(reply).await,
            RequestBehaviour::Send(pieces, reply) => {
                for (stream, bytes) in pieces {
                    for chunk in bytes.chunks(DATA_CHUNK_BYTES) {
                        self.data(stream, chunk).await?;
                    }
                }
                self.reply(reply).await
            }
            RequestBehaviour::Content(bytes) => {
                let chunk = vec![0x42; DATA_CHUNK_BYTES];
                let mut left = bytes;
                while left > 0 {
                    let len = left.min(chunk.len() as u64);
                    self.data(Stream::Content, &chunk[..len as usize]).await?;
                    left -= len;
                }
                let done = ReadFileReply { sent_bytes: bytes, size_bytes: bytes, mode: 0o644 };
                self.reply(Ok(FromGuest::ReadFile(done))).await
            }
            RequestBehaviour::Stall => {
                self.cancel.cancelled().await;
                self.reply(Err(cancelled())).await
            }
            RequestBehaviour::Ignore
            | RequestBehaviour::Raw(_)
            | RequestBehaviour::Receive(_)
            | RequestBehaviour::Echo
            | RequestBehaviour::HangUp => None,
        }
    }

    /// Sends a chunk once there is credit; `None` when the call is cancelled.
    async fn data(&self, stream: Stream, chunk: &[u8]) -> Option<()> {
        let credit = self.credit.acquire_many(chunk.len() as u32);
        tokio::select! {
            _ = self.cancel.cancelled() => {
                self.reply(Err(cancelled())).await;
                return None;
            }
            credit = credit => credit.ok()?.forget(),
        }
        let mut bytes = Vec::with_capacity(chunk.len() + SYNC_LEN);
        bytes.extend_from_slice(&Frame::header(FrameKind::Data, self.id, chunk.len() + 1));
        bytes.push(stream as u8);
        bytes.extend_from_slice(chunk);
        self.out.send(bytes).await.ok()
    }

    async fn grant(&self, len: usize) -> Option<()> {
        let len = u32::try_from(len).ok()?;
        let bytes = frame_of(FrameKind::Credit, self.id, len.to_be_bytes().to_vec());
        self.out.send(bytes).await.ok()
    }

    async fn reply(&self, reply: Reply) -> Option<()> {
        self.out.send(frame_of(FrameKind::Reply, self.id, encode(&reply).ok()?)).await.ok()
    }
}

fn cancelled() -> GuestError {
    GuestError::new(GuestCode::Cancelled, "cancelled by the host")
}

fn frame_of(kind: FrameKind, id: u32, payload: Vec<u8>) -> Vec<u8> {
    Frame { kind, id, payload }.to_bytes()
}

async fn write_all<W: AsyncWrite + Unpin>(mut writer: W, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = queue.recv().await {
        // Bounded, so that a host that has stopped reading for good does not keep the test waiting.
        let written = tokio::time::timeout(Duration::from_secs(60), writer.write_all(&bytes)).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}
