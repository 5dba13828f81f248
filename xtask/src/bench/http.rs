//! A call over the HTTP API that does next to nothing, beside a bare axum handler with the same bodies.

use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bare::Ended;
use super::figure::{Figure, Target, median, round};
use super::http_client::HttpConnection;
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 25;
const CALLS_A_ROUND: usize = 200;
const CALLS_A_BURST: usize = 2_000;
/// Connections with a request each under way.
const IN_FLIGHT: usize = 32;
const PATH: &str = "/api/tools/workspace_list/invoke";
const BODY: &str = r#"{"input":{}}"#;

/// Opens the door, and keeps idle connections for as long as the bench takes.
pub(super) const OPEN: &str = "[http]\nheader_timeout_secs = 600\nwrite_timeout_secs = 600\n\
                               [http.api]\nenabled = true\nbind = \"127.0.0.1:0\"\n";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if kit.wants("http_invoke_p50") {
        figures.push(one_by_one(kit)?);
    }
    if kit.wants("http_invoke_per_sec") {
        figures.push(many(kit)?);
    }
    Ok(figures)
}

/// The door of a daemon.
pub(super) struct BenchDoor {
    pub(super) address: String,
    /// Header line with a credential of scope session.
    pub(super) credential: String,
}

impl BenchDoor {
    pub(super) fn of(house: &BenchDaemon) -> Result<Self> {
        let status: serde_json::Value =
            serde_json::from_str(&house.output(&["status", "--json"])?)?;
        let url = status["http_api"].as_str().context("the door is open")?;
        let (_, rest) = url.split_once("://").context("a URL")?;
        let made = house.output(&["credential", "create", "bench", "--scope", "operator"])?;
        Ok(Self {
            address: rest.trim_end_matches("/api").to_owned(),
            credential: format!("Authorization: Bearer {}\r\n", made.trim()),
        })
    }

    pub(super) fn connect(&self) -> Result<HttpConnection> {
        HttpConnection::open(&self.address)
    }

    /// A call, as it is written.
    pub(super) fn call(&self) -> Vec<u8> {
        let Self { address, credential } = self;
        let (length, kind) = (BODY.len(), "application/json");
        format!(
            "POST {PATH} HTTP/1.1\r\nHost: {address}\r\n{credential}Content-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n{BODY}"
        )
        .into_bytes()
    }
}

/// The bare handler, with the answer that a daemon gave.
struct BareServer {
    door: BenchDoor,
    _process: Ended,
}

impl BareServer {
    /// With so many threads; `None` is as many as there are processors.
    fn start(kit: &BenchPrograms<'_>, like: &BenchDoor, threads: Option<usize>) -> Result<Self> {
        let answer = like.connect()?.answer_to(&like.call())?;
        let answer = String::from_utf8(answer)?;
        let mut command = kit.baseline("bare-http-server");
        if let Some(threads) = threads {
            command.env("TOKIO_WORKER_THREADS", threads.to_string());
        }
        let mut process: Child =
            command.arg(answer).stdout(Stdio::piped()).spawn().context("start the bare server")?;
        let output = process.stdout.take().context("a piped child has an output")?;
        let process = Ended(process);
        let mut address = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut address)?;
        let address = address.trim().to_owned();
        // The same bytes to both, a credential that nobody reads included.
        let door = BenchDoor { address, credential: like.credential.clone() };
        Ok(Self { door, _process: process })
    }
}

fn one_by_one(kit: &BenchPrograms<'_>) -> Result<Figure> {
    let house = BenchDaemon::open(kit, OPEN)?;
    let ours = BenchDoor::of(&house)?;
    let bare = BareServer::start(kit, &ours, None)?;
    let mut sides = [(ours.connect()?, ours.call()), (bare.door.connect()?, bare.door.call())];
    let mut taken = [Vec::new(), Vec::new()];
    for round in 0..=kit.rounds(ROUNDS) {
        for side in [1, 0] {
            let (connection, call) = &mut sides[side];
            for _ in 0..CALLS_A_ROUND {
                let began = Instant::now();
                connection.send(call)?;
                connection.receive()?;
                let took = began.elapsed().as_secs_f64() * 1e6;
                // The first round warms up.
                if round > 0 {
                    taken[side].push(took);
                }
            }
        }
    }
    let [our_us, bare_us] = taken;
    Ok(Figure {
        name: "http_invoke_p50",
        unit: "us",
        value: median(our_us),
        baseline: Some(median(bare_us)),
        target: Target::AtMostTimes(2.0),
        remark: String::new(),
    })
}

/// Threads that the daemon takes unless its configuration says otherwise: half of the processors.
fn daemons_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

fn many(kit: &BenchPrograms<'_>) -> Result<Figure> {
    let house = BenchDaemon::open(kit, &format!("{OPEN}[audit]\nenabled = true\n"))?;
    let ours = BenchDoor::of(&house)?;
    let (equal, all) = (
        BareServer::start(kit, &ours, Some(daemons_threads()))?,
        BareServer::start(kit, &ours, None)?,
    );
    let mut sides = [Crowd::of(&ours)?, Crowd::of(&equal.door)?, Crowd::of(&all.door)?];
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=kit.rounds(ROUNDS) {
        for side in [1, 0, 2] {
            let rate = sides[side].burst(CALLS_A_BURST)?;
            if round > 0 {
                rates[side].push(rate);
            }
        }
    }
    let entries = house.output(&["audit", "list", "--tool", "workspace_list", "--json"])?;
    let (kept, made) = (entries.lines().count(), 2 + CALLS_A_BURST * (kit.rounds(ROUNDS) + 1));
    ensure!(kept >= made, "{kept} of {made} calls are in the audit log");
    let [our_rates, equal_rates, all_rates] = rates;
    Ok(Figure {
        name: "http_invoke_per_sec",
        unit: "calls/s",
        value: median(our_rates),
        baseline: Some(median(equal_rates)),
        target: Target::AtLeastTimes(0.5),
        remark: format!(
            "{IN_FLIGHT} connections with a call each under way; all {made} calls are in the audit log; the bare handler has \
             as many threads as the daemon ({}), with one for each processor it is {} calls/s",
            daemons_threads(),
            round(median(all_rates)),
        ),
    })
}

/// Connections that call at once.
pub(super) struct Crowd {
    connections: Vec<HttpConnection>,
    call: Vec<u8>,
}

impl Crowd {
    pub(super) fn of(door: &BenchDoor) -> Result<Self> {
        let connections = (0..IN_FLIGHT).map(|_| door.connect()).collect::<Result<_>>()?;
        Ok(Self { connections, call: door.call() })
    }

    /// Makes calls, each connection its next one when the one before was answered; calls a second.
    #[expect(clippy::cast_precision_loss, reason = "some thousand")]
    pub(super) fn burst(&mut self, calls: usize) -> Result<f64> {
        let began = Instant::now();
        let count = self.connections.len();
        for connection in self.connections.iter_mut().take(calls) {
            connection.send(&self.call)?;
        }
        for call in 0..calls {
            let connection = &mut self.connections[call % count];
            connection.receive()?;
            if call + count < calls {
                connection.send(&self.call)?;
            }
        }
        Ok(calls as f64 / began.elapsed().as_secs_f64())
    }
}
