//! Writes inside a VM: to a volume, which the host serves over virtio-fs, and to the VM's own disk.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median};
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 7;
const WRITE_MIB: u64 = 64;
const VOLUME_BYTES: u64 = 512 << 20;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    ensure!(rustix::process::geteuid().is_root(), "only root mounts volumes");
    let house = BenchDaemon::open(kit, "isolation = \"vm\"")?;
    let client = house.client()?;
    let call = |tool: &str, args: Value| client.call(tool, args);
    let volume = json!({ "label": "bench", "size_limit_bytes": VOLUME_BYTES });
    call("aegis.volume.create", volume)?;
    let volumes = json!([{ "volume": "bench", "path": "/volume" }]);
    call("workspace_create", json!({ "name": "bench", "volumes": volumes }))?;
    // Until it is durable on the host, whichever way.
    let write = |path: &str| -> Result<f64> {
        let dd = format!(
            "rm -f {path}; sync; dd if=/dev/zero of={path} bs=1M count={WRITE_MIB} conv=fsync"
        );
        let result = call("exec", json!({ "workspace_id": "bench", "command": dd }))?;
        ensure!(result["exit_code"] == 0, "{result}");
        let took_ms = result["elapsed_ms"].as_f64().context("exec tells its time")?;
        Ok((WRITE_MIB << 20) as f64 / 1e6 / (took_ms / 1e3))
    };
    let (mut to_volume, mut to_disk) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        let (disk, volume) = (write("/root/file")?, write("/volume/file")?);
        // Emulated code is translated on first use, and a disk grows.
        if round > 0 {
            to_disk.push(disk);
            to_volume.push(volume);
        }
    }
    call("workspace_destroy", json!({ "workspace_id": "bench" }))?;
    call("aegis.volume.delete", json!({ "volume_id": "bench" }))?;
    Ok(vec![Figure {
        name: "volume_write",
        unit: "MB/s",
        value: median(to_volume),
        baseline: Some(median(to_disk)),
        target: Target::Stated,
        remark: format!(
            "{WRITE_MIB} MiB by `dd` with fsync, inside a VM; the baseline is the same to its own disk"
        ),
    }])
}
