//! Time from the request of a workspace to its first command's answer, when a machine is ready.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 25;
const READY: u64 = 2;
/// An exec is short beside the pauses of a busy host, so it is taken several times a round.
const EXECS: usize = 4;
const RUNNING: &str = "running";
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(
        kit,
        &format!(
            "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n\
             [[workspace.pool.classes]]\nready = {READY}\n"
        ),
    )?;
    let mut client = house.attach()?;
    full(&mut client, READY)?;
    client.call("workspace_create", &json!({ "name": RUNNING }))?;
    let (mut execs, mut claims, mut creates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        // What is made meanwhile would be measured too.
        full(&mut client, READY)?;
        for _ in 0..EXECS {
            execs.push(exec(&mut client, RUNNING)?);
        }
        let began = Instant::now();
        let made = client.call("workspace_create", &json!({ "name": "claimed" }))?;
        creates.push(ms(began.elapsed()));
        exec(&mut client, "claimed")?;
        claims.push(ms(began.elapsed()));
        ensure!(made["from_pool"] == true, "no machine was ready: {made}");
        client.call("workspace_destroy", &json!({ "workspace_id": "claimed" }))?;
    }
    Ok(vec![Figure {
        name: "pool_claim",
        unit: "ms",
        value: median(claims),
        baseline: Some(median(execs)),
        target: Target::AtMostTimes(3.0),
        remark: format!(
            "of that {} ms are the call of workspace_create, the rest the first exec; the \
             baseline is an exec on a running workspace",
            round(median(creates))
        ),
    }])
}

/// Waits until the pool has so many machines and is at rest.
pub(super) fn full(client: &mut StdioClient, ready: u64) -> Result<()> {
    let began = Instant::now();
    loop {
        let status: Value = client.call("pool_status", &json!({}))?;
        let class = status["classes"].get(0).context("a class is configured")?;
        if class["ready"] == ready && class["at_work"] == false {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "the pool is not filled: {class}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn exec(client: &mut StdioClient, workspace: &str) -> Result<f64> {
    let began = Instant::now();
    let args = json!({ "workspace_id": workspace, "command": "true" });
    let result = client.call("exec", &args)?;
    ensure!(result["exit_code"] == 0, "true: {result}");
    Ok(ms(began.elapsed()))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
