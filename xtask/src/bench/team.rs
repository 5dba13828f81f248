//! Figures of messages between the members of a team.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::StdioClient;
use super::figure::{Figure, Target, median, round};
use super::kit::output;
use super::{house::BenchDaemon, kit::BenchPrograms};

const TEAM: &str = "bench";
/// The one tool of the bare server, which looks at no argument.
const BARE_TOOL: &str = "workspace_list";
const ROUNDS: usize = 25;
const MESSAGES_A_ROUND: usize = 100;
const TASKS_A_ROUND: usize = 10;
/// Durable appends of a task: its assignment and its result, by the daemon and by the guest.
const APPENDS: f64 = 4.0;
/// A task that is lost is an error, and not a bench that never ends.
const PATIENCE_SECS: u64 = 60;

pub(super) fn messages(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let (mut ours, mut bare) =
        (house.attach()?, StdioClient::start(kit.baseline("bare-mcp-server"))?);
    let roles = ["a", "b"].map(|name| json!({ "name": name, "role": "bench" }));
    ours.call("team", &json!({ "action": "create", "name": TEAM, "roles": roles }))?;
    let message = json!({
        "action": "message", "name": TEAM, "agent": "a", "to": "b",
        "content": "x".repeat(200),
    });
    ours.round_trips_us("team", &message, MESSAGES_A_ROUND)?;
    drain(&mut ours)?;
    bare.round_trips_us(BARE_TOOL, &message, MESSAGES_A_ROUND)?;
    let (mut our_us, mut echoes, mut appends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        echoes.extend(bare.round_trips_us(BARE_TOOL, &message, MESSAGES_A_ROUND)?);
        appends.push(append_us(kit)?);
        our_us.extend(ours.round_trips_us("team", &message, MESSAGES_A_ROUND)?);
        let arrived = drain(&mut ours)?;
        ensure!(arrived == MESSAGES_A_ROUND, "{arrived} of {MESSAGES_A_ROUND} messages arrived");
    }
    let (echo, append) = (median(echoes), median(appends));
    Ok(vec![Figure {
        name: "message_delivery_p50",
        unit: "us",
        value: median(our_us),
        baseline: Some(echo + append),
        target: Target::AtMostTimes(2.0),
        remark: format!(
            "the baseline is {} us of echo and {} us of a durable append",
            round(echo),
            round(append)
        ),
    }])
}

pub(super) fn tasks(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if kit.wants("task_roundtrip") {
        let open = "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n";
        let (task, exec) = task_beside_exec(kit, open)?;
        figures.push(Figure {
            name: "task_roundtrip",
            unit: "us",
            value: task,
            baseline: Some(exec),
            target: Target::AtMostTimes(2.0),
            remark: "two tool calls of one client, one after the other".to_owned(),
        });
    }
    if kit.wants("task_roundtrip_sandbox") {
        let (task, exec) = task_beside_exec(kit, "isolation = \"sandbox\"\n")?;
        let append = append_us(kit)?;
        figures.push(Figure {
            name: "task_roundtrip_sandbox",
            unit: "us",
            value: task,
            baseline: Some(exec + APPENDS * append),
            target: Target::Stated,
            remark: format!(
                "the same in a sandbox; the baseline is {} us of exec and {APPENDS} durable appends of {} us, \
                 of which the daemon and the guest make two each",
                round(exec),
                round(append)
            ),
        });
    }
    Ok(figures)
}

/// Median times of a task from its assignment to its result, and of an exec in the same workspace.
fn task_beside_exec(kit: &BenchPrograms<'_>, open: &str) -> Result<(f64, f64)> {
    let house = BenchDaemon::open(kit, open)?;
    let mut client = house.attach()?;
    let roles = ["a", "b"].map(|name| json!({ "name": name, "role": "bench" }));
    let team = client.call("team", &json!({ "action": "create", "name": TEAM, "roles": roles }))?;
    let exec = json!({ "workspace_id": team["member_workspace_ids"][1], "command": "true" });
    let mut next = 0..;
    let mut rounds = |client: &mut StdioClient, many: usize| -> Result<Vec<f64>> {
        next.by_ref().take(many).map(|n| task_us(client, n)).collect()
    };
    // Emulated code is translated on first use, on both ways.
    rounds(&mut client, TASKS_A_ROUND)?;
    client.round_trips_us("exec", &exec, TASKS_A_ROUND)?;
    let (mut ours, mut execs) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        execs.extend(client.round_trips_us("exec", &exec, TASKS_A_ROUND)?);
        ours.extend(rounds(&mut client, TASKS_A_ROUND)?);
    }
    Ok((median(ours), median(execs)))
}

/// Time from the assignment of a task until its result is received.
fn task_us(client: &mut StdioClient, nth: u64) -> Result<f64> {
    let id = format!("task-{nth}");
    let content = json!({ "task_id": id, "command": "true" }).to_string();
    let assign = json!({
        "action": "message", "name": TEAM, "agent": "a", "to": "b",
        "message_type": "task_assignment", "content": content,
    });
    let receive =
        json!({ "action": "receive", "name": TEAM, "agent": "b", "wait_secs": PATIENCE_SECS });
    let began = Instant::now();
    client.call("team", &assign)?;
    let received = client.call("team", &receive)?;
    let took = began.elapsed();
    let results = received["daemon_results"].as_array().context("receive has results")?;
    let [result] = &results[..] else { anyhow::bail!("one task, and these results: {received}") };
    ensure!(result["task_id"] == id && result["success"] == true, "{result}");
    Ok(took.as_secs_f64() * 1e6)
}

/// Median time of a durable append of one caller.
fn append_us(kit: &BenchPrograms<'_>) -> Result<f64> {
    let mut bench = kit.baseline("journal-bench");
    bench.args(["--one", &MESSAGES_A_ROUND.to_string()]);
    let told: Value = serde_json::from_str(&output(bench)?)?;
    told["durable_append_p50_us"].as_f64().context("journal-bench tells a time")
}

/// Empties the inbox; how many messages were in it.
fn drain(client: &mut StdioClient) -> Result<usize> {
    let ask = json!({ "action": "receive", "name": TEAM, "agent": "b", "limit": 100 });
    let mut arrived = 0;
    loop {
        let some = client.call("team", &ask)?;
        match some["messages"].as_array().context("receive answers with messages")?.len() {
            0 => return Ok(arrived),
            many => arrived += many,
        }
    }
}
