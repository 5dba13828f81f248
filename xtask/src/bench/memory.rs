//! The daemon's own memory. Its machines are processes of their own and do not
//! count.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::figure::{Figure, Target, round};
use super::{house::BenchDaemon, kit::BenchPrograms};

const WORKSPACES: usize = 10;
const EXECS: usize = 1_000;
/// Requests at a time: a connection may have 256 in work.
const IN_FLIGHT: usize = 250;
/// Between the last deed and the look at what it left: the daemon gives memory
/// back every ten seconds.
pub(super) const REST: Duration = Duration::from_secs(12);
const SAMPLE_EVERY: Duration = Duration::from_millis(10);
/// Memory that the allocator may keep, in MiB, and still count as back to idle.
const MARGIN_MB: f64 = 4.0;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let pid = house.pid();
    std::thread::sleep(REST);
    let idle_kib = rss_kib(pid)?;
    let mut client = house.attach()?;
    let exec = |name: &str| json!({ "workspace_id": name, "command": "true" });
    // The first workspace brings code and tables into memory that all share.
    client.call("workspace_create", &json!({ "name": "first" }))?;
    client.call("exec", &exec("first"))?;
    std::thread::sleep(REST);
    let one_kib = rss_kib(pid)?;
    for number in 0..WORKSPACES {
        let name = format!("idle-{number}");
        client.call("workspace_create", &json!({ "name": name }))?;
        client.call("exec", &exec(&name))?;
    }
    std::thread::sleep(REST);
    let before_kib = rss_kib(pid)?;
    let (peak_kib, took) =
        while_sampling(pid, || client.pipelined("exec", &exec("first"), EXECS, IN_FLIGHT))?;
    std::thread::sleep(REST);
    let after_kib = rss_kib(pid)?;
    let figures = vec![
        Figure {
            name: "daemon_rss_idle",
            unit: "MiB",
            value: mib(idle_kib),
            baseline: None,
            target: Target::AtMost(40.0),
            remark: format!("{} s after the start, with no workspaces", REST.as_secs()),
        },
        Figure {
            name: "rss_per_idle_workspace",
            unit: "KiB",
            value: (before_kib - one_kib) / WORKSPACES as f64,
            baseline: None,
            target: Target::AtMost(300.0),
            remark: format!(
                "{WORKSPACES} sandboxes after a first one, each after one exec; the daemon then \
                 has {} MiB",
                round(mib(before_kib))
            ),
        },
        Figure {
            name: "rss_1000_execs",
            unit: "MiB",
            value: mib(peak_kib),
            baseline: Some(mib(before_kib)),
            target: Target::BackWithin { after: mib(after_kib), margin: MARGIN_MB },
            remark: format!(
                "the peak of {EXECS} execs, {IN_FLIGHT} of which wait for one workspace at a time, \
                 {} KiB each, answered in {:.1} s; the baseline is before, and {} s after it is \
                 {} MiB",
                round((peak_kib - before_kib) / IN_FLIGHT as f64),
                took.as_secs_f64(),
                REST.as_secs(),
                round(mib(after_kib))
            ),
        },
    ];
    Ok(figures.into_iter().filter(|figure| kit.wants(figure.name)).collect())
}

/// Result of an action, and the most memory that the process had meanwhile.
pub(super) fn while_sampling<T>(pid: u32, act: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak: f64 = 0.0;
            while !done.load(Relaxed) {
                peak = peak.max(rss_kib(pid)?);
                std::thread::sleep(SAMPLE_EVERY);
            }
            anyhow::Ok(peak)
        });
        let outcome = act();
        done.store(true, Relaxed);
        let peak = sampler.join().map_err(|_| anyhow::anyhow!("the sampler panicked"))?;
        Ok((peak?, outcome?))
    })
}

/// Resident memory of a process and of all below it.
pub(super) fn rss_of_tree_kib(pid: u32) -> Result<f64> {
    let mut kib = rss_kib(pid)?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(children) = fs::read_to_string(thread?.path().join("children")) else { continue };
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        // A child may have ended meanwhile, and then has no memory.
        kib += children.flat_map(rss_of_tree_kib).sum::<f64>();
    }
    Ok(kib)
}

/// Resident memory of a process.
pub(super) fn rss_kib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(number.context("a process has a size")?.trim().parse()?)
}

fn mib(kib: f64) -> f64 {
    kib / 1024.0
}
