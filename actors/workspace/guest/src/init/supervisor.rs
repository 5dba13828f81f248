//! PID 1's work after the boot, in a VM and in a sandbox: keep the agent running, reap every orphan, and end
//! everything on an order.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions};

use crate::agent::SHUTDOWN_STATUS;
use crate::sys::signals::{self, kill_everyone};
use crate::sys::spawn::{Program, Stdio, spawn};

/// Orders to stop: what busybox's and util-linux's halt, poweroff and reboot send.
const STOP: [i32; 5] = [libc::SIGTERM, libc::SIGINT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPWR];
/// Grace of a stop that was asked for by signal.
const SIGNAL_GRACE: Duration = Duration::from_secs(5);
/// Longest wait for what SIGKILL was sent to.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// An agent that lived this long had started well.
const STEADY: Duration = Duration::from_secs(10);

/// The agent's command line: `exe` is this program, `words` its options.
pub fn agent_program(exe: &CStr, words: &[CString]) -> Program {
    let mut argv = vec![c"hivekeep-guest".to_owned(), c"agent".to_owned()];
    argv.extend_from_slice(words);
    Program {
        path: exe.to_owned(),
        argv,
        env: vec![c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
        workdirs: vec![c"/".to_owned()],
        max_open_files: None,
    }
}

/// When to start the agent again.
#[derive(Debug)]
struct Backoff {
    quick_deaths: u32,
}

impl Backoff {
    /// 0.1 s after the first quick death, doubled by each further one up to 12.8 s.
    /// There is no giving up: a guest without its agent is of no use.
    fn pause_after(&mut self, lived: Duration) -> Duration {
        if lived >= STEADY {
            self.quick_deaths = 0;
        }
        let pause = Duration::from_millis(100) * 2_u32.pow(self.quick_deaths.min(7));
        self.quick_deaths = self.quick_deaths.saturating_add(1);
        pause
    }
}

/// Keeps the agent running until a shutdown is ordered, by the host through the
/// agent or by a signal. Returns the grace between SIGTERM and SIGKILL.
///
/// `beside` may start threads: they hold back the signals that are waited for here.
pub fn run(agent: &Program, run_dir: &Path, beside: impl FnOnce()) -> Duration {
    let mut all = vec![libc::SIGCHLD, libc::SIGHUP];
    all.extend(STOP);
    signals::block(&all);
    beside();
    let mut backoff = Backoff { quick_deaths: 0 };
    let (mut running, mut next_start) = (None, Instant::now());
    loop {
        if running.is_none() && Instant::now() >= next_start {
            running = match start(agent) {
                Ok(pid) => Some((pid, Instant::now())),
                Err(error) => {
                    crate::say!("init: cannot start the agent: {error}");
                    next_start = Instant::now() + backoff.pause_after(Duration::ZERO);
                    None
                }
            };
        }
        let idle = Duration::from_secs(3600);
        let wait = if running.is_some() {
            idle
        } else {
            next_start.saturating_duration_since(Instant::now())
        };
        if signals::wait_for(&all, wait).is_some_and(|signal| STOP.contains(&signal)) {
            crate::say!("init: told to stop by a signal");
            let _ = std::fs::write(run_dir.join(crate::settings::SHUTDOWN_FILE), "");
            return SIGNAL_GRACE;
        }
        let ended = reap();
        let Some((pid, since)) = running else { continue };
        let Some(status) = ended.get(&pid) else { continue };
        if *status == Some(i32::from(SHUTDOWN_STATUS)) {
            return crate::system::ordered_grace(run_dir);
        }
        let pause = backoff.pause_after(since.elapsed());
        let how = status.map_or("by a signal".into(), |status| format!("with status {status}"));
        crate::say!("init: the agent ended {how}; next start in {} ms", pause.as_millis());
        (running, next_start) = (None, Instant::now() + pause);
    }
}

fn start(agent: &Program) -> io::Result<Pid> {
    let null = std::fs::File::open("/dev/null")?;
    let stdio = Stdio::of(null.as_fd(), rustix::stdio::stdout(), rustix::stdio::stderr());
    spawn(agent, &stdio).map(|started| started.pid).map_err(io::Error::other)
}

/// Collects every child that has ended, with its exit status or `None` for a signal.
fn reap() -> HashMap<Pid, Option<i32>> {
    let mut ended = HashMap::new();
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        ended.insert(pid, status.exit_status());
    }
    ended
}

/// Whether any child is left after reaping.
fn any_left() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_none) => return false,
        }
    }
}

/// SIGTERM to everything, SIGKILL to what is left after `grace`.
pub fn end_everything(grace: Duration) {
    for (signal, wait) in [(libc::SIGTERM, grace), (libc::SIGKILL, KILL_WAIT)] {
        kill_everyone(signal);
        let deadline = Instant::now() + wait;
        while any_left() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            signals::wait_for(&[libc::SIGCHLD], left.min(Duration::from_millis(100)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_deaths_wait_longer_and_a_steady_run_forgives() {
        let mut backoff = Backoff { quick_deaths: 0 };
        let mut pause =
            |lived_secs| backoff.pause_after(Duration::from_secs(lived_secs)).as_millis();
        assert_eq!([pause(0), pause(0), pause(9)], [100, 200, 400]);
        assert_eq!([pause(60), pause(0)], [100, 200]);
        assert_eq!((0..50).map(|_| pause(0)).max(), Some(12_800));
    }
}
