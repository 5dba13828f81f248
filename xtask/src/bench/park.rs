//! Machines that are parked: what it takes to park one and to wake it, and what two hundred of them hold.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 7;
const MACHINES: usize = 200;
/// Machines that run at once while the two hundred are made.
const AT_ONCE: usize = 10;
const OPTIONS: &str = "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n";

/// A fork is parked as a difference, and woken by a command.
pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, OPTIONS)?;
    let mut client = house.attach()?;
    source(&mut client)?;
    let (mut forks, mut parks, mut wakes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut memory_bytes, mut saved_bytes) = (0.0, 0.0);
    for _ in 0..kit.rounds(ROUNDS) {
        let began = Instant::now();
        let args = json!({ "workspace_id": "source", "snapshot_name": "node", "new_name": "fork" });
        client.call("workspace_fork", &args)?;
        command(&mut client, "fork")?;
        forks.push(since(began));
        // Memory of its own, as a machine has that did something.
        let args = json!({ "workspace_id": "fork", "command": "head -c 8388608 /dev/urandom > /dev/shm/x" });
        let filled = client.call("exec", &args)?;
        ensure!(filled["exit_code"] == 0, "its memory is not filled: {filled}");

        let began = Instant::now();
        let parked = client.call("workspace_park", &json!({ "workspace_id": "fork" }))?;
        parks.push(since(began));
        memory_bytes = parked["memory_bytes"].as_f64().context("a parked machine has memory")?;
        saved_bytes = f64::max(saved_bytes, memory_bytes);

        let began = Instant::now();
        command(&mut client, "fork")?;
        wakes.push(since(began));
        client.call("workspace_destroy", &json!({ "workspace_id": "fork" }))?;
    }
    ensure!(memory_bytes > 0.0, "nothing was saved");
    let baseline = Some(median(forks));
    let figure = |name, values, remark: String| Figure {
        name,
        unit: "ms",
        value: median(values),
        baseline,
        target: Target::AtMostTimes(1.5),
        remark,
    };
    let saved = round(saved_bytes / f64::from(1 << 20));
    Ok(vec![
        figure(
            "park",
            parks,
            format!(
                "the call of workspace_park for a fork with 8 MiB of random bytes of its own, which are {saved} MiB \
                 on the disk; the baseline is a workspace_fork from memory and its first exec"
            ),
        ),
        figure("wake", wakes, "an exec on the parked fork; the baseline is the same".to_owned()),
    ])
}

/// Two hundred parked forks, each of which has run a command and holds a file in its memory.
pub(super) fn many(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, OPTIONS)?;
    let mut client = house.attach()?;
    source(&mut client)?;
    let machines = kit.rounds(MACHINES);
    let before_bytes = disk_bytes(house.path())?;
    let mut names = Vec::new();
    while names.len() < machines {
        let count = AT_ONCE.min(machines - names.len());
        let args = json!({ "workspace_id": "source", "snapshot_name": "node", "count": count });
        let forked = client.call("workspace_fork", &args)?;
        let workers = forked["workers"].as_array().context("forks are listed")?;
        ensure!(workers.len() == count, "not all forks were made: {}", forked["failures"]);
        for worker in workers {
            let name = worker["name"].as_str().context("a fork has a name")?;
            let write = format!("echo {name} > /dev/shm/me");
            client.call("exec", &json!({ "workspace_id": name, "command": write }))?;
            client.call("workspace_park", &json!({ "workspace_id": name }))?;
            names.push(name.to_owned());
        }
    }
    client.call("workspace_destroy", &json!({ "workspace_id": "source" }))?;
    let kib = super::memory::rss_of_tree_kib(house.pid())?;
    let each_bytes = (disk_bytes(house.path())? - before_bytes) / machines as f64;
    // The first, the last and one of the middle are what they were.
    for name in [&names[0], &names[machines / 2], &names[machines - 1]] {
        let args = json!({ "workspace_id": name, "command": "cat /dev/shm/me" });
        let said = client.call("exec", &args)?;
        ensure!(
            said["stdout"].as_str().map(str::trim) == Some(name),
            "{name} has lost itself: {said}"
        );
    }
    Ok(vec![Figure {
        name: "parked_200",
        unit: "MiB",
        value: kib / 1024.0,
        baseline: None,
        target: Target::Stated,
        remark: format!(
            "resident memory of the daemon and all of its processes with {machines} parked forks of one memory; each \
             takes {} MiB of the disk",
            round(each_bytes / f64::from(1 << 20))
        ),
    }])
}

fn source(client: &mut StdioClient) -> Result<()> {
    client.call("workspace_create", &json!({ "name": "source" }))?;
    command(client, "source")?;
    let args = json!({
        "workspace_id": "source", "action": "create", "name": "node", "include_memory": true,
    });
    client.call("snapshot", &args).map(drop)
}

fn command(client: &mut StdioClient, workspace: &str) -> Result<()> {
    let result = client.call("exec", &json!({ "workspace_id": workspace, "command": "true" }))?;
    ensure!(result["exit_code"] == 0, "true: {result}");
    Ok(())
}

fn since(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// What the daemon's state takes on the disk, holes not counted.
#[expect(clippy::cast_precision_loss, reason = "some gigabytes")]
fn disk_bytes(home: &Path) -> Result<f64> {
    let mut command = std::process::Command::new("du");
    command.args(["-s", "--block-size=1"]).arg(home);
    let said = super::kit::output(command)?;
    let bytes: u64 = said.split_whitespace().next().context("a number")?.parse()?;
    Ok(bytes as f64)
}
