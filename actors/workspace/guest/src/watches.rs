//! Watches of folders: a thread each, with the rights of its user, that follows the kernel's notices.
//!
//! ```text
//!  inotify ─► Tree (which folder, which name) ─► ChangeRing ─► WatchRead, which waits
//! ```
//! The ring keeps the last changes; a reader that comes too late learns that some were dropped.

mod ring;
mod tree;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hivekeep_protocol::{
    GuestCode, GuestError, WatchChanges, WatchEnd, WatchEnded, WatchRead, WatchStart, WatchStarted,
    limits,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use crate::as_user::{self, Identity};
use crate::files::{io_error, off_thread};
use crate::jobs::dir::unix_ms;
use crate::session::call::{RequestContext, cancelled};
use crate::sys::fs_ids;
use ring::ChangeRing;
use tree::{Tree, TreeNews};

/// Interval between two checks whether anybody reads a watch, in seconds.
const IDLE_LOOK_SECS: i64 = 30;
/// Ids of one start of the daemon begin at its time, so that none is given twice.
const IDS_EACH_MS: u64 = 1000;

/// Watches of this daemon, by their ids.
#[derive(Debug, Default, Clone)]
pub(crate) struct Watches(Arc<Mutex<LiveWatches>>);

#[derive(Debug, Default)]
struct LiveWatches {
    last: u64,
    by_id: HashMap<u64, Arc<Watch>>,
}

/// Watch of a folder.
#[derive(Debug)]
struct Watch {
    ring: Mutex<ChangeRing>,
    news: Notify,
    /// Event descriptor; a write to it ends the watch.
    stop: OwnedFd,
}

impl Watches {
    fn live(&self) -> MutexGuard<'_, LiveWatches> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watch, if there are not too many.
    fn add(&self) -> Result<(u64, Arc<Watch>), GuestError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = stop.map_err(|error| io_error(&error.into(), "a watch"))?;
        let mut live = self.live();
        if live.by_id.len() >= limits::MAX_WATCHES {
            let message = format!("{} watches are there; end some first", limits::MAX_WATCHES);
            return Err(GuestError::new(GuestCode::Busy, message));
        }
        live.last = (live.last + 1).max(unix_ms() * IDS_EACH_MS);
        let (id, ring) = (live.last, Mutex::new(ChangeRing::new(Instant::now())));
        let watch = Arc::new(Watch { ring, news: Notify::new(), stop });
        live.by_id.insert(id, watch.clone());
        Ok((id, watch))
    }

    fn remove(&self, id: u64) -> Option<Arc<Watch>> {
        self.live().by_id.remove(&id)
    }

    fn find(&self, id: u64) -> Result<Arc<Watch>, GuestError> {
        self.live().by_id.get(&id).cloned().ok_or_else(|| {
            GuestError::new(GuestCode::UnknownWatch, format!("there is no watch {id}"))
        })
    }
}

/// Answers [`WatchStart`].
///
/// # Errors
/// `UnknownUser`; `Busy` with as many watches as there may be; `TooLarge` for a tree of too many folders;
/// `NotFound`, `NotADirectory`, `PermissionDenied`, `Io`.
pub async fn start(cx: &RequestContext, asked: WatchStart) -> Result<WatchStarted, GuestError> {
    let WatchStart { path, recursive, user } = asked;
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return Err(GuestError::new(GuestCode::Invalid, "the path of a watch is not absolute"));
    }
    let user = match user {
        Some(user) => Some(off_thread(move || as_user::find(&user)).await?),
        None => None,
    };
    let watches = cx.agent.watches.clone();
    let (id, watch) = watches.add()?;
    let (begun, beginning) = oneshot::channel();
    let work = {
        let watches = watches.clone();
        move || {
            match take_on(user.as_ref()).and_then(|()| Tree::begin(path, recursive)) {
                Ok(tree) => {
                    // A watch whose caller gave up ends because nobody reads it.
                    let _not_awaited = begun.send(Ok(()));
                    watch.follow(tree);
                }
                Err(error) => drop(begun.send(Err(error))),
            }
            watches.remove(id);
        }
    };
    let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(work);
    if let Err(error) = thread {
        watches.remove(id);
        return Err(GuestError::new(GuestCode::Busy, format!("no thread: {error}")));
    }
    let failed = |_| GuestError::new(GuestCode::Internal, "the watch failed");
    beginning.await.map_err(failed)??;
    Ok(WatchStarted { watch: id })
}

/// Makes this thread the user's for good.
fn take_on(user: Option<&Identity>) -> Result<(), GuestError> {
    let Some(user) = user.filter(|user| user.uid != 0) else { return Ok(()) };
    let taken = fs_ids::take_on(user.uid, user.gid, &user.groups);
    taken.map_err(|error| io_error(&error, "the user's rights"))
}

/// Answers [`WatchRead`].
///
/// # Errors
/// `UnknownWatch`, `Cancelled`.
pub async fn read(cx: &RequestContext, asked: WatchRead) -> Result<WatchChanges, GuestError> {
    let watch = cx.agent.watches.find(asked.watch)?;
    let wait = Duration::from_millis(asked.wait_ms.min(limits::MAX_WAIT_MS));
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let news = watch.news.notified();
        tokio::pin!(news);
        // Enabled before the look, so that no news is missed.
        news.as_mut().enable();
        let read = watch.ring().read(asked.after, Instant::now());
        if read.lost || !read.changes.is_empty() || tokio::time::Instant::now() >= deadline {
            return Ok(read);
        }
        tokio::select! {
            () = news => {}
            () = sleep_until(deadline) => {}
            () = cx.cancel.cancelled() => return Err(cancelled()),
        }
        // Fails if the watch was ended meanwhile.
        cx.agent.watches.find(asked.watch)?;
    }
}

/// Answers [`WatchEnd`].
pub fn end(cx: &RequestContext, asked: &WatchEnd) -> WatchEnded {
    let ended = cx.agent.watches.remove(asked.watch);
    if let Some(watch) = &ended {
        // The counter of the event descriptor cannot be full.
        let _ = rustix::io::write(&watch.stop, &1_u64.to_ne_bytes());
        watch.news.notify_waiters();
    }
    WatchEnded { existed: ended.is_some() }
}

impl Watch {
    fn ring(&self) -> MutexGuard<'_, ChangeRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the changes of the tree until the watch is ended or nobody reads it any more.
    fn follow(&self, mut tree: Tree) {
        let patience = Timespec { tv_sec: IDLE_LOOK_SECS, tv_nsec: 0 };
        loop {
            let mut fds =
                [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&tree, PollFlags::IN)];
            match poll(&mut fds, Some(&patience)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return crate::say!("a watch: {}", io::Error::from(error)),
            }
            let (stopped, told) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if stopped || self.ring().is_idle(Instant::now()) {
                return self.news.notify_waiters();
            }
            if told {
                tree.take(&mut |news| match news {
                    TreeNews::Change(kind, path) => self.ring().push(kind, path),
                    TreeNews::Gap => self.ring().gap(),
                });
                self.news.notify_waiters();
            }
        }
    }
}
