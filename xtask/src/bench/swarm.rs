//! Tasks side by side in forks of one snapshot.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 7;
const TASKS: usize = 8;
const GOLDEN: &str = "golden";
const SNAPSHOT: &str = "begin";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(
        kit,
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n",
    )?;
    let mut client = house.attach()?;
    client.call("workspace_create", &json!({ "name": GOLDEN }))?;
    client.call("exec", &json!({ "workspace_id": GOLDEN, "command": "true" }))?;
    client.call(
        "snapshot",
        &json!({
            "workspace_id": GOLDEN, "action": "create", "name": SNAPSHOT, "include_memory": true,
        }),
    )?;
    swarm_ms(&mut client, 1)?;
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        one.push(swarm_ms(&mut client, 1)?);
        many.push(swarm_ms(&mut client, TASKS)?);
    }
    let alone = median(one);
    Ok(vec![Figure {
        name: "swarm_8",
        unit: "ms",
        value: median(many),
        baseline: Some(alone),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "of one task's {} ms one second is the task; the rest is its fork, the way to it and \
             the removal of the fork",
            round(alone)
        ),
    }])
}

/// Time of a swarm of so many tasks of a second each, all of which succeed.
fn swarm_ms(client: &mut StdioClient, tasks: usize) -> Result<f64> {
    let named = |n| json!({ "name": format!("task-{n}"), "command": "sleep 1" });
    let swarm = json!({
        "golden_workspace": GOLDEN,
        "snapshot_name": SNAPSHOT,
        "tasks": (0..tasks).map(named).collect::<Vec<_>>(),
        "max_parallel": tasks,
    });
    let began = Instant::now();
    let ended = client.call("swarm_run", &swarm)?;
    let took = began.elapsed();
    let summary = &ended["summary"];
    let done = summary["succeeded"] == tasks && summary["workers_destroyed"] == tasks;
    ensure!(done, "the swarm ended so: {ended}");
    Ok(took.as_secs_f64() * 1e3)
}
