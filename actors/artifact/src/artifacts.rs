//! Store of the artifacts of all users: what the dispatcher keeps, and what doors and tools read, in ranges of
//! bytes or of text, never the whole in memory.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use hivekeep_kernel::{ArtifactId, Layer, Room, ToolError, User, lock};
use hivekeep_ports::{KeptResult, LargeResult, ResultKeeper, SessionQuotas};
use hivekeep_runtime::{Daemon, documents::Changed};
use hivekeep_store::{Events, NewEvent};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, broadcast};

use crate::{
    Options, codes,
    folder::{ArtifactFolder, Index},
    info::ArtifactInfo,
};

/// Artifacts that are written at a time; one more is not kept.
const WRITERS: usize = 16;
/// Notices that a slow listener may be behind.
const CHANGES: usize = 64;

/// Kind of artifacts, for tiers.
pub(crate) const HELD: &str = "artifacts";

/// Caller that asks for an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArtifactAccess {
    /// Operator of the daemon, who sees all artifacts.
    Operator,
    /// User, who sees its own artifacts.
    User(User),
}

impl ArtifactAccess {
    fn sees(self, info: &ArtifactInfo) -> bool {
        match self {
            Self::Operator => true,
            Self::User(user) => info.user == user,
        }
    }
}

/// Artifacts of all users. Cheap to clone.
#[derive(Clone)]
pub struct Artifacts(Arc<Inner>);

struct Inner {
    options: Options,
    folder: ArtifactFolder,
    room: Room,
    sessions: Arc<dyn SessionQuotas>,
    events: Events,
    /// Locked for a look or a change in memory, never during work on files.
    index: Mutex<Index>,
    writers: Arc<Semaphore>,
    changes: broadcast::Sender<Changed>,
}

impl Artifacts {
    /// Opens the store below the state folder.
    pub(crate) async fn open_store(daemon: &Daemon, options: Options) -> Result<Self, ToolError> {
        let path = daemon.folders.state.join("artifacts");
        let opening = tokio::task::spawn_blocking(move || ArtifactFolder::open(path));
        let (folder, found) = opening.await.map_err(lost)?.map_err(failed)?;
        Ok(Self(Arc::new(Inner {
            options,
            folder,
            room: daemon.room.clone(),
            sessions: daemon.sessions.clone(),
            events: daemon.journal.events(),
            index: Mutex::new(Index::of(found)),
            writers: Arc::new(Semaphore::new(WRITERS)),
            changes: broadcast::channel(CHANGES).0,
        })))
    }

    pub(crate) fn sessions(&self) -> &dyn SessionQuotas {
        &*self.0.sessions
    }

    pub(crate) fn enabled(&self) -> bool {
        self.0.options.enabled
    }

    pub(crate) fn changes(&self) -> broadcast::Receiver<Changed> {
        self.0.changes.subscribe()
    }

    /// Artifacts that the caller sees, the newest first.
    pub fn list(&self, access: ArtifactAccess) -> Vec<ArtifactInfo> {
        let now = Utc::now();
        let index = lock(&self.0.index);
        let there = index.newest().filter(|info| access.sees(info) && info.expires_at > now);
        there.cloned().collect()
    }

    /// Artifact of an id, if the caller sees it.
    ///
    /// # Errors
    /// `artifact_not_found`.
    pub fn find(&self, id: ArtifactId, access: ArtifactAccess) -> Result<ArtifactInfo, ToolError> {
        let index = lock(&self.0.index);
        let found = index.get(id).filter(|info| access.sees(info) && info.expires_at > Utc::now());
        found.cloned().ok_or_else(|| not_found(id))
    }

    /// Opens an artifact for reading, in ranges.
    ///
    /// # Errors
    /// `artifact_not_found`, `artifact_failed`.
    pub async fn open(
        &self,
        id: ArtifactId,
        access: ArtifactAccess,
    ) -> Result<OpenArtifact, ToolError> {
        let info = self.find(id, access)?;
        let inner = self.0.clone();
        let file =
            tokio::task::spawn_blocking(move || inner.folder.file(id)).await.map_err(lost)?;
        match file {
            Ok(file) => Ok(OpenArtifact::new(info, file)),
            // The artifact was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(not_found(id)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes an artifact before it expires. It is off the disk when this returns.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn remove(
        &self,
        id: ArtifactId,
        access: ArtifactAccess,
    ) -> Result<ArtifactInfo, ToolError> {
        let info = self.find(id, access)?;
        self.take_out(id, "artifact.deleted").await?;
        Ok(info)
    }

    /// Removes those whose time is over.
    pub(crate) async fn expire(&self, now: DateTime<Utc>) {
        let expired = lock(&self.0.index).expired(now);
        for id in expired {
            if let Err(error) = self.take_out(id, "artifact.expired").await {
                tracing::error!(artifact = %id, %error, "an expired artifact stays");
            }
        }
    }

    /// Removes the file, and then what is known of it: a file that stays is tried again.
    async fn take_out(&self, id: ArtifactId, kind: &'static str) -> Result<(), ToolError> {
        let inner = self.0.clone();
        let removing = tokio::task::spawn_blocking(move || {
            inner.folder.remove(id)?;
            if let Some(info) = lock(&inner.index).remove(id) {
                inner.tell(kind, &info);
            }
            Ok(())
        });
        removing.await.map_err(lost)?.map_err(failed)
    }
}

#[async_trait]
impl ResultKeeper for Artifacts {
    fn reader(&self) -> &'static str {
        crate::tools::READER
    }

    async fn keep(&self, result: LargeResult) -> Result<KeptResult, ToolError> {
        let turn = self.0.writers.clone().try_acquire_owned().map_err(|_| busy())?;
        let inner = self.0.clone();
        let keeping = tokio::task::spawn_blocking(move || {
            let kept = inner.keep(&result);
            drop(turn);
            kept
        });
        keeping.await.map_err(lost)?
    }
}

impl Inner {
    /// Reserves, writes, and counts what is written. Blocks.
    fn keep(&self, result: &LargeResult) -> Result<KeptResult, ToolError> {
        let LargeResult { user, session, call, tool, value } = result;
        self.room.admit(self.folder.path())?;
        let now = Utc::now();
        let mut info = ArtifactInfo {
            id: ArtifactId::new(),
            user: *user,
            session: *session,
            call: *call,
            tool: (*tool).to_owned(),
            bytes: size(value).map_err(failed)?,
            sha256: String::new(),
            created_at: now,
            expires_at: now + self.options.kept(),
        };
        let (id, wanted) = (info.id, (*user, info.bytes));
        lock(&self.index).reserve(id, wanted, &self.options, self.most(*user))?;
        let written = self.folder.write(&mut info, value);
        let kept = written.is_ok().then(|| info.clone());
        lock(&self.index).settle(id, kept);
        written.map_err(failed)?;
        self.tell("artifact.kept", &info);
        Ok(info.kept())
    }

    fn most(&self, user: User) -> usize {
        let allowed = self.sessions.allowance(user, HELD).map(usize::try_from);
        let allowed = allowed.map_or(usize::MAX, |allowed| allowed.unwrap_or(usize::MAX));
        allowed.min(self.options.max_per_user)
    }

    fn tell(&self, kind: &str, info: &ArtifactInfo) {
        let ArtifactInfo { id, user, session, call, tool, bytes, .. } = info;
        let data = json!({
            "user": user, "session": session, "call": call, "tool": tool, "bytes": bytes,
        });
        let event = NewEvent { kind: kind.to_owned(), subject: id.to_string(), data };
        let _lost_is_counted = self.events.publish_later(event);
        // Nobody may listen.
        let _ = self.changes.send(Changed { uri: info.uri(), listed: true });
    }
}

/// Size of a value as compact JSON.
fn size(value: &Value) -> io::Result<u64> {
    let mut sink = Counted(0);
    serde_json::to_writer(&mut sink, value)?;
    Ok(sink.0)
}

/// Sink that counts.
struct Counted(u64);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn not_found(id: ArtifactId) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::ARTIFACT_NOT_FOUND, "artifact", &id.to_string())
        .next("artifact_list shows yours; one that has expired can be made again by its call")
}

fn busy() -> ToolError {
    let message = format!("{WRITERS} results are being written already");
    ToolError::new(Layer::Admission, codes::BUSY, message).retryable()
}

/// A failure of the disk.
fn failed(error: io::Error) -> ToolError {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => codes::HOST_DISK_FULL,
        _ => codes::ARTIFACT_FAILED,
    };
    ToolError::new(Layer::Store, code, format!("the folder of artifacts: {error}"))
}

/// Work off the async threads that did not come back.
fn lost(error: tokio::task::JoinError) -> ToolError {
    ToolError::internal(format!("artifacts: {error}"))
}

/// Artifact that is open for reading. It stays readable when it is removed or expires meanwhile.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct OpenArtifact {
    /// Description of the artifact.
    pub info: Arc<ArtifactInfo>,
    file: Arc<File>,
}

/// Part of an artifact, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactText {
    /// Position of its first byte: the one that was asked for, or the next at which a character begins.
    pub offset: u64,
    /// The text.
    pub text: String,
    /// Position to go on from; `None` at the end.
    pub next: Option<u64>,
}

impl OpenArtifact {
    /// Most bytes that are read at once.
    pub const MOST_BYTES: usize = 1024 * 1024;

    pub(crate) fn new(info: ArtifactInfo, file: File) -> Self {
        Self { info: Arc::new(info), file: Arc::new(file) }
    }

    /// Reads at most `length` bytes, and at most [`Self::MOST_BYTES`], from a position on; none behind
    /// the end.
    ///
    /// # Errors
    /// `artifact_failed`.
    pub async fn bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>, ToolError> {
        let left = usize::try_from(self.info.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left).min(Self::MOST_BYTES)];
        let file = self.file.clone();
        let read = move || -> io::Result<_> {
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        tokio::task::spawn_blocking(read).await.map_err(lost)?.map_err(failed)
    }

    /// Reads the characters that lie whole within such a range.
    ///
    /// # Errors
    /// `artifact_failed`; `invalid_input` for a range in which no character is whole.
    pub async fn text(&self, offset: u64, length: usize) -> Result<ArtifactText, ToolError> {
        let mut bytes = self.bytes(offset, length).await?;
        let inside = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let skipped = bytes.iter().take(3).take_while(inside).count();
        bytes.drain(..skipped);
        let offset = offset + skipped as u64;
        if let Err(error) = std::str::from_utf8(&bytes) {
            if error.error_len().is_some() {
                let message = format!("{} is not the text that it was", self.info.id);
                return Err(ToolError::new(Layer::Store, codes::ARTIFACT_FAILED, message));
            }
            bytes.truncate(error.valid_up_to());
        }
        let end = offset + bytes.len() as u64;
        let next = (end < self.info.bytes).then_some(end);
        if bytes.is_empty() && next.is_some() {
            return Err(ToolError::invalid("no character is whole in this range")
                .next("ask for at least 4 bytes more"));
        }
        let text =
            String::from_utf8(bytes).map_err(|error| ToolError::internal(error.to_string()))?;
        Ok(ArtifactText { offset, text, next })
    }
}
