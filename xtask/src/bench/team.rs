//! What goes between the members of a team.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::Client;
use super::figure::{Figure, Target, median, round};
use super::kit::output;
use super::{house::House, kit::Kit};

const TEAM: &str = "bench";
/// The one tool of the bare server, which looks at no argument.
const BARE_TOOL: &str = "workspace_list";
const ROUNDS: usize = 25;
const MESSAGES_A_ROUND: usize = 100;

pub(super) fn messages(kit: &Kit<'_>) -> Result<Vec<Figure>> {
    let house = House::open(kit, "isolation = \"sandbox\"\n")?;
    let (mut ours, mut bare) = (house.attach()?, Client::start(kit.example("bare_mcp_server"))?);
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

/// Median time of a durable append of one caller.
fn append_us(kit: &Kit<'_>) -> Result<f64> {
    let mut bench = kit.example("journal_bench");
    bench.args(["--one", &MESSAGES_A_ROUND.to_string()]);
    let told: Value = serde_json::from_str(&output(bench)?)?;
    told["durable_append_p50_us"].as_f64().context("journal_bench tells a time")
}

/// Empties the inbox; how many messages were in it.
fn drain(client: &mut Client) -> Result<usize> {
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
