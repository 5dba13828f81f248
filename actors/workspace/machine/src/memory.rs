//! Memory usage of a machine.

use std::fs;

use serde::Serialize;

use super::handle::MachineHandle;

/// Usage summed over the machine's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Memory {
    /// Resident bytes, shared pages counted in full.
    pub rss_bytes: u64,
    /// Resident bytes, shared pages counted by share; `None` where the kernel does not say.
    pub pss_bytes: Option<u64>,
}

impl Memory {
    /// Usage of the machine and its helpers. `processes` are their pids.
    pub(super) fn of(processes: &[i32]) -> Self {
        let mut total = Self { rss_bytes: 0, pss_bytes: Some(0) };
        for pid in processes {
            let Some(one) = of_process(*pid) else { continue };
            total.rss_bytes += one.rss_bytes;
            total.pss_bytes = total.pss_bytes.zip(one.pss_bytes).map(|(a, b)| a + b);
        }
        total
    }
}

fn of_process(pid: i32) -> Option<Memory> {
    if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
        };
        return Some(Memory { rss_bytes: field("Rss:")?, pss_bytes: field("Pss:") });
    }
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = rustix::param::page_size() as u64;
    Some(Memory { rss_bytes: pages * page_bytes, pss_bytes: None })
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
        let memory = Memory::of(&[std::process::id() as i32]);
        assert!(memory.rss_bytes > 500_000, "{memory:?}");
        assert!(memory.pss_bytes.unwrap() <= memory.rss_bytes);
        assert_eq!(Memory::of(&[-1]).rss_bytes, 0);
    }
}
