//! A host as small as it can be: one reader task, calls by id.
#![expect(clippy::disallowed_methods, reason = "a test bounds its own queues")]

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hivekeep_protocol::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::timeout;

use crate::guest::{Guest, TOKEN};

pub const PATIENCE: Duration = Duration::from_secs(120);

type Waiting = Arc<Mutex<HashMap<u32, mpsc::UnboundedSender<Frame>>>>;

pub struct Host {
    writer: Arc<AsyncMutex<OwnedWriteHalf>>,
    waiting: Waiting,
    next: std::sync::atomic::AtomicU32,
    pub welcome: GuestWelcome,
    pub events: AsyncMutex<mpsc::UnboundedReceiver<GuestEvent>>,
}

pub struct Call {
    pub id: u32,
    pub frames: mpsc::UnboundedReceiver<Frame>,
    writer: Arc<AsyncMutex<OwnedWriteHalf>>,
}

pub struct Output {
    pub reply: Result<RunCommandReply, GuestError>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

pub async fn read_frame(reader: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Option<Frame> {
    let mut decoder = Decoder::default();
    loop {
        let (used, frame) = decoder.push(buffer).expect("the guest sends sound frames");
        buffer.drain(..used);
        if frame.is_some() {
            return frame;
        }
        if reader.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Preamble and hello on a fresh stream; the guest's answer.
pub async fn shake(
    stream: &mut UnixStream,
    hello: &HostHello,
) -> Result<GuestWelcome, HelloRefusal> {
    let preamble = sync_preamble(*b"a-nonce-of-tests");
    stream.write_all(&preamble).await.expect("write");
    let mut echo = [0; SYNC_LEN];
    stream.read_exact(&mut echo).await.expect("echo");
    assert_eq!(echo, preamble);
    let frame = Frame { kind: FrameKind::Hello, id: 0, payload: encode(hello).expect("hello") };
    stream.write_all(&frame.to_bytes()).await.expect("write");
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.expect("welcome");
    let len = u32::from_be_bytes(header[..4].try_into().expect("four")) as usize;
    let mut payload = vec![0; len];
    stream.read_exact(&mut payload).await.expect("welcome");
    decode(&payload).expect("welcome")
}

pub fn hello() -> HostHello {
    HostHello { min_version: PROTOCOL_VERSION, max_version: PROTOCOL_VERSION, token: TOKEN }
}

impl Host {
    pub async fn to(guest: &Guest) -> Self {
        timeout(PATIENCE, Self::dial(&guest.socket())).await.expect("the guest answers")
    }

    pub async fn dial(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).await.expect("connect");
        let welcome = shake(&mut stream, &hello()).await.expect("welcome");
        let (mut reader, writer) = stream.into_split();
        let waiting = Waiting::default();
        let (events_in, events) = mpsc::unbounded_channel();
        let calls = waiting.clone();
        tokio::spawn(async move {
            let mut buffer = Vec::new();
            while let Some(frame) = read_frame(&mut reader, &mut buffer).await {
                if frame.kind == FrameKind::Event {
                    let _ = events_in.send(decode(&frame.payload).expect("an event"));
                } else if let Some(call) = calls.lock().expect("lock").get(&frame.id) {
                    let _ = call.send(frame);
                }
            }
            calls.lock().expect("lock").clear();
        });
        let (writer, events) = (Arc::new(AsyncMutex::new(writer)), AsyncMutex::new(events));
        Self { writer, waiting, next: 1.into(), welcome, events }
    }

    pub async fn call(&self, request: ToGuest) -> Call {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (send, frames) = mpsc::unbounded_channel();
        self.waiting.lock().expect("lock").insert(id, send);
        let call = Call { id, frames, writer: self.writer.clone() };
        call.send(FrameKind::Request, &encode(&request).expect("a request")).await;
        call
    }

    pub async fn ask<R: GuestRequest>(&self, request: R) -> Result<R::Reply, GuestError> {
        let mut call = self.call(request.into_wire()).await;
        let reply = call.reply().await?;
        Ok(R::reply_of(reply).expect("a reply of the request's kind"))
    }

    pub async fn exec(&self, exec: RunCommand) -> Output {
        self.call(exec.into_wire()).await.output().await
    }

    pub async fn sh(&self, line: &str) -> Output {
        self.exec(shell(line)).await
    }

    pub async fn upload(
        &self,
        request: WriteFile,
        pieces: impl Iterator<Item = Vec<u8>>,
    ) -> Result<WriteFileReply, GuestError> {
        let mut call = self.call(request.into_wire()).await;
        let mut credit = u64::from(limits::INITIAL_CREDIT_BYTES);
        for mut piece in pieces {
            while credit < piece.len() as u64 {
                let frame = call.next().await;
                match frame.kind {
                    FrameKind::Credit => credit += u64::from(u32_of(&frame.payload)),
                    _ => return reply_of(&frame).map(written),
                }
            }
            credit -= piece.len() as u64;
            piece.insert(0, Stream::Content as u8);
            call.send(FrameKind::Data, &piece).await;
        }
        call.send(FrameKind::End, &[]).await;
        call.reply().await.map(written)
    }

    pub async fn download(
        &self,
        request: ReadFile,
    ) -> (Result<ReadFileReply, GuestError>, Vec<u8>) {
        let mut call = self.call(request.into_wire()).await;
        let (reply, content) = call.content().await;
        let reply = reply.map(|reply| ReadFile::reply_of(reply).expect("of its kind"));
        (reply, content)
    }
}

fn written(reply: FromGuest) -> WriteFileReply {
    WriteFile::reply_of(reply).expect("of its kind")
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

fn reply_of(frame: &Frame) -> Result<FromGuest, GuestError> {
    assert_eq!(frame.kind, FrameKind::Reply);
    decode(&frame.payload).expect("a reply")
}

impl Call {
    pub async fn send(&self, kind: FrameKind, payload: &[u8]) {
        let frame = Frame { kind, id: self.id, payload: payload.to_vec() };
        let _ = self.writer.lock().await.write_all(&frame.to_bytes()).await;
    }

    pub async fn cancel(&self) {
        self.send(FrameKind::Cancel, &[]).await;
    }

    pub async fn next(&mut self) -> Frame {
        let frame = timeout(PATIENCE, self.frames.recv()).await.expect("the guest answers");
        frame.expect("the link holds")
    }

    /// The reply, whatever comes before it; data is granted and dropped.
    pub async fn reply(&mut self) -> Result<FromGuest, GuestError> {
        self.collect(|_, _| {}).await
    }

    async fn collect(&mut self, mut got: impl FnMut(u8, &[u8])) -> Result<FromGuest, GuestError> {
        loop {
            let frame = self.next().await;
            match frame.kind {
                FrameKind::Data => {
                    let (stream, bytes) = frame.payload.split_first().expect("a stream byte");
                    assert!(bytes.len() <= limits::DATA_CHUNK_BYTES);
                    got(*stream, bytes);
                    let grant = u32::try_from(bytes.len()).expect("small").to_be_bytes();
                    self.send(FrameKind::Credit, &grant).await;
                }
                FrameKind::Credit => {}
                _ => return reply_of(&frame),
            }
        }
    }

    pub async fn content(&mut self) -> (Result<FromGuest, GuestError>, Vec<u8>) {
        let mut content = Vec::new();
        let reply = self.collect(|_, bytes| content.extend_from_slice(bytes)).await;
        (reply, content)
    }

    pub async fn output(&mut self) -> Output {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let reply = self
            .collect(|stream, bytes| {
                match Stream::try_from(stream) {
                    Ok(Stream::Stdout) => stdout.extend_from_slice(bytes),
                    Ok(Stream::Stderr) => stderr.extend_from_slice(bytes),
                    other => panic!("{other:?} in an exec"),
                };
            })
            .await;
        let reply = reply.map(|reply| match reply {
            FromGuest::RunCommand(done) | FromGuest::RunOnce(done) => done,
            other => panic!("{other:?} to a command"),
        });
        Output { reply, stdout, stderr }
    }
}

pub fn shell(line: &str) -> RunCommand {
    RunCommand {
        argv: Argv::Shell(line.into()),
        env: vec![],
        workdir: Some("/".into()),
        timeout_ms: 60_000,
        max_output_bytes: u64::MAX,
    }
}
