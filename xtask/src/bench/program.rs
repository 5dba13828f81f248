//! Codex as an agent in a sandbox, beside the same program on the host: over one script, and without a network.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bare::Ended;
use super::figure::{Figure, Target, median};
use super::{agents, kit, model::configured};
use super::{house::BenchDaemon, kit::BenchPrograms};
use crate::test::outside::KeptCodex;

const ROUNDS: usize = 15;
/// Last words of the script's model, once it has the result of its command.
const DONE: &str = "The file is written.";
/// Arguments of bwrap: no network on the host either, where the program would ask its maker's servers.
const APART: [&str; 6] = ["--dev-bind", "/", "/", "--unshare-net", "--die-with-parent", "python3"];

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let codex = KeptCodex::new(kit.repo, kit.hivekeep())?;
    let script = kit.repo.root.join("tests/clients/time_program.py");
    let mut provider = Command::new("python3");
    provider.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut provider = Ended(provider.spawn().context("start python3")?);
    let mut port = String::new();
    let said = provider.0.stdout.take().context("a piped child has an output")?;
    BufReader::new(said).read_line(&mut port)?;

    let address = format!("127.0.0.1:{}", port.trim());
    // Machines that are kept would keep the image.
    let agent = "[agent]\nkeep_workspace_secs = 0\n";
    let config = format!("isolation = \"sandbox\"\n{}{agent}", configured(&address));
    let house = BenchDaemon::open(kit, &config)?;
    let mut client = house.attach()?;
    let runtime = format!("image: {}, program: codex", KeptCodex::IMAGE);
    // As a machine is that nobody asks for less.
    let more = "tools: []\n  security: { resources: { cpu: 2000, memory: 512Mi } }";
    agents::deploy(&house, "coder", &runtime, more)?;
    let (mut through, mut beside) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        let mut alone = Command::new("bwrap");
        alone.args(APART).arg(&script).arg(kit.repo.root.join("actors/agent/programs/codex.toml"));
        alone.current_dir(&kit.repo.target).env("PATH", &codex.path);
        let alone: f64 = kit::output(alone)?.trim().parse().context("a time")?;

        let began = Instant::now();
        let id = agents::execute(&mut client, "coder", false)?;
        let output = agents::ended(&mut client, &id)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        ensure!(output == DONE, "{output}");
        agents::at_rest(&mut client)?;
        // The first of each finds the program's files cold.
        if round > 0 {
            beside.push(alone);
            through.push(took);
        }
    }
    Ok(vec![Figure {
        name: "program_codex",
        unit: "ms",
        value: median(through),
        baseline: Some(median(beside)),
        target: Target::AtMostTimes(1.5),
        remark: "from aegis.task.execute until aegis.task.wait has its end, of Codex in a sandbox, whose model has it \
                 run a command; the baseline is the same program by the same arguments on the host, over the same \
                 model"
            .to_owned(),
    }])
}
