//! Steps of DAGs, beside durable appends and commands in the same workspace.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::kit::output;
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms, memory};

const ROUNDS: usize = 9;
/// Steps of a chain that do nothing, and of one of commands.
const NOOPS: usize = 1_000;
const COMMANDS: usize = 20;
const FANNED_OUT: usize = 1_000;
const PATIENCE_SECS: u64 = 300;
const WORKSPACE: &str = "bench";
const CONFIG: &str = "isolation = \"sandbox\"\n";

/// Steps that do nothing, one after the other.
pub(super) fn steps(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, CONFIG)?;
    let mut client = house.attach()?;
    let (mut ours, mut appends) = (Vec::new(), Vec::new());
    for _ in 0..kit.rounds(ROUNDS) {
        let mut bench = kit.baseline("journal-bench");
        bench.args(["--loop", &NOOPS.to_string()]);
        let told: Value = serde_json::from_str(&output(bench)?)?;
        appends.push(told["appends_per_sec"].as_f64().context("journal-bench tells a rate")?);
        let secs = run_secs(&mut client, &chain(NOOPS, "action: noop"))?;
        ours.push(NOOPS as f64 / secs);
    }
    Ok(vec![Figure {
        name: "steps_per_sec",
        unit: "steps/s",
        value: median(ours),
        baseline: Some(median(appends)),
        target: Target::AtLeastTimes(0.333),
        remark: format!(
            "a chain of {NOOPS} steps that do nothing, from dag_start until dag_runs has the end; the baseline is a loop \
             of appends to the journal, each durable before the next"
        ),
    }])
}

/// Commands as steps and by `exec`, through a client and by the command line.
pub(super) fn commands(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, CONFIG)?;
    let mut client = house.attach()?;
    client.call("workspace_create", &json!({ "name": WORKSPACE }))?;
    let mut dag = chain(COMMANDS, "run: 'true'");
    dag["place"] = WORKSPACE.into();
    let exec = json!({ "workspace_id": WORKSPACE, "command": "true" });
    let file = house.path().join("hello.yaml");
    fs::write(&file, "steps:\n- run: echo hello\n")?;
    let file = file.to_string_lossy();
    // The command line has a session of its own, and workspaces are their sessions'.
    house.output(&["call", "workspace_create", "-a", "name=line"])?;
    let by_line = ["-a", "workspace_id=line", "-a", "command=echo hello"];
    let by_line = [&["call", "exec"][..], &by_line].concat();
    let (mut steps, mut execs, mut files, mut lines) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        execs.extend(client.round_trips_us("exec", &exec, COMMANDS)?);
        steps.push(run_secs(&mut client, &dag)? * 1e6 / COMMANDS as f64);
        for (args, all) in [(&by_line[..], &mut lines), (&["run", &file], &mut files)] {
            let began = Instant::now();
            let said = house.output(args)?;
            all.push(began.elapsed().as_secs_f64() * 1e3);
            ensure!(said.contains("hello"), "{said}");
        }
        if round == 0 {
            [&mut steps, &mut execs, &mut files, &mut lines].into_iter().for_each(Vec::clear);
        }
    }
    let figures = vec![
        Figure {
            name: "dag_command_step",
            unit: "us",
            value: median(steps),
            baseline: Some(median(execs)),
            target: Target::AtMostTimes(1.5),
            remark: format!(
                "`true` in a sandbox, as each of {COMMANDS} steps of a chain; a step is recorded before and behind its \
                 command, by the daemon and by the guest"
            ),
        },
        Figure {
            name: "dag_run_file",
            unit: "ms",
            value: median(files),
            baseline: Some(median(lines)),
            target: Target::AtMostTimes(1.5),
            remark: "`hivekeep run` of a file with one step, which makes its sandbox; the baseline is `hivekeep call \
                     exec` of the same command in one that runs"
                .to_owned(),
        },
    ];
    Ok(figures.into_iter().filter(|figure| kit.wants(figure.name)).collect())
}

/// Items of a loop, each a run of its own.
pub(super) fn fan_out(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, CONFIG)?;
    let mut client = house.attach()?;
    let items: Vec<_> = (0..FANNED_OUT).collect();
    let noop = json!([{ "id": "one", "action": "noop" }]);
    let step = json!({ "id": "all", "foreach": { "items": items, "steps": noop } });
    let dag = json!({ "yaml": json!({ "steps": [step] }).to_string() });
    run_secs(&mut client, &dag)?;
    let before_kib = memory::rss_kib(house.pid())?;
    let (mut taken, mut peak_kib) = (Vec::new(), 0f64);
    for _ in 0..kit.rounds(ROUNDS) {
        let (peak, took) = memory::while_sampling(house.pid(), || run_secs(&mut client, &dag))?;
        taken.push(took * 1e3);
        peak_kib = peak_kib.max(peak);
    }
    Ok(vec![Figure {
        name: "fan_out_1000",
        unit: "ms",
        value: median(taken),
        baseline: None,
        target: Target::Stated,
        remark: format!(
            "a loop over {FANNED_OUT} items, each a run with a step that does nothing; at most {} MiB more than before",
            round((peak_kib - before_kib) / 1024.0)
        ),
    }])
}

/// Request for a run of equal steps, one after the other.
fn chain(steps: usize, step: &str) -> Value {
    json!({ "yaml": format!("type: chain\nsteps:\n{}", format!("- {step}\n").repeat(steps)) })
}

/// Time of a run that succeeds.
fn run_secs(client: &mut StdioClient, dag: &Value) -> Result<f64> {
    let began = Instant::now();
    let id = client.call("dag_start", dag)?["run_id"].take();
    let run = ended(client, &id)?;
    let secs = began.elapsed().as_secs_f64();
    ensure!(run["status"] == "succeeded", "{run}");
    Ok(secs)
}

/// A run that is over, with its first steps.
pub(super) fn ended(client: &mut StdioClient, id: &Value) -> Result<Value> {
    let asked = json!({ "run_id": id, "wait_secs": PATIENCE_SECS, "limit": 1 });
    Ok(client.call("dag_runs", &asked)?["run"].take())
}
