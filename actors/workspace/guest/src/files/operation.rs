//! Operations of the file engine, beneath the guest's root.

use std::sync::Arc;

use bytes::Bytes;
use hivekeep_file_engine::{
    self as engine, FileEffect, FileError, FileErrorKind, FileOperation, FileOutcome, FileRoot,
};
use hivekeep_protocol::{
    FileOperationDone, GuestCode, GuestError, RunFileOperation, RunFileOperationIn, Stream, limits,
};
use tokio::sync::{Semaphore, oneshot};

use crate::as_user::{self, HOME, Identity};
use crate::files::off_thread;
use crate::session::call::{RequestContext, cancelled};
use crate::session::inflow::InflowBatch;
use crate::sys::fs_ids;

/// Root and places of the operations that run.
#[derive(Debug)]
pub(crate) struct FileOperations {
    root: Arc<FileRoot>,
    walks: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl FileOperations {
    /// # Errors
    /// When `/` cannot be opened.
    pub(crate) fn new() -> std::io::Result<Self> {
        let root = FileRoot::system(HOME).map_err(std::io::Error::other)?;
        let places = || Arc::new(Semaphore::new(limits::FILE_OPERATIONS_AT_ONCE));
        Ok(Self { root: Arc::new(root), walks: places(), others: places() })
    }

    /// Root that all operations work beneath.
    pub(crate) fn root(&self) -> Arc<FileRoot> {
        self.root.clone()
    }
}

/// Where an operation runs, and as whom.
struct OperationPlace {
    root: Arc<FileRoot>,
    /// `None` is root.
    user: Option<Identity>,
}

/// Answers [`RunFileOperation`] after its outcome.
///
/// # Errors
/// As [`run_in`].
pub async fn run(
    cx: &RequestContext,
    asked: RunFileOperation,
) -> Result<FileOperationDone, GuestError> {
    run_at(cx, asked, OperationPlace { root: cx.agent.files.root(), user: None }).await
}

/// Answers [`RunFileOperationIn`] after its outcome. Each operation has a thread of its own: one that hangs
/// on a file system keeps its own place, and no other call from the disk.
///
/// # Errors
/// `UnknownUser`; `TooLarge`; `Invalid` for what is no folder or no operation; `Cancelled`, for one that
/// changes something only before it has begun.
pub async fn run_in(
    cx: &RequestContext,
    asked: RunFileOperationIn,
) -> Result<FileOperationDone, GuestError> {
    let RunFileOperationIn { operation, user, folder } = asked;
    let root = cx.agent.files.root().at(&folder);
    let root = root.map_err(|error| GuestError::new(GuestCode::Invalid, error.message))?;
    let user = match user {
        Some(user) => Some(off_thread(move || as_user::find(&user)).await?),
        None => None,
    };
    run_at(cx, operation, OperationPlace { root: Arc::new(root), user }).await
}

async fn run_at(
    cx: &RequestContext,
    asked: RunFileOperation,
    at: OperationPlace,
) -> Result<FileOperationDone, GuestError> {
    let operations = &cx.agent.files;
    if asked.operation_bytes > engine::MAX_ENCODED_BYTES {
        let message = format!("an operation of {} bytes", asked.operation_bytes);
        return Err(GuestError::new(GuestCode::TooLarge, message));
    }
    let places = if asked.walks { &operations.walks } else { &operations.others };
    let place = tokio::select! {
        biased;
        () = cx.cancel.cancelled() => return Err(cancelled()),
        place = places.clone().acquire_owned() => place.map_err(|_| cancelled())?,
    };
    let encoded = receive(cx, asked.operation_bytes).await?;
    let operation: FileOperation = engine::decode(&encoded)
        .map_err(|why| GuestError::new(GuestCode::Invalid, format!("no operation: {why}")))?;
    drop(encoded);
    let changes = operation.effect() != FileEffect::Reads;
    let (OperationPlace { root, user }, cancel) = (at, cx.cancel.clone());
    let running = start(user, move || {
        let outcome = engine::run(&root, &operation, &|| cancel.is_cancelled());
        drop(place);
        outcome
    })?;
    let done = tokio::select! {
        biased;
        () = cx.cancel.cancelled(), if !changes => return Err(cancelled()),
        done = running => done,
    };
    let outcome = done.map_err(panicked)?;
    let encoded = engine::encode(&outcome)
        .or_else(|error| engine::encode(&Err::<FileOutcome, _>(error)))
        .map_err(|error| GuestError::new(GuestCode::TooLarge, error.to_string()))?;
    drop(outcome);
    let outcome_bytes = encoded.len() as u64;
    cx.send(Stream::Content, Bytes::from(encoded)).await?;
    Ok(FileOperationDone { outcome_bytes })
}

/// Makes this thread the user's for good.
fn take_on(user: Option<&Identity>) -> Result<(), FileError> {
    let Some(user) = user.filter(|user| user.uid != 0) else { return Ok(()) };
    as_user::give_home(user);
    fs_ids::take_on(user.uid, user.gid, &user.groups).map_err(|error| {
        let message = format!("the user's rights cannot be taken on: {error}");
        FileError::new(FileErrorKind::PermissionDenied, message)
    })
}

type Running<T> = oneshot::Receiver<Result<T, FileError>>;

/// Runs work on a thread of its own with the rights of a user; `None` is root.
///
/// # Errors
/// `Busy`.
pub(super) fn start<T: Send + 'static>(
    user: Option<Identity>,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<Running<T>, GuestError> {
    let (done, running) = oneshot::channel();
    let work = move || {
        let outcome = take_on(user.as_ref()).and_then(|()| work());
        // Whoever cancelled a search does not wait for it.
        let _not_awaited = done.send(outcome);
    };
    let thread = std::thread::Builder::new().name("files".to_owned()).spawn(work);
    thread.map_err(|error| GuestError::new(GuestCode::Busy, format!("no thread: {error}")))?;
    Ok(running)
}

/// Error of work whose thread ended without an outcome.
pub(super) fn panicked(_: oneshot::error::RecvError) -> GuestError {
    GuestError::new(GuestCode::Internal, "the file engine failed on this call")
}

/// Receives the announced bytes.
async fn receive(cx: &RequestContext, announced: u64) -> Result<Vec<u8>, GuestError> {
    let mut received = Vec::new();
    loop {
        let InflowBatch { pieces, ended } = tokio::select! {
            biased;
            () = cx.cancel.cancelled() => return Err(cancelled()),
            taken = cx.inflow.take() => taken,
        };
        let before = received.len();
        pieces.iter().for_each(|piece| received.extend_from_slice(piece.content()));
        let bytes = received.len() as u64;
        if bytes > announced || (ended && bytes < announced) {
            let message = format!("{bytes} bytes of an operation came, {announced} announced");
            return Err(GuestError::new(GuestCode::Invalid, message));
        }
        if ended {
            return Ok(received);
        }
        cx.replenish(received.len() - before).await?;
    }
}
