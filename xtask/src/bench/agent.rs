//! A turn of an agent beside a bare loop over the same provider and the same tool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, http_client::HttpConnection, kit::BenchPrograms, stub_server};

const ROUNDS: usize = 15;
/// Turns of an execution before its last one; each has one call.
const TURNS: usize = 20;
/// Tool that is called in each turn.
const TOOL: &str = "workspace_list";
/// Allowed beyond the ratio: two records of each turn on a disk.
const DURABLE_MS: f64 = 5.0;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (of_agent, bare) = (provide()?, provide()?);
    let house = BenchDaemon::open(
        kit,
        &format!(
            "[model.provider.near]\nkind = \"openai-compatible\"\nendpoint = \"http://{of_agent}/v1\"\n\
             models = {{ m = {{}} }}\n[model.budget]\ntotal_tokens = 1000000000\n"
        ),
    )?;
    house.output(&[
        "call",
        "aegis.agent.create",
        "-a",
        &format!("manifest_yaml={}", manifest()),
    ])?;
    let mut client = house.attach()?;
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
        let asked = json!({ "agent_id": "looker", "intent": "Look." });
        let id = client.call("aegis.task.execute", &asked)?["execution_id"].clone();
        let end = client.call("aegis.task.wait", &json!({ "execution_id": id }))?;
        through.push(began.elapsed().as_secs_f64() * 1e3 / TURNS as f64);
        ensure!(end["status"] == "completed" && end["last_output"] == "Seen.", "{end}");
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

fn manifest() -> String {
    format!(
        "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: looker, version: 1.0.0 }}\nspec:\n  \
         runtime: {{ language: python, version: '3.11', model: near/m }}\n  \
         task: {{ instruction: Look. }}\n  tools: [{TOOL}]\n"
    )
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
    let answer = |delta: Value, finish: &str| {
        let event = |data: Value| format!("data: {data}\n\n");
        let body = event(json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }))
            + &event(
                json!({ "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 1 } }),
            )
            + "data: [DONE]\n\n";
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let asks = answer(json!({ "tool_calls": [call()] }), "tool_calls");
    let done = answer(json!({ "content": "Seen." }), "stop");
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
