//! A turn of an agent beside a bare loop over the same provider and the same tool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{agents, model::configured, stub_server};
use super::{house::BenchDaemon, http_client::HttpConnection, kit::BenchPrograms};

const ROUNDS: usize = 15;
/// Turns of an execution before its last one; each has one call.
const TURNS: usize = 20;
/// Tool that is called in each turn.
const TOOL: &str = "workspace_list";
/// Allowed beyond the ratio: two records of each turn on a disk.
const DURABLE_MS: f64 = 5.0;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (of_agent, bare) = (provide()?, provide()?);
    let house = BenchDaemon::open(kit, &configured(&of_agent))?;
    let mut client = house.attach()?;
    agents::deploy(&house, "looker", agents::PYTHON, &format!("tools: [{TOOL}]"))?;
    let mut direct = HttpConnection::open(&bare)?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        let began = Instant::now();
        let mut messages = vec![json!({ "role": "user", "content": "Look." })];
        for turn in 0..=TURNS {
            let answer = direct.answer_to(request(&bare, &messages).as_bytes())?;
            ensure!(!answer.is_empty(), "the provider said nothing");
            if turn < TURNS {
                let listed = client.call(TOOL, &json!({}))?;
                messages
                    .push(json!({ "role": "assistant", "content": "", "tool_calls": [call()] }));
                let told =
                    json!({ "role": "tool", "tool_call_id": "c", "content": listed.to_string() });
                messages.push(told);
            }
        }
        beside.push(began.elapsed().as_secs_f64() * 1e3 / TURNS as f64);

        let began = Instant::now();
        let id = agents::execute(&mut client, "looker", false)?;
        let output = agents::ended(&mut client, &id)?;
        through.push(began.elapsed().as_secs_f64() * 1e3 / TURNS as f64);
        ensure!(output == "Seen.", "{output}");
    }
    let (through, beside) = (median(through), median(beside));
    Ok(vec![Figure {
        name: "agent_overhead",
        unit: "ms",
        value: through,
        baseline: Some(beside),
        target: Target::AtMost(round(beside * 1.2 + DURABLE_MS)),
        remark: format!(
            "a turn with one call of {TOOL}, of an execution of {TURNS} from aegis.task.execute until \
             aegis.task.wait has its end; the baseline is a loop over a provider with the same answers and the \
             same tool over stdio, which keeps nothing"
        ),
    }])
}

fn call() -> Value {
    json!({ "index": 0, "id": "c", "type": "function", "function": { "name": TOOL, "arguments": "{}" } })
}

fn request(address: &str, messages: &[Value]) -> String {
    let body = json!({ "model": "m", "stream": true, "messages": messages }).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A provider that asks for a call in each of some turns, then is done, and begins anew; its address.
fn provide() -> Result<String> {
    let asks = agents::answer(&json!({ "tool_calls": [call()] }), "tool_calls");
    let done = agents::answer(&json!({ "content": "Seen." }), "stop");
    let asked = Arc::new(AtomicUsize::new(0));
    stub_server::serve(move |first| {
        let turn = match first.starts_with("POST") {
            true => asked.fetch_add(1, SeqCst) % (TURNS + 1),
            false => TURNS,
        };
        if turn < TURNS { asks.clone() } else { done.clone() }
    })
    .context("a provider")
}
