//! Forks of a machine's memory, and the way back to a snapshot.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms, restore::Template};

const ROUNDS: usize = 7;
const FORKS: usize = 20;
/// Name of the machine that `fork_20` forks.
const STEM: &str = "stem";
const SOURCE: &str = "source";
/// Memory that the source's guest uses besides itself, in MiB.
const USED_MB: u64 = 50;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(
        kit,
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n",
    )?;
    let mut client = house.attach()?;
    client.call("workspace_create", &json!({ "name": SOURCE }))?;
    // Once it has run a command it holds what every other machine here holds.
    command(&mut client, SOURCE, "true")?;
    let cold_kib = pss_kib(&mut client, SOURCE)?;
    let fill = format!("head -c {} /dev/urandom > /dev/shm/used", USED_MB << 20);
    let mut figures = Vec::new();
    if kit.wants("branch_pause") {
        command(&mut client, SOURCE, &fill)?;
        figures.push(branch_pause(kit, &mut client)?);
        command(&mut client, SOURCE, "rm /dev/shm/used")?;
    }
    save(&mut client, SOURCE, "node")?;
    if kit.wants("fork_with_memory") || kit.wants("restore_to_node") {
        figures.extend(from_memory(kit, &mut client)?);
    }
    if kit.wants("fork_20") {
        figures.push(fork_20(kit, &house, &mut client)?);
    }
    if kit.wants("fork_20_memory") {
        figures.push(fork_20_memory(&mut client, cold_kib)?);
    }
    Ok(figures)
}

pub(super) fn command(client: &mut StdioClient, workspace: &str, command: &str) -> Result<()> {
    let args = json!({ "workspace_id": workspace, "command": command });
    let result = client.call("exec", &args)?;
    ensure!(result["exit_code"] == 0, "{command}: {result}");
    Ok(())
}

/// Makes a snapshot with memory; returns how long the guest was paused, in milliseconds.
pub(super) fn save(client: &mut StdioClient, workspace: &str, name: &str) -> Result<f64> {
    let args = json!({
        "workspace_id": workspace, "action": "create", "name": name, "include_memory": true,
    });
    client.call("snapshot", &args)?["pause_ms"].as_f64().context("a snapshot tells its pause")
}

fn delete(client: &mut StdioClient, workspace: &str, name: &str) -> Result<()> {
    let args = json!({ "workspace_id": workspace, "action": "delete", "name": name });
    client.call("snapshot", &args).map(drop)
}

fn destroy(client: &mut StdioClient, workspace: &str) -> Result<()> {
    client.call("workspace_destroy", &json!({ "workspace_id": workspace })).map(drop)
}

/// A machine that booted has its memory where the daemon can copy it while it runs. That of a fork
/// is its own, and QEMU writes all of it while it is paused: a plain full save.
fn branch_pause(kit: &BenchPrograms<'_>, client: &mut StdioClient) -> Result<Figure> {
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        let args = json!({
            "workspace_id": SOURCE, "snapshot_name": "branched", "new_name": "branch",
        });
        let branched = client.call("workspace_branch", &args)?;
        ours.push(branched["pause_ms"].as_f64().context("a branch tells its pause")?);
        plain.push(save(client, "branch", "whole")?);
        destroy(client, "branch")?;
        delete(client, SOURCE, "branched")?;
    }
    Ok(Figure {
        name: "branch_pause",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(plain)),
        target: Target::AtMostTimes(0.7),
        remark: format!("{USED_MB} MiB of random bytes in the memory of a guest of 256 MiB"),
    })
}

fn from_memory(kit: &BenchPrograms<'_>, client: &mut StdioClient) -> Result<Vec<Figure>> {
    let (mut cold, mut forks, mut restores) = (Vec::new(), Vec::new(), Vec::new());
    let since = |began: Instant| began.elapsed().as_secs_f64() * 1e3;
    for _ in 0..kit.rounds(ROUNDS) {
        let began = Instant::now();
        client.call("workspace_create", &json!({ "name": "cold" }))?;
        command(client, "cold", "true")?;
        cold.push(since(began));
        destroy(client, "cold")?;

        let began = Instant::now();
        let args = json!({ "workspace_id": SOURCE, "snapshot_name": "node", "new_name": "fork" });
        client.call("workspace_fork", &args)?;
        command(client, "fork", "true")?;
        forks.push(since(began));
        destroy(client, "fork")?;

        let began = Instant::now();
        let args = json!({ "workspace_id": SOURCE, "action": "restore", "name": "node" });
        client.call("snapshot", &args)?;
        command(client, SOURCE, "true")?;
        restores.push(since(began));
    }
    let baseline = Some(median(cold));
    let figure = |name, values, times, remark: &str| Figure {
        name,
        unit: "ms",
        value: median(values),
        baseline,
        target: Target::AtMostTimes(times),
        remark: remark.to_owned(),
    };
    let remark = "the baseline is a workspace_create and its first exec";
    Ok(vec![
        figure("fork_with_memory", forks, 0.12, remark),
        figure("restore_to_node", restores, 0.3, remark),
    ])
}

fn fork_20(
    kit: &BenchPrograms<'_>,
    house: &BenchDaemon,
    client: &mut StdioClient,
) -> Result<Figure> {
    // Of its own: the bare QEMUs are given one frozen layer.
    client.call("workspace_create", &json!({ "name": STEM }))?;
    save(client, STEM, "node")?;
    let listed = client.call("snapshot", &json!({ "workspace_id": STEM, "action": "list" }))?;
    let rows = listed["snapshots"].as_array().context("snapshots are listed")?;
    let node = rows.iter().find(|row| row["name"] == "node").context("the snapshot is listed")?;
    let memory = house.path().join("state/memories").join(node["id"].as_str().context("an id")?);
    let fork = json!({ "workspace_id": STEM, "snapshot_name": "node", "new_name": "template" });
    client.call("workspace_fork", &fork)?;
    let (base, folder) = (super::create::base(kit)?, kit.repo.shell.create_temp_dir()?);
    let pid = u32::try_from(machine_pid(client, "template")?)?;
    let template = Template::of(pid, memory, &base, folder.path(), 2)?;
    destroy(client, "template")?;

    let (mut ours, mut execs, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        bare.push(template.start_together(kit, FORKS)?.as_secs_f64() * 1e3);
        let (forked, ran) = together(client, STEM, FORKS)?;
        ours.push(forked);
        execs.push(ran);
    }
    destroy(client, STEM)?;
    Ok(Figure {
        name: "fork_20",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(bare)),
        target: Target::AtMostTimes(1.2),
        remark: format!(
            "until each guest has answered that it is itself by now, which is what the call waits \
             for; the baseline is twenty QEMUs started together from the same layer and memory, \
             until each guest has answered its first message; with a first exec on all twenty \
             {} ms",
            round(median(execs))
        ),
    })
}

/// Forks a machine from its snapshot `node`, so many at once that are then destroyed: milliseconds until they are made,
/// and until each has run a command.
pub(super) fn together(client: &mut StdioClient, source: &str, count: usize) -> Result<(f64, f64)> {
    let began = Instant::now();
    let args = json!({ "workspace_id": source, "snapshot_name": "node", "count": count });
    let forked = client.call("workspace_fork", &args)?;
    let made_ms = began.elapsed().as_secs_f64() * 1e3;
    let workers = forked["workers"].as_array().context("forks are listed")?;
    ensure!(workers.len() == count, "not all forks were made: {}", forked["failures"]);
    let names: Vec<_> = workers.iter().map(|worker| worker["name"].clone()).collect();
    let args = json!({ "workspace_ids": names, "commands": "true" });
    let answered = client.call("exec_parallel", &args)?;
    let ran_ms = began.elapsed().as_secs_f64() * 1e3;
    ensure!(answered["summary"]["succeeded"] == count, "not all answer: {answered}");
    for name in &names {
        destroy(client, name.as_str().context("a fork has a name")?)?;
    }
    Ok((made_ms, ran_ms))
}

fn fork_20_memory(client: &mut StdioClient, cold_kib: f64) -> Result<Figure> {
    let args = json!({ "workspace_id": SOURCE, "snapshot_name": "node", "count": FORKS });
    let forked = client.call("workspace_fork", &args)?;
    let workers = forked["workers"].as_array().context("forks are listed")?.clone();
    ensure!(workers.len() == FORKS, "not all forks were made: {}", forked["failures"]);
    let mut sum_kib = 0.0;
    let mut names = Vec::new();
    for worker in &workers {
        let name = worker["name"].as_str().context("a fork has a name")?;
        command(client, name, "true")?;
        names.push(name.to_owned());
    }
    for name in &names {
        sum_kib += pss_kib(client, name)?;
    }
    for name in &names {
        destroy(client, name)?;
    }
    let mib = |kib: f64| kib / 1024.0;
    Ok(Figure {
        name: "fork_20_memory",
        unit: "MiB",
        value: mib(sum_kib),
        baseline: Some(mib(cold_kib) * FORKS as f64),
        target: Target::AtMostTimes(0.35),
        remark: format!(
            "each fork has run one command; {} MiB each, one machine that booted {} MiB",
            round(mib(sum_kib) / FORKS as f64),
            round(mib(cold_kib))
        ),
    })
}

fn machine_pid(client: &mut StdioClient, workspace: &str) -> Result<u64> {
    let info: Value = client.call("workspace_info", &json!({ "workspace_id": workspace }))?;
    info["machine"]["pid"].as_u64().context("a running workspace has a machine")
}

/// Memory of a workspace's machine, each page shared by so many counted by its part.
fn pss_kib(client: &mut StdioClient, workspace: &str) -> Result<f64> {
    let pid = machine_pid(client, workspace)?;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).context("its Pss")?;
    let kib = line.split_ascii_whitespace().nth(1).context("a number")?;
    Ok(kib.parse()?)
}
