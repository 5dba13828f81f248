//! Commands and files in a running VM, against the bare carrier and the bare
//! kernel of the same VM.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{kit::BenchPrograms, rig::Rig, rig::WORKSPACE};

const EXEC_ROUNDS: usize = 15;
const EXECS_A_ROUND: usize = 20;
const ECHOES_A_ROUND: usize = 50;
const OUTPUT_ROUNDS: usize = 11;
/// The most that one `exec` returns.
const OUTPUT_BYTES: u64 = 16 * 1024 * 1024;
const FILE_ROUNDS: usize = 5;
const ON_DISK: &str = "/root/file";
const IN_MEMORY: &str = "/dev/shm/file";
const FILE_BYTES: u64 = 256 * 1024 * 1024;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut rig = Rig::new(kit)?;
    let mut figures = Vec::new();
    if kit.wants("exec_true_p50") {
        figures.push(exec_true(kit, &mut rig)?);
    }
    if kit.wants("exec_output_throughput") || kit.wants("exec_output_to_client") {
        figures.extend(exec_output(kit, &mut rig)?);
    }
    if kit.wants("file_upload_throughput") || kit.wants("file_download_throughput") {
        figures.extend(files(kit, &mut rig)?);
    }
    Ok(figures)
}

fn exec_true(kit: &BenchPrograms<'_>, rig: &mut Rig) -> Result<Figure> {
    let call = json!({ "workspace_id": WORKSPACE, "command": "true" });
    // Emulated code is translated on first use, on both ways.
    rig.client.round_trips_us("exec", &call, EXECS_A_ROUND)?;
    spawn_us(rig)?;
    let (mut ours, mut spawns, mut echoes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(EXEC_ROUNDS) {
        spawns.push(spawn_us(rig)?);
        echoes.extend(
            rig.bare(|raw| (0..ECHOES_A_ROUND).map(|_| raw.echo_us()).collect::<Result<Vec<_>>>())?,
        );
        ours.extend(rig.client.round_trips_us("exec", &call, EXECS_A_ROUND)?);
    }
    let (spawn, echo) = (median(spawns), median(echoes));
    Ok(Figure {
        name: "exec_true_p50",
        unit: "us",
        value: median(ours),
        baseline: Some(spawn + echo),
        target: Target::AtMostTimes(1.3),
        remark: format!(
            "the baseline is {} us of fork, exec and wait and {} us of echo; the figure is the \
             whole tool call of an MCP client",
            round(spawn),
            round(echo)
        ),
    })
}

/// Median time of fork, exec and wait of `sh -c true`, taken inside the guest.
fn spawn_us(rig: &mut Rig) -> Result<f64> {
    let result = rig.exec(&format!("/proc/1/exe selftest-spawn {EXECS_A_ROUND}"), 4096)?;
    let told: Value = serde_json::from_str(result["stdout"].as_str().unwrap_or_default())?;
    told["std_spawn_p50_us"].as_f64().context("selftest-spawn tells a time")
}

fn exec_output(kit: &BenchPrograms<'_>, rig: &mut Rig) -> Result<Vec<Figure>> {
    // Lines of text, in the page cache: making them costs no time.
    let line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde";
    rig.exec(&format!("yes {line} | head -c {OUTPUT_BYTES} > /root/output"), 0)?;
    let call = json!({
        "workspace_id": WORKSPACE,
        "command": "cat /root/output",
        "max_output_bytes": OUTPUT_BYTES,
    });
    let (mut ours, mut bare, mut tools) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(OUTPUT_ROUNDS) {
        bare.push(mb_per_sec(OUTPUT_BYTES, rig.bare(|raw| raw.download(OUTPUT_BYTES))?));
        let (took, result) = rig.client.timed("exec", &call)?;
        ensure!(result["truncated"] == false, "output was cut");
        let in_guest = result["elapsed_ms"].as_u64().context("exec tells its time")?;
        ours.push(mb_per_sec(OUTPUT_BYTES, Duration::from_millis(in_guest)));
        tools.push(mb_per_sec(OUTPUT_BYTES, took));
    }
    let bare = Some(median(bare));
    let mut figures = vec![
        Figure {
            name: "exec_output_throughput",
            unit: "MB/s",
            value: median(ours),
            baseline: bare,
            target: Target::AtLeastTimes(0.6),
            remark: format!(
                "{} MiB of text by `cat`, from its start in the guest to its end with all output \
                 sent; what the client gets is the next figure",
                OUTPUT_BYTES >> 20
            ),
        },
        Figure {
            name: "exec_output_to_client",
            unit: "MB/s",
            value: median(tools),
            baseline: bare,
            target: Target::AtLeastTimes(0.25),
            remark: "the same calls, until the MCP client has read the last byte of the answer"
                .to_owned(),
        },
    ];
    figures.retain(|figure| kit.wants(figure.name));
    Ok(figures)
}

fn files(kit: &BenchPrograms<'_>, rig: &mut Rig) -> Result<Vec<Figure>> {
    let (up, down) = (rig.transfers().join("up"), rig.transfers().join("down"));
    fs::write(&up, vec![b'x'; FILE_BYTES as usize])?;
    let (mut into, mut out) = (Way::default(), Way::default());
    for _ in 0..kit.rounds(FILE_ROUNDS) {
        into.bare.push(mb_per_sec(FILE_BYTES, rig.bare(|raw| raw.upload(FILE_BYTES))?));
        into.disk.push(mb_per_sec(FILE_BYTES, transfer(rig, "upload", "up", ON_DISK)?));
        into.memory.push(mb_per_sec(FILE_BYTES, transfer(rig, "upload", "up", IN_MEMORY)?));
        rig.exec(&format!("rm {IN_MEMORY}"), 0)?;
        out.bare.push(mb_per_sec(FILE_BYTES, rig.bare(|raw| raw.download(FILE_BYTES))?));
        out.disk.push(mb_per_sec(FILE_BYTES, transfer(rig, "download", "down", ON_DISK)?));
        let size = fs::metadata(&down)?.len();
        ensure!(size == FILE_BYTES, "{size} bytes came down");
        fs::remove_file(&down)?;
    }
    let into_memory = format!(
        "256 MiB, until they are durable on the guest's disk; into the guest's memory file system \
         it is {} MB/s",
        round(median(std::mem::take(&mut into.memory)))
    );
    let to_disk = "256 MiB, until they are durable on the host's disk".to_owned();
    let mut figures = vec![
        into.figure("file_upload_throughput", into_memory),
        out.figure("file_download_throughput", to_disk),
    ];
    figures.retain(|figure| kit.wants(figure.name));
    Ok(figures)
}

/// One direction, in MB/s.
#[derive(Default)]
struct Way {
    bare: Vec<f64>,
    disk: Vec<f64>,
    memory: Vec<f64>,
}

impl Way {
    fn figure(self, name: &'static str, remark: String) -> Figure {
        Figure {
            name,
            unit: "MB/s",
            value: median(self.disk),
            baseline: Some(median(self.bare)),
            target: Target::AtLeastTimes(0.6),
            remark,
        }
    }
}

fn transfer(rig: &mut Rig, direction: &str, host_path: &str, guest_path: &str) -> Result<Duration> {
    let args = json!({
        "workspace_id": WORKSPACE,
        "direction": direction,
        "host_path": host_path,
        "guest_path": guest_path,
    });
    Ok(rig.client.timed("file_transfer", &args)?.0)
}

fn mb_per_sec(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}
