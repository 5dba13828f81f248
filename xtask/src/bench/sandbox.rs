//! Commands in a running sandbox, beside the programs that they start: no emulator is in the way.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::client::StdioClient;
use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, kit::BenchPrograms};

const WORKSPACE: &str = "bench";
const ROUNDS: usize = 15;
const CALLS_A_ROUND: usize = 20;
/// Programs that one command starts: it tells its time in milliseconds.
const SPAWNS: u32 = 400;
/// The one tool of the bare server, which looks at no argument.
const BARE_TOOL: &str = "workspace_list";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let (mut ours, mut bare) =
        (house.attach()?, StdioClient::start(kit.baseline("bare-mcp-server"))?);
    ours.call("workspace_create", &json!({ "name": WORKSPACE }))?;
    let call = json!({ "workspace_id": WORKSPACE, "command": "true" });
    ours.round_trips_us("exec", &call, CALLS_A_ROUND)?;
    let (mut execs, mut spawns, mut echoes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        spawns.push(spawn_us(&mut ours)?);
        echoes.extend(bare.round_trips_us(BARE_TOOL, &call, CALLS_A_ROUND)?);
        execs.extend(ours.round_trips_us("exec", &call, CALLS_A_ROUND)?);
    }
    Ok(vec![Figure {
        name: "exec_true_sandbox",
        unit: "us",
        value: median(execs),
        baseline: Some(median(spawns)),
        target: Target::Stated,
        remark: format!(
            "the baseline is fork, exec and wait of `sh -c true` by a shell in the same sandbox; a call of a bare MCP \
             server is {} us",
            round(median(echoes))
        ),
    }])
}

/// Time of fork, exec and wait of `sh -c true`, of many by one shell.
fn spawn_us(client: &mut StdioClient) -> Result<f64> {
    let command = format!("i=0; while [ $i -lt {SPAWNS} ]; do sh -c true; i=$((i+1)); done");
    let call = json!({ "workspace_id": WORKSPACE, "command": command });
    let result = client.call("exec", &call)?;
    ensure!(result["exit_code"] == 0, "{result}");
    let took_ms = result["elapsed_ms"].as_f64().context("exec tells its time")?;
    Ok(took_ms * 1e3 / f64::from(SPAWNS))
}
