//! Memory and processor time that a machine takes.

use std::{fs, time::Duration};

use serde::Serialize;

use super::handle::MachineHandle;

/// Usage summed over the machine's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MachineUsage {
    /// Resident bytes, shared pages counted in full.
    pub rss_bytes: u64,
    /// Resident bytes, shared pages counted by share; `None` where the kernel does not say.
    pub pss_bytes: Option<u64>,
    /// Processor time since the machine's start, also of processes that have ended.
    pub cpu: Duration,
}

impl MachineUsage {
    /// Usage of the machine and its helpers. `processes` are their pids.
    pub(super) fn of(processes: &[i32]) -> Self {
        let mut total = Self { pss_bytes: Some(0), ..Self::default() };
        for pid in processes {
            let Some(one) = of_process(*pid) else { continue };
            total.rss_bytes += one.rss_bytes;
            total.pss_bytes = total.pss_bytes.zip(one.pss_bytes).map(|(a, b)| a + b);
            total.cpu += one.cpu;
        }
        total
    }
}

fn of_process(pid: i32) -> Option<MachineUsage> {
    let cpu = cpu_of(pid)?;
    if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
        };
        return Some(MachineUsage { rss_bytes: field("Rss:")?, pss_bytes: field("Pss:"), cpu });
    }
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = rustix::param::page_size() as u64;
    Some(MachineUsage { rss_bytes: pages * page_bytes, pss_bytes: None, cpu })
}

/// Processor time of a process and of its children that it has waited for.
fn cpu_of(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may have any character; the third field comes behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> =
        fields.split_ascii_whitespace().skip(11).take(4).flat_map(str::parse).collect();
    let millis = ticks.iter().sum::<u64>() * 1000 / rustix::param::clock_ticks_per_second();
    (ticks.len() == 4).then(|| Duration::from_millis(millis))
}

/// Pids of the machine, its helpers, and for a sandbox everything in its pid namespace.
pub(super) fn processes(handle: &MachineHandle) -> Vec<i32> {
    let mut pids: Vec<i32> = std::iter::once(&handle.process)
        .chain(&handle.helpers)
        .filter(|process| process.verify().is_ok())
        .map(|process| process.pid)
        .collect();
    if handle.isolation == super::Isolation::Sandbox && handle.process.verify().is_ok() {
        let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace(handle.process.pid);
        for pid in all_pids() {
            if own.is_some() && namespace(pid) == own && !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    pids
}

/// Pids of all processes of the host.
pub(super) fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_is_plausible() {
        let memory = MachineUsage::of(&[std::process::id() as i32]);
        assert!(memory.rss_bytes > 500_000, "{memory:?}");
        assert!(memory.pss_bytes.unwrap() <= memory.rss_bytes);
        assert_eq!(MachineUsage::of(&[-1]).rss_bytes, 0);
    }

    #[test]
    fn work_of_children_that_were_waited_for_counts() {
        let us = std::process::id() as i32;
        let before = cpu_of(us).unwrap();
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", work]).status().unwrap().success());
        assert!(cpu_of(us).unwrap() > before);
        assert_eq!(cpu_of(-1), None);
    }
}
