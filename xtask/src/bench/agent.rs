//! Turns of an agent: their time beside a bare loop over the same provider and the same tool, and their records beside
//! what is said in them.

use std::fs;
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
/// Turns of an execution whose records are measured, and the text that is read in each.
const READS: usize = 100;
const READ_BYTES: usize = 5 * 1024;
/// Allowed beyond the ratio: two records of each turn on a disk.
const DURABLE_MS: f64 = 5.0;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let provide = || provide(&call(), TURNS);
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

/// What an execution adds to the journal of its daemon, beside the messages of its conversation.
pub(super) fn growth(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let arguments = json!({ "path": "text" });
    let function = json!({ "name": "fs_read", "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": "c", "type": "function", "function": function });
    let folder = kit.repo.shell.create_temp_dir()?;
    fs::write(folder.path().join("text"), "x".repeat(READ_BYTES))?;
    let config = format!(
        "{}[agent]\nmax_turns = 200\n[session.places.texts]\nfolder = {:?}\n[store]\nevents_kept = 1\n",
        configured(&provide(&call, READS)?),
        folder.path()
    );
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    agents::deploy(&house, "reader", agents::PYTHON, "tools: [fs.read]")?;
    let read = client.call("fs.read", &arguments)?;
    let said = READS * (function.to_string().len() + read.to_string().len());
    let journal = || -> Result<f64> {
        let status: Value = serde_json::from_str(&house.output(&["status", "--json"])?)?;
        status["journal"]["live_bytes"].as_f64().context("a size")
    };
    let before = journal()?;
    let id = agents::execute(&mut client, "reader", false)?;
    let output = agents::ended(&mut client, &id)?;
    ensure!(output == "Seen.", "{output}");
    Ok(vec![Figure {
        name: "agent_log_growth",
        unit: "KiB",
        value: (journal()? - before) / 1024.0,
        baseline: Some(said as f64 / 1024.0),
        target: Target::AtMostTimes(1.3),
        remark: format!(
            "what the journal has more behind an execution of {READS} calls, each of which reads {} KiB, the daemon's \
             events aside, which are bounded; the baseline are these calls and their results, each once",
            READ_BYTES / 1024
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
fn provide(call: &Value, turns: usize) -> Result<String> {
    let asks = agents::answer(&json!({ "tool_calls": [call] }), "tool_calls");
    let done = agents::answer(&json!({ "content": "Seen." }), "stop");
    let asked = Arc::new(AtomicUsize::new(0));
    stub_server::serve(move |first| {
        let turn = match first.starts_with("POST") {
            true => asked.fetch_add(1, SeqCst) % (turns + 1),
            false => turns,
        };
        if turn < turns { asks.clone() } else { done.clone() }
    })
    .context("a provider")
}
