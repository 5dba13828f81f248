//! The guest itself: configuration, usage, shutdown.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use hivekeep_protocol::{
    Configure, Configured, GuestCode, GuestError, Shutdown, ShuttingDown, Usage, UsageReport,
};
use rustix::time::{ClockId, Timespec};

use crate::agent::Agent;
use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use crate::settings::{GuestKind, SHUTDOWN_FILE};
use crate::sys;

/// A clock that is off by less is left alone.
const CLOCK_TOLERANCE_MS: u64 = 500;
/// Longest time that a shutdown waits between SIGTERM and SIGKILL.
pub const MAX_GRACE: Duration = Duration::from_secs(60);

/// Answers [`Configure`] with what holds afterwards. In a sandbox neither clock nor
/// entropy nor disk are its own: nothing of that is tried, and the answer says so.
///
/// # Errors
/// `Invalid` for a host name that is no DNS label.
pub async fn configure(cx: &RequestContext, asked: Configure) -> Result<Configured, GuestError> {
    if !is_label(&asked.hostname) {
        let message = format!("{:?} is not a host name", asked.hostname);
        return Err(GuestError::new(GuestCode::Invalid, message));
    }
    let place = cx.agent.settings.place;
    off_thread(move || Ok(apply(place, &asked))).await
}

pub(crate) fn is_label(name: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn apply(place: GuestKind, asked: &Configure) -> Configured {
    let mut done = Configured {
        hostname: String::new(),
        clock_step_ms: 0,
        entropy_bytes: 0,
        root_total_bytes: 0,
        grow_error: None,
    };
    match place {
        GuestKind::Vm => {
            if let Err(error) = rustix::system::sethostname(asked.hostname.as_bytes()) {
                crate::say!("configure: host name: {error}");
            }
            let hosts = std::path::Path::new("/etc/hosts");
            if let Err(error) = crate::identity::name_in_hosts(hosts, &asked.hostname) {
                crate::say!("configure: /etc/hosts: {error}");
            }
            let stepped = asked.clock_unix_ms.map(|host| step_clock(host, CLOCK_TOLERANCE_MS));
            done.clock_step_ms = stepped.unwrap_or(Ok(0)).unwrap_or_else(|error| {
                crate::say!("configure: clock: {error}");
                0
            });
            done.entropy_bytes = sys::add_entropy(&asked.entropy).unwrap_or_else(|error| {
                crate::say!("configure: entropy: {error}");
                0
            });
            if asked.grow_root {
                done.grow_error = grow_root().err().map(|error| error.to_string());
            }
        }
        GuestKind::Sandbox if asked.grow_root => {
            done.grow_error = Some("a sandbox has no disk of its own".into());
        }
        GuestKind::Sandbox => {}
    }
    done.hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    done.root_total_bytes = rustix::fs::statvfs("/").map_or(0, |fs| fs.f_blocks * fs.f_frsize);
    done
}

/// Sets the clock if it is off by more than the tolerance; returns by how much it stepped.
pub(crate) fn step_clock(host_unix_ms: u64, tolerance_ms: u64) -> io::Result<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let host_ms = i64::try_from(host_unix_ms).unwrap_or(i64::MAX);
    let step = host_ms.saturating_sub(now_ms);
    if step.unsigned_abs() <= tolerance_ms {
        return Ok(0);
    }
    let time = Timespec { tv_sec: host_ms / 1000, tv_nsec: (host_ms % 1000) * 1_000_000 };
    rustix::time::clock_settime(ClockId::Realtime, time)?;
    Ok(step)
}

/// Grows the root file system to its device. Nothing to grow is success.
fn grow_root() -> io::Result<()> {
    let root = File::open("/")?;
    let dev = root.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let sectors = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size"))?;
    let sectors: u64 = sectors.trim().parse().map_err(io::Error::other)?;
    let fs = rustix::fs::statvfs("/")?;
    let blocks = sectors * 512 / fs.f_bsize;
    // ext4 keeps part of its blocks for itself, so growing is asked for whenever
    // the sizes differ; asking for the present size is no error.
    sys::resize_ext4(root.as_fd(), blocks)
}

/// Answers [`Usage`].
///
/// # Errors
/// When the kernel does not say.
pub async fn usage(cx: &RequestContext, _asked: Usage) -> Result<UsageReport, GuestError> {
    let agent = cx.agent.clone();
    off_thread(move || measure(&agent)).await.map_err(|error| io_error(&error, "usage"))
}

fn measure(agent: &Agent) -> io::Result<UsageReport> {
    let fs = rustix::fs::statvfs("/")?;
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let uptime = match agent.settings.place {
        GuestKind::Vm => {
            let now = rustix::time::clock_gettime(ClockId::Boottime);
            let millis = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
            u64::try_from(millis).unwrap_or(0)
        }
        GuestKind::Sandbox => {
            agent.identity.started.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
        }
    };
    let is_pid = |name: std::ffi::OsString| {
        name.to_str().is_some_and(|name| name.bytes().all(|c| c.is_ascii_digit()))
    };
    let processes = std::fs::read_dir("/proc")?.flatten().filter(|e| is_pid(e.file_name())).count();
    Ok(UsageReport {
        uptime_ms: uptime,
        root_total_bytes: fs.f_blocks * fs.f_frsize,
        root_used_bytes: fs.f_blocks.saturating_sub(fs.f_bfree) * fs.f_frsize,
        memory_total_bytes: kib("MemTotal:").unwrap_or(0) * 1024,
        memory_available_bytes: kib("MemAvailable:").unwrap_or(0) * 1024,
        processes: processes.try_into().unwrap_or(u32::MAX),
    })
}

/// Answers [`Shutdown`]; once that is written the daemon ends and its init ends the
/// rest. From now on the jobs that end are marked interrupted.
///
/// # Errors
/// When the order cannot be left for init.
pub async fn shutdown(cx: &RequestContext, asked: &Shutdown) -> Result<ShuttingDown, GuestError> {
    let grace_ms = asked.grace_ms.min(MAX_GRACE.as_millis() as u64);
    let order = cx.agent.settings.run_dir.join(SHUTDOWN_FILE);
    let written = off_thread(move || std::fs::write(order, grace_ms.to_string())).await;
    written.map_err(|error| io_error(&error, "the shutdown order"))?;
    Ok(ShuttingDown)
}

/// The grace that a shutdown order left in the run folder asks for.
pub fn ordered_grace(run_dir: &std::path::Path) -> Duration {
    let order = std::fs::read_to_string(run_dir.join(SHUTDOWN_FILE)).unwrap_or_default();
    Duration::from_millis(order.trim().parse().unwrap_or(0)).min(MAX_GRACE)
}

#[cfg(test)]
mod tests {
    use super::is_label;

    #[test]
    fn only_dns_labels_are_host_names() {
        assert!(is_label("web-1") && is_label("A"));
        for bad in ["", "-a", "a-", "a.b", "a b", "ü", &"x".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
