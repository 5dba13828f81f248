//! Resources that a sandbox uses, measured on request: nothing is kept.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::{Path, Query, State},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sandbox::Sandbox;
use crate::{
    error::{E2bError, Kind},
    files::SandboxFile,
    state::{E2b, Owner},
    target::Target,
};

/// Time over which the use of processors is measured.
const WINDOW: Duration = Duration::from_millis(200);
/// Sandboxes of one request.
const MOST: usize = 100;

/// Memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    total: u64,
    /// Without buffers and cache.
    used: u64,
    cache: u64,
}

/// A measurement of one sandbox.
#[derive(Debug)]
pub(in super::super) struct Measured {
    at: DateTime<Utc>,
    vcpus: u32,
    /// Use of all processors together, in percent: at most 100.
    cpu_used_pct: f64,
    memory: Memory,
    disk_used: u64,
    disk_total: u64,
}

/// Seconds of the epoch within which a measurement is wanted.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(in super::super) struct MetricsQuery {
    start: Option<i64>,
    end: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(in super::super) struct SandboxesQuery {
    sandbox_ids: String,
}

impl MetricsQuery {
    fn wants(self, at: DateTime<Utc>) -> bool {
        let second = at.timestamp();
        self.start.is_none_or(|start| start <= second) && self.end.is_none_or(|end| second <= end)
    }
}

impl Measured {
    fn row(&self) -> Value {
        json!({
            "timestamp": self.at, "timestampUnix": self.at.timestamp(), "cpuCount": self.vcpus,
            "cpuUsedPct": self.cpu_used_pct, "memUsed": self.memory.used,
            "memTotal": self.memory.total, "memCache": self.memory.cache,
            "diskUsed": self.disk_used, "diskTotal": self.disk_total,
        })
    }
}

/// The parts of a kernel's `meminfo`, which is in KiB.
fn meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    let (total, cache) = (bytes("MemTotal")?, bytes("Cached")?);
    let used = total.checked_sub(bytes("MemFree")? + bytes("Buffers")? + cache)?;
    Some(Memory { total, used, cache })
}

impl E2b {
    /// Measures a sandbox; `None` for one that does not run.
    async fn measure(
        self: &Arc<Self>,
        owner: &Owner,
        id: &str,
    ) -> Result<Option<Measured>, E2bError> {
        let (at, sandbox, begun) = (Utc::now(), self.sandbox(owner, id).await?, Instant::now());
        if !sandbox.is_running() {
            return Ok(None);
        }
        tokio::time::sleep(WINDOW).await;
        let later = self.sandbox(owner, id).await?;
        let took = begun.elapsed().as_secs_f64() * f64::from(sandbox.vcpus());
        let cpu_ms = |of: &Sandbox| of.machine.as_ref()?.cpu_ms;
        let unknown = || E2bError::new(Kind::Unavailable, "the sandbox could not be measured now");
        let cpu_ms = cpu_ms(&later).zip(cpu_ms(&sandbox)).ok_or_else(unknown)?;
        let cpu = Duration::from_millis(cpu_ms.0.saturating_sub(cpu_ms.1));
        Ok(Some(Measured {
            at,
            vcpus: sandbox.vcpus(),
            cpu_used_pct: (cpu.as_secs_f64() / took * 100.0).min(100.0),
            memory: self.memory(owner, &later).await?.ok_or_else(unknown)?,
            disk_used: later.disk_used_bytes.ok_or_else(unknown)?,
            disk_total: later.disk_volsize_bytes.ok_or_else(unknown)?,
        }))
    }

    /// Memory as a virtual machine's kernel tells it; of a sandbox of the host's kernel, what its processes hold, and
    /// nothing of the host's cache.
    async fn memory(
        self: &Arc<Self>,
        owner: &Owner,
        sandbox: &Sandbox,
    ) -> Result<Option<Memory>, E2bError> {
        if !sandbox.is_vm() {
            let used = sandbox.machine.as_ref().and_then(|machine| machine.memory_bytes);
            let total = sandbox.memory_bytes();
            return Ok(used.map(|used| Memory { total, used, cache: 0 }));
        }
        let (owner, id, user) = (owner.clone(), sandbox.name.clone(), "root".to_owned());
        let target = Target { owner, id, user };
        let (text, _, _) = SandboxFile::new(self.clone(), &target, "/proc/meminfo").read(0).await?;
        Ok(meminfo(&String::from_utf8_lossy(&text)))
    }
}

/// `GET /sandboxes/{id}/metrics`: what is measured now, if now is within the times that are asked for.
pub(in super::super) async fn metrics(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Path(id): Path<String>,
    Query(query): Query<MetricsQuery>,
) -> Result<Json<Vec<Value>>, E2bError> {
    if !query.wants(Utc::now()) {
        e2b.sandbox(&owner, &id).await?;
        return Ok(Json(Vec::new()));
    }
    let measured = e2b.measure(&owner, &id).await?;
    Ok(Json(measured.iter().map(Measured::row).collect()))
}

/// `GET /sandboxes/metrics`: of several at once; those that are not there or do not run are left out.
pub(in super::super) async fn metrics_of_many(
    State(e2b): State<Arc<E2b>>,
    owner: Owner,
    Query(SandboxesQuery { sandbox_ids }): Query<SandboxesQuery>,
) -> Result<Json<Value>, E2bError> {
    let ids: Vec<&str> = sandbox_ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > MOST {
        return Err(E2bError::invalid(format!("`sandbox_ids` should be at most {MOST}")));
    }
    let all = ids.iter().map(|id| e2b.measure(&owner, id));
    let mut rows = BTreeMap::new();
    for (id, measured) in ids.iter().zip(futures::future::join_all(all).await) {
        match measured {
            Ok(Some(measured)) => _ = rows.insert(*id, measured.row()),
            Ok(None) => {}
            Err(error) if error.kind == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Json(json!({ "sandboxes": rows })))
}

/// `GET /metrics` of the data plane.
pub(in super::super) async fn metrics_of_this(
    State(e2b): State<Arc<E2b>>,
    target: Target,
) -> Result<Json<Value>, E2bError> {
    let measured = e2b.measure(&target.owner, &target.id).await?;
    let Measured { at, vcpus, cpu_used_pct, memory, disk_used, disk_total } =
        measured.ok_or_else(|| E2bError::no_sandbox(&target.id))?;
    Ok(Json(json!({
        "ts": at.timestamp(), "cpu_count": vcpus, "cpu_used_pct": cpu_used_pct,
        "mem_total": memory.total, "mem_used": memory.used, "mem_cache": memory.cache,
        "mem_total_mib": memory.total >> 20, "mem_used_mib": memory.used >> 20,
        "disk_used": disk_used, "disk_total": disk_total,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_a_kernel_tells_it() {
        let told = "MemTotal:  1000 kB\nMemFree:  300 kB\nMemAvailable: 800 kB\nBuffers: 100 kB\n\
                    Cached: 200 kB\nSwapCached: 7 kB\n";
        let memory = Memory { total: 1000 << 10, used: 400 << 10, cache: 200 << 10 };
        assert_eq!(meminfo(told), Some(memory));
        assert_eq!(meminfo("MemTotal: 1000 kB\n"), None);
    }

    #[test]
    fn nothing_is_told_of_times_that_are_over() {
        let at = DateTime::from_timestamp(100, 900_000_000).expect("a time");
        let wants = |start, end| MetricsQuery { start, end }.wants(at);
        assert!(wants(None, None) && wants(Some(100), Some(100)) && wants(Some(7), None));
        assert!(!wants(Some(7), Some(99)) && !wants(Some(101), None));
    }
}
