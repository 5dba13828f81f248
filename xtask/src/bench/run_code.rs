//! Code in a sandbox's interpreter through the tool, beside the same code asked of the interpreter alone, by a connection
//! within the sandbox's network.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xshell::cmd;

use super::figure::{Figure, Target, median};
use super::{house::BenchDaemon, kit::BenchPrograms, port_url};

const ROUNDS: usize = 25;
const CALLS_A_ROUND: usize = 8;
const CODE: &str = "6 * 7";
/// Where the interpreter listens.
const PORT: u16 = 49_999;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let (shell, hivekeep) = (&kit.repo.shell, kit.hivekeep());
    let build = cmd!(shell, "{hivekeep} image build code-interpreter");
    build.envs(crate::image::environment(kit.repo)).run()?;
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let mut client = house.attach()?;
    let made = json!({ "name": "code", "base_image": "code-interpreter" });
    client.call("workspace_create", &made)?;
    let asked = json!({ "code": CODE, "place": "code" });
    let said = client.call("run_code", &asked)?;
    ensure!(said["results"][0]["text"] == "42", "another answer: {said}");
    let info = client.call("workspace_info", &json!({ "workspace_id": "code" }))?;
    let pid = info["machine"]["pid"].as_u64().context("a sandbox has a process")?;
    let mut alone = Interpreter(port_url::within(pid, PORT)?);
    alone.0.set_nodelay(true)?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        for _ in 0..CALLS_A_ROUND {
            let began = Instant::now();
            alone.run()?;
            let alone_took = began.elapsed().as_secs_f64() * 1e3;
            let (took, said) = client.timed("run_code", &asked)?;
            ensure!(said["results"][0]["text"] == "42", "another answer: {said}");
            // The first round warms up.
            if round > 0 {
                beside.push(alone_took);
                through.push(took.as_secs_f64() * 1e3);
            }
        }
    }
    Ok(vec![Figure {
        name: "run_code",
        unit: "ms",
        value: median(through),
        baseline: Some(median(beside)),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "`{CODE}` by run_code over stdio, in a kernel that runs; the baseline is the same by the interpreter's own HTTP"
        ),
    }])
}

/// The interpreter itself.
struct Interpreter(TcpStream);

impl Interpreter {
    /// Waits for the last chunk of the answer.
    fn run(&mut self) -> Result<()> {
        let body =
            json!({ "code": CODE, "context_id": Value::Null, "language": "python" }).to_string();
        let length = body.len();
        let request = format!(
            "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        self.0.write_all(request.as_bytes())?;
        let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
        while !answer.ends_with(b"0\r\n\r\n") {
            let count = self.0.read(&mut piece)?;
            ensure!(count > 0, "the interpreter closed the connection");
            answer.extend_from_slice(&piece[..count]);
        }
        ensure!(answer.windows(4).any(|it| it == b"\"42\""), "another answer");
        Ok(())
    }
}
