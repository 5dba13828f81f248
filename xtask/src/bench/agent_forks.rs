//! Executions that go on from a turn of another one, each in a copy of its machine, beside copies of a machine alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{agents, forks, model::configured, stub_server};
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 7;
const FORKS: usize = 8;
/// Machine like that of the execution, which belongs to the execution's own session.
const ALIKE: &str = "alike";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (asked, came) = channel();
    let counted = Arc::new(AtomicUsize::new(0));
    let function = json!({ "name": "bash", "arguments": "{\"command\":\"true\"}" });
    let call = json!({ "index": 0, "id": "c", "type": "function", "function": function });
    let calls = agents::answer(&json!({ "tool_calls": [call] }), "tool_calls");
    let done = agents::answer(&json!({ "content": "Seen." }), "stop");
    let address = stub_server::serve(move |_| {
        // A bench that is over does not listen.
        let _over = asked.send(Instant::now());
        // The first is the source's, which has a turn with a call then.
        if counted.fetch_add(1, SeqCst) == 0 { calls.clone() } else { done.clone() }
    })?;
    let config = format!(
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n{}",
        configured(&address)
    );
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    let more = "tools: [bash]\n  execution: { checkpoint: turn }";
    agents::deploy(&house, "forker", &format!("{}, isolation: microvm", agents::PYTHON), more)?;
    let source = agents::execute(&mut client, "forker", false)?;
    agents::ended(&mut client, &source)?;
    agents::requested(&came, 2)?;
    client.call("workspace_create", &json!({ "name": ALIKE }))?;
    forks::command(&mut client, ALIKE, "true")?;
    forks::save(&mut client, ALIKE, "node")?;

    let (mut ours, mut begun, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        agents::at_rest(&mut client)?;
        let (_, machines) = forks::together(&mut client, ALIKE, FORKS)?;
        let began = Instant::now();
        let fork = json!({ "execution_id": source, "at": { "turn": 1 }, "count": FORKS });
        let (call, forked) = client.timed("agent_fork", &fork)?;
        let thought = agents::requested(&came, FORKS)?.duration_since(began);
        ensure!(forked["machine"] == true, "they have no machines: {forked}");
        for id in forked["execution_ids"].as_array().into_iter().flatten() {
            agents::ended(&mut client, id)?;
        }
        // The first of each finds the memory of its source cold.
        if round > 0 {
            alone.push(machines);
            begun.push(call.as_secs_f64() * 1e3);
            ours.push(thought.as_secs_f64() * 1e3);
        }
    }
    Ok(vec![Figure {
        name: "agent_fork_8",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(alone)),
        target: Target::AtMostTimes(2.0),
        remark: format!(
            "from agent_fork behind a turn with a checkpoint until each of {FORKS} forks has made its first request to the \
             model, each in a copy of the machine with its memory; of that {} ms are the call; the baseline is a \
             workspace_fork of {FORKS} from the memory of a machine like it, and a first exec on all",
            round(median(begun))
        ),
    }])
}
