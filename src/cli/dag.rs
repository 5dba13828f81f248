//! DAGs: `hivekeep run` and `hivekeep dag`.

mod compare;
mod debug;
mod follow;
mod validate;

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use self::{compare::CompareArgs, follow::follow, validate::ValidateArgs};
use super::{
    CliContext, CommandFailure,
    client::Client,
    output::{self, word},
    runs::{call, list},
};

/// Run a DAG and follow it to its end.
///
/// The run goes on when this is ended: `hivekeep dag runs` shows it, `hivekeep dag stop` ends it. A file in a folder that
/// the configuration opens as a place (`[session.places.NAME]`) runs in that folder, in a sandbox; any other one in a
/// workspace that is made for it and gone with it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep run hello.yaml
  hivekeep run build.yaml -- TARGET=release
  hivekeep run nightly --place notes          # dags/nightly.yaml of the place

Exit code 1 when the run did not succeed, 5 when no daemon runs.")]
pub struct RunArgs {
    #[command(flatten)]
    dag: DagArgs,
    /// Print the run as JSON at its end, and nothing before.
    #[arg(long)]
    json: bool,
}

/// DAG and its parameters.
#[derive(Debug, clap::Args)]
struct DagArgs {
    /// Its file, `-` for standard input, or with `--place` a file or a name there.
    #[arg(value_name = "FILE")]
    file: String,
    /// Place of the file and of the commands.
    #[arg(long)]
    place: Option<String>,
    /// Queue that the run waits in for its place.
    #[arg(long)]
    queue: Option<String>,
    /// Priority in the queue: a greater one comes first.
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-100..=100))]
    priority: Option<i32>,
    /// Parameters: NAME=VALUE, or values in their order.
    #[arg(last = true, value_name = "PARAM")]
    params: Vec<String>,
}

/// Check DAGs, run them, and look at their runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep dag validate dags/                 # needs no daemon
  hivekeep dag start build.yaml -- TARGET=release
  hivekeep dag list                           # those that begin by themselves
  hivekeep dag runs
  hivekeep dag runs RUN                       # its steps
  hivekeep dag compare RUN OTHER              # what differs
  hivekeep dag logs RUN build --follow
  hivekeep dag retry RUN --failed
  hivekeep dag debug RUN build                # a shell in a fork of its machine
  hivekeep dag approve RUN release --value version=2")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Validate(ValidateArgs),
    Start(StartArgs),
    List(ListArgs),
    Runs(RunsArgs),
    Compare(CompareArgs),
    Logs(LogsArgs),
    Stop(OfRun),
    Retry(RetryArgs),
    Again(OfRun),
    Debug(OfStep),
    #[command(visible_alias = "complete")]
    Approve(Decision),
    Reject(Decision),
    PushBack(Decision),
}

/// Run the filter of the request on standard input, within bounds of memory and time.
#[derive(Debug, clap::Args)]
pub struct JqArgs {}

/// Answer a step that waits for a person: approve it, reject it, or have it done again.
#[derive(Debug, clap::Args)]
struct Decision {
    /// Id of the run.
    run: String,
    /// Name or id of the step.
    step: String,
    /// Value that the step asks for: NAME=VALUE.
    #[arg(long = "value", short = 'v', value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// Reason, for people.
    #[arg(long)]
    reason: Option<String>,
}

/// Begin a run, and do not wait for it.
#[derive(Debug, clap::Args)]
struct StartArgs {
    #[command(flatten)]
    dag: DagArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// List the DAGs of watched folders (`[workflow] folders`), their next times and their last runs.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The DAG of this name alone.
    name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show runs, the newest first, or one with its steps.
#[derive(Debug, clap::Args)]
struct RunsArgs {
    /// Id of the run to show.
    run: Option<String>,
    /// Runs of this DAG alone.
    #[arg(long, conflicts_with = "run")]
    name: Option<String>,
    /// Seconds to wait for the end of the run.
    #[arg(long, value_name = "SECS", requires = "run", value_parser = clap::value_parser!(u64).range(..=3600))]
    wait: Option<u64>,
    /// Most runs, or most steps of one.
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    limit: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show what a step wrote, or what happened in a run.
#[derive(Debug, clap::Args)]
struct LogsArgs {
    /// Id of the run.
    run: String,
    /// Name or id of the step.
    step: Option<String>,
    /// Go on until the step, or the run, is over.
    #[arg(long, short)]
    follow: bool,
}

/// Begin another run of the same text with the same parameters, or stop a run.
#[derive(Debug, clap::Args)]
struct OfRun {
    /// Id of the run.
    run: String,
}

/// Open a shell in a fork of the machine that a failed step with `fork: true` left.
#[derive(Debug, clap::Args)]
struct OfStep {
    /// Id of the run.
    run: String,
    /// Name or id of the step.
    step: String,
}

/// Do the steps of a run that is over again: all of them, unless it is said which.
#[derive(Debug, clap::Args)]
struct RetryArgs {
    /// Id of the run.
    run: String,
    /// Those that did not succeed, and what is behind them.
    #[arg(long, conflicts_with_all = ["step", "from"])]
    failed: bool,
    /// This step alone.
    #[arg(long, conflicts_with = "from")]
    step: Option<String>,
    /// This step, and what is behind it.
    #[arg(long)]
    from: Option<String>,
    /// Follow the run to its end.
    #[arg(long, short)]
    follow: bool,
}

pub(super) fn run(context: &CliContext, args: &RunArgs) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    let begun = start(context, &mut client, &args.dag)?;
    follow(&mut client, &word(&begun["run_id"]), args.json)
}

pub(super) fn dag(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    if let Action::Validate(validate) = &args.action {
        return validate::run(validate);
    }
    let mut client = context.client()?;
    match &args.action {
        Action::Validate(_) => Ok(()),
        Action::Start(started) => {
            let begun = start(context, &mut client, &started.dag)?;
            match started.json {
                true => Ok(output::json(&begun)?),
                false => Ok(output::text(&format!("{}\n", word(&begun["run_id"])))?),
            }
        }
        Action::List(listed) => dags(&mut client, listed),
        Action::Runs(shown) => runs(&mut client, shown),
        Action::Compare(compared) => compare::compare(&mut client, compared),
        Action::Logs(logs) => {
            follow::logs(&mut client, &logs.run, logs.step.as_deref(), logs.follow)
        }
        Action::Stop(OfRun { run }) => {
            told(&mut client, json!({ "run_id": run, "action": "stop" })).map(drop)
        }
        Action::Debug(OfStep { run, step }) => debug::debug(&mut client, run, step),
        Action::Approve(decision) => decide(&mut client, "approve", decision),
        Action::Reject(decision) => decide(&mut client, "reject", decision),
        Action::PushBack(decision) => decide(&mut client, "push_back", decision),
        Action::Again(OfRun { run }) => {
            told(&mut client, json!({ "run_id": run, "action": "reschedule" })).map(drop)
        }
        Action::Retry(retry) => {
            let (action, step) = match (&retry.step, &retry.from) {
                (Some(step), _) => ("retry_step", Some(step)),
                (None, Some(step)) => ("retry_from", Some(step)),
                (None, None) if retry.failed => ("retry_failed", None),
                (None, None) => ("retry", None),
            };
            let run =
                told(&mut client, json!({ "run_id": retry.run, "action": action, "step": step }))?;
            match retry.follow {
                true => follow(&mut client, &run, false),
                false => Ok(()),
            }
        }
    }
}

fn decide(client: &mut Client, action: &str, decision: &Decision) -> Result<(), CommandFailure> {
    let Decision { run, step, values, reason } = decision;
    let mut texts = Map::new();
    for given in values {
        let Some((name, value)) = given.split_once('=') else {
            return Err(CommandFailure::Usage(format!("--value {given}: expected NAME=VALUE")));
        };
        texts.insert(name.to_owned(), value.into());
    }
    let texts = (!texts.is_empty()).then_some(texts);
    let input =
        json!({ "run_id": run, "step": step, "action": action, "texts": texts, "reason": reason });
    told(client, input).map(drop)
}

/// Changes a run and says what has become of it; its id.
fn told(client: &mut Client, input: Value) -> Result<String, CommandFailure> {
    let answer = call(client, "dag_control", input)?;
    let (run, status) = (word(&answer["run_id"]), word(&answer["status"]));
    let nothing = if answer["changed"] == false { ", as it was" } else { "" };
    output::text(&format!("{run} {status}{nothing}\n"))?;
    Ok(run)
}

fn start(
    context: &CliContext,
    client: &mut Client,
    dag: &DagArgs,
) -> Result<Value, CommandFailure> {
    let mut input = match &dag.place {
        Some(place) => json!({ "file": dag.file, "place": place }),
        None => source(context, &dag.file)?,
    };
    if !dag.params.is_empty() {
        input["params"] = dag.params.iter().map(|given| param(given)).collect();
    }
    if let Some(queue) = &dag.queue {
        input["queue"] = queue.as_str().into();
    }
    if let Some(priority) = dag.priority {
        input["priority"] = priority.into();
    }
    let begun = call(client, "dag_start", input)?;
    for notice in list(&begun["notices"]) {
        eprintln!("{}", hivekeep_door_server::plain::line(&word(notice)));
    }
    Ok(begun)
}

/// `NAME=VALUE` as an object, any other text as itself.
fn param(given: &str) -> Value {
    match given.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Value::Object(Map::from_iter([(name.to_owned(), value.into())]))
        }
        _ => given.into(),
    }
}

/// Way to a file for the daemon: its place where its folder is one, else its text.
fn source(context: &CliContext, file: &str) -> Result<Value, CommandFailure> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(json!({ "yaml": text }));
    }
    let whole = fs::canonicalize(file).map_err(|error| {
        let next = "with --place NAME a file of a place is named";
        CommandFailure::Usage(format!("{file}: {error}; {next}"))
    })?;
    let loaded = context.load()?;
    let places = loaded.config.session.places.iter();
    let opened: Vec<(&String, PathBuf)> =
        places.filter_map(|(name, it)| Some((name, fs::canonicalize(&it.folder).ok()?))).collect();
    let below = |(name, folder): (&String, PathBuf)| -> Option<(String, PathBuf)> {
        Some((name.clone(), whole.strip_prefix(folder).ok()?.to_owned()))
    };
    // The innermost of several folders.
    let found =
        opened.into_iter().filter_map(below).min_by_key(|(_, path)| path.components().count());
    match found {
        Some((place, path)) => Ok(json!({ "file": path, "place": place })),
        None => {
            let name: Option<String> =
                whole.file_stem().map(|name| name.to_string_lossy().chars().take(40).collect());
            let base = validate::base_beside(&whole)?;
            let text = fs::read_to_string(Path::new(&whole))?;
            Ok(json!({ "yaml": text, "base": base, "name": name }))
        }
    }
}

fn runs(client: &mut Client, args: &RunsArgs) -> Result<(), CommandFailure> {
    let mut input = json!({ "run_id": args.run, "name": args.name, "limit": args.limit });
    if let Some(secs) = args.wait {
        input["wait_secs"] = secs.into();
    }
    let answer = call(client, "dag_runs", input)?;
    if args.json {
        return Ok(output::json(&answer)?);
    }
    let run = &answer["run"];
    if run.is_object() {
        return Ok(output::text(&follow::shown(run))?);
    }
    let rows: Vec<_> = list(&answer["runs"])
        .iter()
        .map(|run| {
            vec![
                word(&run["run_id"]),
                word(&run["name"]),
                follow::state(run),
                follow::lasted(run),
                word(&run["trigger"]),
            ]
        })
        .collect();
    if rows.is_empty() {
        let text = "No DAG has run. Run one:\n\n  hivekeep run hello.yaml\n";
        return Ok(output::text(text)?);
    }
    Ok(output::text(&output::table(&["RUN", "DAG", "STATE", "FOR", "BEGUN BY"], &rows))?)
}

fn dags(client: &mut Client, args: &ListArgs) -> Result<(), CommandFailure> {
    let mut all = Vec::new();
    loop {
        let input = json!({ "dags": true, "name": args.name, "limit": 200, "offset": all.len() });
        let page = call(client, "dag_runs", input)?;
        all.extend(list(&page["dags"]).iter().cloned());
        let total = page["total"].as_u64().unwrap_or_default();
        if list(&page["dags"]).is_empty() || all.len() as u64 >= total {
            break;
        }
    }
    if args.json {
        return Ok(output::json(&json!({ "dags": all }))?);
    }
    if all.is_empty() {
        let text = "No folder of DAGs is watched, or none has a DAG of yours. Name one:\n\n  \
            [workflow]\n  folders = [\"NAME\"]          # of [session.places.NAME]\n";
        return Ok(output::text(text)?);
    }
    let row = |dag: &Value| {
        let (problem, last) = (word(&dag["problem"]), &dag["last_run"]);
        let told = match last.is_object() {
            true => format!("{} {}", follow::state(last), word(&last["started_at"])),
            false => String::new(),
        };
        let next = match problem.is_empty() {
            true => word(&dag["next_run_at"]),
            false => problem,
        };
        let file = format!("{}:{}", word(&dag["place"]), word(&dag["file"]));
        vec![word(&dag["name"]), file, next, told]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    Ok(output::text(&output::table(&["DAG", "FILE", "NEXT, OR PROBLEM", "LAST RUN"], &rows))?)
}
