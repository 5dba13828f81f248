//! Holding the disk still for a snapshot of the disk alone.
//!
//! A frozen root file system stops every writer, in the end this daemon too. So it is frozen and thawed by a
//! thread that does nothing else, and that thaws when its time is up: a host that is lost, or a daemon that
//! cannot answer, never leaves a guest frozen. A daemon that starts thaws what a killed one left.

use std::fs::File;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hivekeep_protocol::{GuestCode, GuestError, Quiesce, Quiesced, Thawed};
use tokio::sync::oneshot;

use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use crate::settings::GuestKind;
use crate::sys;

const MAX_FREEZE_MS: u32 = 60_000;
const THAW_WAIT: Duration = Duration::from_secs(10);

/// Answers [`Quiesce`].
///
/// # Errors
/// `Invalid` for too long a time, `Unsupported` where the disk is not the guest's own, `Busy`
/// while it is frozen, or as syncfs(2) and FIFREEZE.
pub async fn quiesce(cx: &RequestContext, asked: &Quiesce) -> Result<Quiesced, GuestError> {
    let refuse = |code, text: &str| Err(GuestError::new(code, text));
    if asked.freeze_ms.is_some_and(|ms| ms > MAX_FREEZE_MS) {
        return refuse(GuestCode::Invalid, "a disk is frozen for at most a minute");
    }
    if asked.freeze_ms.is_some() && cx.agent.settings.place == GuestKind::Sandbox {
        return refuse(GuestCode::Unsupported, "a sandbox has no disk of its own");
    }
    let sync = || Ok(rustix::fs::syncfs(File::open("/")?)?);
    off_thread(sync).await.map_err(|error: io::Error| io_error(&error, "sync"))?;
    let Some(freeze_ms) = asked.freeze_ms else { return Ok(Quiesced { frozen: false }) };
    let (orders, ordered) = mpsc::channel();
    let ((tell, frozen), alive) = (oneshot::channel(), Arc::new(()));
    {
        let mut thread = cx.agent.freezer.thread();
        if thread.as_ref().is_some_and(|thread| thread.alive.strong_count() > 0) {
            return refuse(GuestCode::Busy, "the disk is frozen already");
        }
        *thread = Some(Thread { orders, alive: Arc::downgrade(&alive) });
    }
    let hold = Duration::from_millis(freeze_ms.into());
    std::thread::Builder::new()
        .name("freezer".into())
        .spawn(move || {
            hold_still(hold, tell, &ordered);
            drop(alive);
        })
        .map_err(|error| io_error(&error, "the freezing thread"))?;
    match frozen.await {
        Ok(Ok(())) => Ok(Quiesced { frozen: true }),
        Ok(Err(error)) => Err(io_error(&error, "freeze")),
        Err(_) => refuse(GuestCode::Internal, "the freezing thread was lost"),
    }
}

fn hold_still(
    hold: Duration,
    tell: oneshot::Sender<io::Result<()>>,
    orders: &mpsc::Receiver<Order>,
) {
    let frozen = File::open("/").and_then(|root| sys::freeze(&root).map(|()| root));
    let root = match frozen {
        Ok(root) => root,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let order = match tell.send(Ok(())) {
        Ok(()) => orders.recv_timeout(hold),
        // Nobody knows that it is frozen.
        Err(_) => Err(RecvTimeoutError::Disconnected),
    };
    let thawed = sys::thaw(&root);
    if let Ok(order) = order {
        let _ = order.send(thawed.is_ok());
    } else {
        crate::say!("freeze: thawed without an order");
    }
}

/// Answers [`hivekeep_protocol::Thaw`].
///
/// # Errors
/// `Internal` when the thread does not answer.
pub async fn thaw(cx: &RequestContext) -> Result<Thawed, GuestError> {
    let (order, answer) = oneshot::channel();
    let thread = cx.agent.freezer.thread().take();
    let ordered = thread.is_some_and(|thread| thread.orders.send(order).is_ok());
    if !ordered {
        return Ok(Thawed { was_frozen: false });
    }
    match tokio::time::timeout(THAW_WAIT, answer).await {
        Ok(answer) => Ok(Thawed { was_frozen: answer.unwrap_or(false) }),
        Err(_) => Err(GuestError::new(GuestCode::Internal, "the disk does not thaw")),
    }
}

/// Asks a freezing thread to thaw; it answers whether the disk was frozen until then.
type Order = oneshot::Sender<bool>;

/// The thread that holds the disk, if one does.
#[derive(Debug, Default)]
pub struct Freezer {
    /// Held for an exchange, never across an await.
    thread: Mutex<Option<Thread>>,
}

#[derive(Debug)]
struct Thread {
    orders: mpsc::Sender<Order>,
    /// The thread holds the other end as long as it has work.
    alive: Weak<()>,
}

impl Freezer {
    /// Thaws what an earlier daemon may have left frozen.
    pub fn new() -> Self {
        if let Ok(root) = File::open("/") {
            // An error says that it is not frozen, or not ours to thaw.
            let _ = sys::thaw(&root);
        }
        Self::default()
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<Thread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
