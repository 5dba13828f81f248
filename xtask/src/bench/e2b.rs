//! E2B's Python SDK against this daemon: a sandbox and its first command, beside the same calls of the same SDK against
//! a stub that answers at once.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::bare::Ended;
use super::figure::{Figure, Target, median, round};
use super::{house::BenchDaemon, kit::BenchPrograms, pool, stub_server};
use crate::test::outside::e2b::newest_python;

const ROUNDS: usize = 15;
const READY: u64 = 2;
const BURST: usize = 100;
const BURSTS: usize = 3;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if kit.wants("e2b_create_first_command") {
        figures.push(first_command(kit)?);
    }
    if kit.wants("e2b_sandbox_first_command") {
        figures.push(sandbox_first_command(kit)?);
    }
    if kit.wants("e2b_burst_100") {
        figures.push(burst(kit)?);
    }
    Ok(figures)
}

/// A daemon with the door open.
fn open(kit: &BenchPrograms<'_>, isolation: &str, more: &str) -> Result<(BenchDaemon, Side)> {
    let house = BenchDaemon::open(
        kit,
        &format!(
            "isolation = \"{isolation}\"\n{more}[http.e2b]\nenabled = true\nbind = \"127.0.0.1:0\"\n\
             isolation = \"{isolation}\"\n"
        ),
    )?;
    let status: Value = serde_json::from_str(&house.output(&["status", "--json"])?)?;
    let url = status["e2b"].as_str().context("the door is open")?.to_owned();
    let credential = house.output(&["credential", "create", "bench", "--scope", "session"])?;
    let key = credential.trim().replacen("hivekeep_", "e2b_", 1);
    Ok((house, Side { url, key }))
}

fn first_command(kit: &BenchPrograms<'_>) -> Result<Figure> {
    let more = format!(
        "[workspace.driver]\ncarrier = \"virtio-serial\"\n[[workspace.pool.classes]]\nready = {READY}\n"
    );
    let (house, ours) = open(kit, "vm", &more)?;
    let mut client = house.attach()?;
    // What is made meanwhile would be measured too.
    let (through, beside) = in_turns(kit, &ours, || pool::full(&mut client, READY))?;
    Ok(Figure {
        name: "e2b_create_first_command",
        unit: "ms",
        value: through,
        baseline: Some(beside),
        target: Target::AtMostTimes(3.0),
        remark: "Sandbox.create and commands.run through the Python SDK, of a virtual machine from the pool; the \
                 baseline is a stub that answers the same requests at once"
            .to_owned(),
    })
}

fn sandbox_first_command(kit: &BenchPrograms<'_>) -> Result<Figure> {
    let (_house, ours) = open(kit, "sandbox", "")?;
    let (through, beside) = in_turns(kit, &ours, || Ok(()))?;
    Ok(Figure {
        name: "e2b_sandbox_first_command",
        unit: "ms",
        value: through,
        baseline: Some(beside),
        target: Target::Stated,
        remark: "the same of a sandbox, which no pool has ready".to_owned(),
    })
}

/// Median time of a sandbox and its first command here, and at the stub, in turns.
fn in_turns(
    kit: &BenchPrograms<'_>,
    ours: &Side,
    mut ready: impl FnMut() -> Result<()>,
) -> Result<(f64, f64)> {
    let (stub, mut sdk) = (stub()?, Sdk::start(kit)?);
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        ready()?;
        let (stubbed, took) = (sdk.turn(&stub, 1)?, sdk.turn(ours, 1)?);
        // The first round loads the SDK's own code.
        if round > 0 {
            beside.push(stubbed);
            through.push(took);
        }
    }
    Ok((median(through), median(beside)))
}

fn burst(kit: &BenchPrograms<'_>) -> Result<Figure> {
    let (_house, ours) = open(kit, "sandbox", "")?;
    let stub = stub()?;
    let mut sdk = Sdk::start(kit)?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(BURSTS) {
        beside.push(sdk.turn(&stub, BURST)?);
        through.push(sdk.turn(&ours, BURST)?);
    }
    let took = median(through);
    Ok(Figure {
        name: "e2b_burst_100",
        unit: "ms",
        value: took,
        baseline: Some(median(beside)),
        target: Target::Stated,
        remark: format!(
            "{BURST} sandboxes that are created at once by as many threads of one Python program, each until its first \
             command has run; {} ms for each; the baseline is the stub",
            round(took / BURST as f64)
        ),
    })
}

/// What the SDK speaks to.
struct Side {
    url: String,
    key: String,
}

/// The SDK, which takes turns.
struct Sdk {
    turns: ChildStdin,
    times: BufReader<ChildStdout>,
    _process: Ended,
}

impl Sdk {
    fn start(kit: &BenchPrograms<'_>) -> Result<Self> {
        let mut command = Command::new("python3");
        command.arg(kit.repo.root.join("tests/clients/time_e2b.py"));
        command.env("PYTHONPATH", newest_python(kit.repo)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("start python3")?;
        let turns = process.stdin.take().context("a piped child has an input")?;
        let times = process.stdout.take().context("a piped child has an output")?;
        Ok(Self { turns, times: BufReader::new(times), _process: Ended(process) })
    }

    /// So many sandboxes at once, each with a first command: milliseconds until all are done.
    fn turn(&mut self, side: &Side, count: usize) -> Result<f64> {
        writeln!(self.turns, "{} {} {count}", side.url, side.key)?;
        let mut line = String::new();
        self.times.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the SDK failed against {}", side.url);
        line.trim().parse().context("a time")
    }
}

/// Answers what the SDK asks for at once.
fn stub() -> Result<Side> {
    let made = json!({
        "templateID": "base", "sandboxID": "istub", "clientID": "stub", "envdVersion": "0.6.4",
        "envdAccessToken": "token",
    });
    let events = [
        json!({ "event": { "start": { "pid": 1 } } }),
        json!({ "event": { "data": { "stdout": "aGVsbG8K" } } }),
        json!({ "event": { "end": { "exitCode": 0, "exited": true, "status": "exit status 0" } } }),
    ];
    let mut stream: Vec<u8> = events.iter().flat_map(|event| envelope(0, event)).collect();
    stream.extend(envelope(2, &json!({})));
    let created = response("201 Created", "application/json", made.to_string().as_bytes());
    let ran = response("200 OK", "application/connect+json", &stream);
    let address = stub_server::serve(move |first| match first.split(' ').nth(1) {
        Some("/v2/sandboxes") => created.clone(),
        Some("/process.Process/Start") => ran.clone(),
        _ => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
    })?;
    Ok(Side { url: format!("http://{address}"), key: "e2b_00".to_owned() })
}

fn response(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// A message of Connect's streams.
fn envelope(flags: u8, message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&[flags], &length.to_be_bytes()[..], text.as_bytes()].concat()
}
