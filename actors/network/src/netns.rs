//! Network namespaces: those of our own, without a name, so that nothing is left of them when the
//! process ends, however it ends; and the settings of single interfaces in the calling thread's.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::thread::UnshareFlags;

use crate::Error;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and a thread that lives in it.
///
/// What a job spawns, threads and processes, is in the namespace too. The namespace ends with
/// the thread, the processes and the descriptors that hold it.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<mpsc::SyncSender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
    fd: OwnedFd,
}

impl Namespace {
    /// A new namespace, empty but for a loopback interface that is down.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] without CAP_SYS_ADMIN.
    pub fn new() -> Result<Self, Error> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(1);
        let (opened, fd) = mpsc::sync_channel(1);
        let body = move || {
            let entered = enter();
            let ok = entered.is_ok();
            // The receiver waits below.
            let _ = opened.send(entered);
            if ok {
                queue.iter().for_each(|job| job());
            }
        };
        let thread = thread::Builder::new().name("netns".into()).spawn(body);
        let thread = thread.map_err(Error::io("start a thread"))?;
        let fd = fd.recv().expect("the thread answers before it ends");
        let fd = fd.map_err(Error::io_with("CAP_SYS_ADMIN", "make a network namespace"))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), fd })
    }

    /// Runs a closure in the namespace and waits for it. Jobs of one namespace run one after
    /// another. Blocks: not for the threads of an asynchronous runtime.
    ///
    /// # Panics
    /// When the closure does.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::sync_channel(1);
        let job = move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // The caller waits below.
            let _ = done.send(outcome);
        };
        let jobs = self.jobs.as_ref().expect("taken only by drop");
        jobs.send(Box::new(job)).expect("the thread outlives its senders");
        match result.recv().expect("a job answers even when it panics") {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// [`Namespace::run`] for a future, on a runtime of its own.
    pub fn block_on<T, F>(&self, make: impl FnOnce() -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        self.run(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime takes some descriptors only").block_on(make())
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread has caught the panics of its jobs.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into a new namespace.
fn enter() -> io::Result<OwnedFd> {
    // SAFETY: only the network namespace of this thread changes, which was just started and has
    // no sockets; descriptors, memory and user ids stay shared as std expects.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?)
}

/// True when the calling thread may change the network of its namespace.
pub(crate) fn net_admin() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::NET_ADMIN))
}

/// Sets a value where it differs. Reading is always allowed, writing often is not.
pub(crate) fn set(interface: &str, key: &str, value: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/{key}");
    write(&path, value)
}

/// Sets how neighbours are found on an interface.
pub(crate) fn set_neighbours(interface: &str, key: &str, value: &str) -> Result<(), Error> {
    write(&format!("/proc/sys/net/ipv4/neigh/{interface}/{key}"), value)
}

/// True when a switch is on.
pub(crate) fn is_on(interface: &str, key: &str) -> Result<bool, Error> {
    let path = format!("/proc/sys/net/ipv4/conf/{interface}/{key}");
    let text = fs::read_to_string(&path).map_err(Error::io(format!("read {path}")))?;
    Ok(text.trim() != "0")
}

/// No IPv6 on an interface. Nothing to do where the kernel has none.
pub(crate) fn without_ipv6(interface: &str) -> Result<(), Error> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match write(&path, "1") {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn write(path: &str, value: &str) -> Result<(), Error> {
    let now = fs::read_to_string(path).map_err(Error::io(format!("read {path}")))?;
    match now.trim() == value {
        true => Ok(()),
        false => fs::write(path, value).map_err(Error::io(format!("write {value} to {path}"))),
    }
}
