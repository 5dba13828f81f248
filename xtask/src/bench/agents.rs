//! Executions of agents: their first request with a ready machine, a thousand that wait, a hundred at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};
use super::{memory::rss_kib, model::configured, pool, stub_server};

const ROUNDS: usize = 15;
const RESTARTS: usize = 5;
const WAITING: usize = 1_000;
const AT_ONCE: usize = 100;
/// Turns of an execution of the hundred, on the average.
const TURNS: usize = 20;
/// Tool that is called in each of these turns but the last.
const TOOL: &str = "workspace_list";
/// The daemon gives memory back every ten seconds.
const REST: Duration = Duration::from_secs(12);
const PATIENCE: Duration = Duration::from_secs(60);

/// From `aegis.task.execute` until the provider has the first request, of an agent whose machine the pool has ready.
pub(super) fn start(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (asked, came) = channel();
    let address = stub_server::serve(move |_| {
        // A bench that is over does not listen.
        let _over = asked.send(Instant::now());
        answer(&json!({ "content": "Seen." }), "stop")
    })?;
    let config = format!(
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n\
         [[workspace.pool.classes]]\nready = 1\n{}",
        configured(&address)
    );
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    deploy(&house, "starter", &format!("{PYTHON}, isolation: microvm"), "tools: [bash]")?;
    let (mut starts, mut claims) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        at_rest(&mut client)?;
        pool::full(&mut client, 1)?;
        let began = Instant::now();
        client.call("workspace_create", &json!({ "name": "claimed" }))?;
        let exec = json!({ "workspace_id": "claimed", "command": "true" });
        client.call("exec", &exec)?;
        claims.push(began.elapsed().as_secs_f64() * 1e3);
        client.call("workspace_destroy", &json!({ "workspace_id": "claimed" }))?;

        pool::full(&mut client, 1)?;
        let began = Instant::now();
        let id = execute(&mut client, "starter", false)?;
        starts.push(requested(&came, 1)?.duration_since(began).as_secs_f64() * 1e3);
        ended(&mut client, &id)?;
    }
    let status = client.call("pool_status", &json!({}))?;
    let all_ready = status["classes"][0]["claimed"] == starts.len() * 2;
    ensure!(all_ready, "not all machines were ready ones: {status}");
    Ok(vec![Figure {
        name: "agent_start",
        unit: "ms",
        value: median(starts),
        baseline: Some(median(claims)),
        target: Target::AtMostTimes(2.0),
        remark: "from aegis.task.execute until the provider has the first request of an agent with a machine; the \
                 baseline is workspace_create and a first exec, of the same pool"
            .to_owned(),
    }])
}

/// Executions that wait for a message: what each holds in memory, and what they cost a start after SIGKILL.
pub(super) fn waiting(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let address = stub_server::serve(move |_| {
        counted.fetch_add(1, SeqCst);
        answer(&json!({ "content": "Go on." }), "stop")
    })?;
    // Of each bound three quarters are one user's.
    let config = format!(
        "{}[agent]\nmax_running = 2000\n[registry.sessions]\nmax_sessions = 2000\n",
        configured(&address)
    );
    let (mut house, mut empty) =
        (BenchDaemon::open(kit, &config)?, BenchDaemon::open(kit, &config)?);
    let mut client = house.attach()?;
    deploy(&house, "talker", PYTHON, "tools: []")?;
    execute(&mut client, "talker", true)?;
    std::thread::sleep(REST);
    let before_kib = rss_kib(house.pid())?;
    let mut last = Value::Null;
    for _ in 0..WAITING {
        last = execute(&mut client, "talker", true)?;
    }
    let began = Instant::now();
    while asked.load(SeqCst) <= WAITING {
        ensure!(began.elapsed() < 5 * PATIENCE, "the model was asked {asked:?} times");
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(REST);
    let held_bytes = (rss_kib(house.pid())? - before_kib) * 1024.0 / WAITING as f64;
    drop(client);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(RESTARTS) {
        without.push(empty.kill_and_start_again()?.as_secs_f64() * 1e3);
        with.push(house.kill_and_start_again()?.as_secs_f64() * 1e3);
    }
    let asked = json!({ "execution_id": last });
    let status = house.attach()?.call("aegis.task.status", &asked)?;
    ensure!(status["waiting_for"] == "message", "{status}");
    let figures = vec![
        Figure {
            name: "waiting_1000",
            unit: "bytes",
            value: held_bytes,
            baseline: None,
            target: Target::AtMost(8192.0),
            remark: format!("resident memory of each of {WAITING} chats that wait for their next message"),
        },
        Figure {
            name: "waiting_1000_start",
            unit: "ms",
            value: median(with),
            baseline: Some(median(without)),
            target: Target::AtMostTimes(1.3),
            remark: "from the start after SIGKILL until `hivekeep status` answers, with these chats; the baseline is a \
                     daemon without them"
                .to_owned(),
        },
    ];
    Ok(figures.into_iter().filter(|figure| kit.wants(figure.name)).collect())
}

/// Executions at a time, each with turns of a model that answers at once and a call in each of them.
pub(super) fn at_once(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    // Each answer of so many is an execution's last: as many ends as executions.
    let address = stub_server::serve(move |_| match counted.fetch_add(1, SeqCst) % TURNS {
        0 => answer(&json!({ "content": "Seen." }), "stop"),
        _ => {
            let function = json!({ "name": TOOL, "arguments": "{}" });
            let call = json!({ "index": 0, "id": "c", "type": "function", "function": function });
            answer(&json!({ "tool_calls": [call] }), "tool_calls")
        }
    })?;
    let config = format!("{}[agent]\nmax_running = 200\nmax_turns = 1000\n", configured(&address));
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    deploy(&house, "looker", PYTHON, &format!("tools: [{TOOL}]"))?;
    let began = Instant::now();
    let begun = (0..AT_ONCE).map(|_| execute(&mut client, "looker", false));
    let ids: Vec<_> = begun.collect::<Result<_>>()?;
    for id in &ids {
        ended(&mut client, id)?;
    }
    let took = began.elapsed().as_secs_f64();
    let turns = asked.load(SeqCst);
    Ok(vec![Figure {
        name: "executions_100",
        unit: "turns/s",
        value: turns as f64 / took,
        baseline: None,
        target: Target::Stated,
        remark: format!(
            "{AT_ONCE} executions at a time with {turns} turns in all, each but the last of an execution with one call \
             of {TOOL}; from the first aegis.task.execute until all have ended"
        ),
    }])
}

/// Language of an agent that names no image.
pub(super) const PYTHON: &str = "language: python, version: '3.11'";

/// Deploys an agent of the model `near/m`. `runtime` is a part of a map of YAML, `more` are lines of `spec`.
pub(super) fn deploy(house: &BenchDaemon, name: &str, runtime: &str, more: &str) -> Result<()> {
    let manifest = format!(
        "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {{ name: {name}, version: 1.0.0 }}\nspec:\n  \
         runtime: {{ {runtime}, model: near/m }}\n  \
         task: {{ instruction: Look. }}\n  {more}\n"
    );
    house.output(&["call", "aegis.agent.create", "-a", &format!("manifest_yaml={manifest}")])?;
    Ok(())
}

/// Begins an execution; its id.
pub(super) fn execute(client: &mut StdioClient, agent: &str, chat: bool) -> Result<Value> {
    let asked = json!({ "agent_id": agent, "intent": "Look.", "chat": chat });
    Ok(client.call("aegis.task.execute", &asked)?["execution_id"].take())
}

/// Waits for an execution, which has to complete; its last output.
pub(super) fn ended(client: &mut StdioClient, id: &Value) -> Result<Value> {
    let asked = json!({ "execution_id": id, "timeout_seconds": PATIENCE.as_secs() * 5 });
    let mut end = client.call("aegis.task.wait", &asked)?;
    ensure!(end["status"] == "completed", "{end}");
    Ok(end["last_output"].take())
}

/// Waits until the machines of executions that are over have stopped.
pub(super) fn at_rest(client: &mut StdioClient) -> Result<()> {
    let began = Instant::now();
    loop {
        let listed = client.call("workspace_list", &json!({}))?;
        let mut rows = listed["workspaces"].as_array().context("workspaces are listed")?.iter();
        if rows.all(|row| row["owned"] == true || row["state"] == "stopped") {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "a machine goes on: {listed}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Time at which the provider was asked for the last of so many times.
pub(super) fn requested(came: &Receiver<Instant>, times: usize) -> Result<Instant> {
    let times: Result<Vec<_>, _> = (0..times).map(|_| came.recv_timeout(PATIENCE)).collect();
    times.context("the provider was not asked")?.pop().context("it is asked once at least")
}

/// An answer of a model as a stream of events, over HTTP.
pub(super) fn answer(delta: &Value, finish: &str) -> Vec<u8> {
    let event = |data: Value| format!("data: {data}\n\n");
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 1 });
    let body = event(json!({ "choices": [{ "delta": delta, "finish_reason": finish }] }))
        + &event(json!({ "choices": [], "usage": usage }))
        + "data: [DONE]\n\n";
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: ";
    format!("{head}{length}\r\n\r\n{body}").into_bytes()
}
