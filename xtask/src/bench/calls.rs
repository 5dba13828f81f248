//! A tool call that does next to nothing: what the way there and back costs.

use anyhow::Result;
use serde_json::json;

use super::client::StdioClient;
use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, kit::BenchPrograms};

const TOOL: &str = "workspace_list";
const ROUNDS: usize = 25;
const CALLS_A_ROUND: usize = 200;
const PIPELINED_A_ROUND: usize = 2_000;
const IN_FLIGHT: usize = 32;
const RULES: usize = 500;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "")?;
    let (mut ours, mut bare) =
        (house.attach()?, StdioClient::start(kit.baseline("bare-mcp-server"))?);
    for client in [&mut ours, &mut bare] {
        client.round_trips_us(TOOL, &json!({}), CALLS_A_ROUND)?;
    }
    let mut figures = Vec::new();
    if kit.wants("tool_call_p50") {
        figures.push(one_by_one(kit, &mut ours, &mut bare)?);
    }
    if kit.wants("tool_calls_per_sec") {
        figures.push(many(kit, &mut ours, &mut bare)?);
    }
    Ok(figures)
}

/// What the audit log adds to a call.
pub(super) fn audited(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let remark = "the run folder is on the disk, where files of the bench are".to_owned();
    added(kit, "audited_call_p50", "[audit]\nenabled = true\n", remark)
}

/// What rules add to a call: each tenth is about the tool, with a condition that is looked at.
pub(super) fn ruled(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let rule = |at: usize| {
        let tool = if at.is_multiple_of(10) { TOOL } else { "aegis.script.save" };
        format!(
            "[[policy.rules]]\nname = \"r{at}\"\neffect = \"deny\"\ntools = [\"{tool}\"]\n\
             when = 'session.user == \"uid:{}\" && tool.risk == \"high\"'\n",
            100_000 + at
        )
    };
    let rules: String = (0..RULES).map(rule).collect();
    let about = RULES / 10;
    let remark =
        format!("{RULES} rules, {about} of them about the tool, each with a condition in CEL");
    added(kit, "decision_500_rules", &rules, remark)
}

/// A call under a configuration, beside one under none.
fn added(
    kit: &BenchPrograms<'_>,
    name: &'static str,
    config: &str,
    remark: String,
) -> Result<Vec<Figure>> {
    let (plain, changed) = (BenchDaemon::open(kit, "")?, BenchDaemon::open(kit, config)?);
    let (mut without, mut with) = (plain.attach()?, changed.attach()?);
    let [with_us, without_us] = in_turns(kit, [&mut with, &mut without])?;
    Ok(vec![Figure {
        name,
        unit: "us",
        value: median(with_us),
        baseline: Some(median(without_us)),
        target: Target::Stated,
        remark,
    }])
}

/// Times of calls by each of two clients, in microseconds.
fn in_turns(kit: &BenchPrograms<'_>, clients: [&mut StdioClient; 2]) -> Result<[Vec<f64>; 2]> {
    let [one, other] = clients;
    let (mut one_us, mut other_us) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        other_us.extend(other.round_trips_us(TOOL, &json!({}), CALLS_A_ROUND)?);
        one_us.extend(one.round_trips_us(TOOL, &json!({}), CALLS_A_ROUND)?);
    }
    Ok([one_us, other_us])
}

fn one_by_one(
    kit: &BenchPrograms<'_>,
    ours: &mut StdioClient,
    bare: &mut StdioClient,
) -> Result<Figure> {
    let [our_us, bare_us] = in_turns(kit, [ours, bare])?;
    let (our_p99, bare_p99) = (percentile(&our_us, 99), percentile(&bare_us, 99));
    Ok(Figure {
        name: "tool_call_p50",
        unit: "us",
        value: median(our_us),
        baseline: Some(median(bare_us)),
        target: Target::AtMostTimes(1.5),
        remark: format!("p99: {} us, of the bare server {} us", round(our_p99), round(bare_p99)),
    })
}

fn many(kit: &BenchPrograms<'_>, ours: &mut StdioClient, bare: &mut StdioClient) -> Result<Figure> {
    let (mut our_rates, mut bare_rates) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        for (client, rates) in [(&mut *bare, &mut bare_rates), (&mut *ours, &mut our_rates)] {
            let took = client.pipelined(TOOL, &json!({}), PIPELINED_A_ROUND, IN_FLIGHT)?;
            rates.push(PIPELINED_A_ROUND as f64 / took.as_secs_f64());
        }
    }
    Ok(Figure {
        name: "tool_calls_per_sec",
        unit: "calls/s",
        value: median(our_rates),
        baseline: Some(median(bare_rates)),
        target: Target::AtLeastTimes(0.7),
        remark: String::new(),
    })
}

pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * percent / 100]
}
