//! Waiting for news of a job: a long poll that the kernel's notices of the job's folder end.
//!
//! One inotify instance is there for all jobs, from the first wait on, so that waits cost a guest no more
//! than that. Where there can be none, a wait looks from time to time.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hivekeep_protocol::{GuestError, JobPoll, JobReport, JobWait, limits};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::dir::JobDir;
use super::folder::disk;
use super::process;
use crate::files::off_thread;
use crate::jobs;
use crate::session::call::{RequestContext, cancelled};
use crate::sys::descriptors;

/// Between two looks where the kernel gives no notices.
const LOOK: Duration = Duration::from_millis(25);
/// Bytes of notices that are read at once.
const NOTICES_BYTES: usize = 4096;

/// Answers [`JobWait`].
///
/// # Errors
/// `UnknownJob`, `Cancelled`, or disk errors.
pub async fn wait(cx: &RequestContext, asked: JobWait) -> Result<JobReport, GuestError> {
    let JobWait { poll, wait_ms } = asked;
    let job = cx.agent.jobs.find(&poll.job_id)?;
    let deadline = Instant::now() + Duration::from_millis(wait_ms.min(limits::MAX_WAIT_MS));
    process::note_read(&job, &poll).await;
    let listener = cx.agent.news.listen(job.outputs());
    let ended = jobs::ended(&job);
    tokio::pin!(ended);
    let mut shim_lives = true;
    loop {
        let changed = listener.changed();
        tokio::pin!(changed);
        // Before the look, so that nothing falls between.
        changed.as_mut().enable();
        let report = report(&job, &poll).await?;
        if is_news(&report, &poll) || Instant::now() >= deadline {
            return Ok(report);
        }
        let unheard = !listener.hears() || !shim_lives;
        tokio::select! {
            () = changed => {}
            _ = &mut ended, if shim_lives => shim_lives = false,
            () = sleep(LOOK), if unheard => {}
            () = sleep_until(deadline) => {}
            () = cx.cancel.cancelled() => return Err(cancelled()),
        }
    }
}

async fn report(job: &JobDir, poll: &JobPoll) -> Result<JobReport, GuestError> {
    let (job, poll) = (job.clone(), poll.clone());
    let report = move || job.report(poll.stdout_from, poll.stderr_from, poll.max_bytes);
    off_thread(report).await.map_err(|error| disk(&error))
}

/// True if the report has something that the caller does not have.
fn is_news(report: &JobReport, poll: &JobPoll) -> bool {
    report.summary.exit.is_some()
        || report.summary.interrupted
        || report.stdout.kept_bytes > poll.stdout_from
        || report.stderr.kept_bytes > poll.stderr_from
}

/// Notices of what is written in the folders of jobs.
#[derive(Debug, Default)]
pub(crate) struct OutputNews(Mutex<Option<Arc<Notices>>>);

#[derive(Debug)]
struct Notices {
    fd: AsyncFd<OwnedFd>,
    /// Held while a watch is added or removed, and for a look.
    folders: Mutex<HashMap<i32, Listened>>,
}

#[derive(Debug, Default)]
struct Listened {
    changed: Arc<Notify>,
    listeners: usize,
}

/// A wait's part in the notices of one folder.
struct Listener {
    changed: Arc<Notify>,
    watch: Option<(Arc<Notices>, i32)>,
}

impl OutputNews {
    /// Listens to a folder. Must be called within the runtime.
    fn listen(&self, folder: &Path) -> Listener {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.is_none() {
            *notices = Notices::begin().ok();
        }
        let listened = notices.as_ref().and_then(|notices| notices.listen(folder).ok());
        listened.unwrap_or_else(|| Listener { changed: Arc::default(), watch: None })
    }
}

impl Notices {
    fn begin() -> io::Result<Arc<Self>> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let notices = Arc::new(Self { fd: descriptors::readable(fd)?, folders: Mutex::default() });
        tokio::spawn(notices.clone().spread());
        Ok(notices)
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<i32, Listened>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: &Arc<Self>, folder: &Path) -> io::Result<Listener> {
        let mut folders = self.folders();
        let what = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let watch = inotify::add_watch(self.fd.get_ref(), folder, what | WatchFlags::ONLYDIR)?;
        let listened = folders.entry(watch).or_default();
        listened.listeners += 1;
        Ok(Listener { changed: listened.changed.clone(), watch: Some((self.clone(), watch)) })
    }

    /// Wakes the listeners of what has changed, for ever.
    async fn spread(self: Arc<Self>) {
        while let Ok(mut ready) = self.fd.readable().await {
            let mut buffer = [MaybeUninit::uninit(); NOTICES_BYTES];
            let mut reader = Reader::new(self.fd.get_ref(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(notice) => self.wake(notice.wd(), notice.events()),
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
            ready.clear_ready();
        }
    }

    fn wake(&self, watch: i32, events: ReadFlags) {
        let folders = self.folders();
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            folders.values().for_each(|folder| folder.changed.notify_waiters());
        } else if let Some(folder) = folders.get(&watch) {
            folder.changed.notify_waiters();
        }
    }
}

impl Listener {
    fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// True if the kernel reports changes.
    fn hears(&self) -> bool {
        self.watch.is_some()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some((notices, watch)) = &self.watch else { return };
        let mut folders = notices.folders();
        let Some(listened) = folders.get_mut(watch) else { return };
        listened.listeners -= 1;
        if listened.listeners == 0 {
            folders.remove(watch);
            // The folder may be gone, and its watch with it.
            let _ = inotify::remove_watch(notices.fd.get_ref(), *watch);
        }
    }
}
