//! Limit files of the two hierarchies.

use std::fs;
use std::io;
use std::path::Path;

use super::{CgroupLimits, Controller};
use crate::facts::CgroupVersion;

/// Accounting period of the scheduler; the kernel's default.
const PERIOD_US: u64 = 100_000;

/// Writes the limit and reads it back; returns the enforcing setting.
pub(super) fn set(
    version: CgroupVersion,
    controller: Controller,
    dir: &Path,
    limits: &CgroupLimits,
) -> io::Result<String> {
    let quota_us = u64::from(limits.vcpus) * PERIOD_US;
    let (word, file, value) = match (version, controller) {
        (CgroupVersion::V2, Controller::Memory) => {
            // Otherwise the group would swap instead of reaching its limit; the file is absent
            // without swap.
            let _ = fs::write(dir.join("memory.swap.max"), "0");
            let most = limits.memory_bytes.map_or_else(|| "max".into(), |most| most.to_string());
            ("cgroup v2", "memory.max", most)
        }
        (CgroupVersion::V2, Controller::Cpu) => {
            ("cgroup v2", "cpu.max", format!("{quota_us} {PERIOD_US}"))
        }
        (CgroupVersion::V2, Controller::Pids) => ("cgroup v2", "pids.max", limits.pids.to_string()),
        (CgroupVersion::V1, Controller::Memory) => {
            let most = limits.memory_bytes.ok_or(io::ErrorKind::Unsupported)?;
            ("cgroup v1", "memory.limit_in_bytes", most.to_string())
        }
        (CgroupVersion::V1, Controller::Cpu) => {
            write(dir, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
            ("cgroup v1", "cpu.cfs_quota_us", quota_us.to_string())
        }
        (CgroupVersion::V1, Controller::Pids) => ("cgroup v1", "pids.max", limits.pids.to_string()),
    };
    write(dir, file, &value)?;
    Ok(format!("{word} {file} = {value}"))
}

fn write(dir: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = dir.join(file);
    fs::write(&path, value)?;
    let kept = fs::read_to_string(&path)?;
    // The kernel rounds memory to pages, downwards.
    let near = kept.trim() == value
        || matches!((kept.trim().parse::<u64>(), value.parse::<u64>()),
            (Ok(kept), Ok(value)) if kept <= value && value - kept < 65_536);
    if near { Ok(()) } else { Err(io::Error::other(format!("{file} became {}", kept.trim()))) }
}
