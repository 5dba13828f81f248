//! Agents and what they do: `hivekeep agents`, `hivekeep runs`.

use std::{collections::HashMap, thread, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_door_server::plain;
use serde_json::{Value, json};

use super::{
    CliContext, CommandFailure,
    client::{Client, object},
    output::{self, Paint, word},
};
use crate::control::ControlMethod;

/// Pause between two looks of `--watch` and `--follow`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most events of one page.
const PAGE: usize = 200;
/// Characters of a cell that others wrote.
const CELL_CHARS: usize = 72;

/// Show the agents that can be run.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep agents
  hivekeep call aegis.agent.create -a manifest_yaml=- < reviewer.yaml
  hivekeep call aegis.task.execute -a agent_id=reviewer -a intent='review sum.sh'")]
pub struct AgentsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show the executions of agents, the newest first, or one of them.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hivekeep runs
  hivekeep runs --agent reviewer --limit 5
  hivekeep runs --watch                   # each again whenever its state changes
  hivekeep runs show ID --follow          # its events, until it is over
  hivekeep call aegis.task.cancel -a execution_id=ID"
)]
pub struct Args {
    /// Executions of this agent alone: its id or name.
    #[arg(long)]
    agent: Option<String>,
    /// Most executions to show.
    #[arg(long, short = 'n', default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=200))]
    limit: u64,
    /// Go on, and show each again whenever its state changes.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Show(Show),
}

/// Show an execution: each prompt, each answer of the model, each call with its result.
#[derive(Debug, clap::Args)]
struct Show {
    /// Its id.
    id: String,
    /// Go on until it is over. Exit code 1 when it did not complete.
    #[arg(long, short)]
    follow: bool,
    /// Print each event as a line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn agents(context: &CliContext, args: &AgentsArgs) -> Result<(), CommandFailure> {
    let listed = call(&mut context.client()?, "aegis.agent.list", json!({}))?;
    if args.json {
        return Ok(output::json(&listed)?);
    }
    let row = |agent: &Value| {
        let labels = agent["labels"].as_object().into_iter().flatten();
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={}", word(value))).collect();
        vec![
            word(&agent["name"]),
            word(&agent["version"]),
            labels.join(","),
            word(&agent["next_run_at"]),
            cell(&word(&agent["description"])),
        ]
    };
    let rows: Vec<_> = list(&listed["agents"]).iter().map(row).collect();
    if rows.is_empty() {
        let text = "No agent is deployed. Deploy one:\n\n  \
                    hivekeep call aegis.agent.create -a manifest_yaml=- < agent.yaml\n";
        return Ok(output::text(text)?);
    }
    Ok(output::text(&output::table(
        &["AGENT", "VERSION", "LABELS", "NEXT RUN", "WHAT IT DOES"],
        &rows,
    ))?)
}

pub(super) fn run(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let mut client = context.client()?;
    match &args.action {
        Some(Action::Show(show)) => events(&mut client, show),
        None if args.watch => watch(&mut client, args),
        None => {
            let listed = listed(&mut client, args)?;
            if args.json {
                return Ok(output::json(&listed)?);
            }
            let shown = list(&listed["executions"]);
            let rows: Vec<_> = shown.iter().map(row).collect();
            let mut text = output::table(&HEAD, &rows);
            let total = listed["total"].as_u64().unwrap_or_default();
            let left = total.saturating_sub(shown.len() as u64);
            if left > 0 {
                text.push_str(&format!("and {left} older ones: --limit shows more\n"));
            }
            Ok(output::text(&text)?)
        }
    }
}

const HEAD: [&str; 6] = ["EXECUTION", "AGENT", "STATE", "FOR", "OWNER", "TASK"];

fn listed(client: &mut Client, args: &Args) -> Result<Value, CommandFailure> {
    let input = json!({ "agent_id": args.agent, "limit": args.limit });
    call(client, "aegis.task.list", input)
}

fn row(run: &Value) -> Vec<String> {
    vec![
        word(&run["id"]),
        format!("{} {}", word(&run["agent"]), word(&run["version"])),
        state(run),
        lasted(run).map(output::age).unwrap_or_default(),
        word(&run["owner"]),
        cell(&word(&run["summary"])),
    ]
}

/// Status, and what it waits for.
fn state(run: &Value) -> String {
    match run["waiting_for"].as_str() {
        Some(what) => format!("waits for {what}"),
        None => word(&run["status"]),
    }
}

/// Time from its beginning to its end, or until now.
fn lasted(run: &Value) -> Option<Duration> {
    let time = |key: &str| run[key].as_str()?.parse::<DateTime<Utc>>().ok();
    (time("ended_at").unwrap_or_else(Utc::now) - time("started_at")?).to_std().ok()
}

/// Shows rows as they change, until the person leaves.
fn watch(client: &mut Client, args: &Args) -> Result<(), CommandFailure> {
    let mut shown = HashMap::new();
    loop {
        let listed = listed(client, args)?;
        let mut news = Vec::new();
        // The oldest first, as they are read from above.
        for run in list(&listed["executions"]).iter().rev() {
            let (id, state) = (word(&run["id"]), state(run));
            if shown.insert(id, state.clone()) != Some(state) {
                news.push(row(run));
            }
        }
        if !news.is_empty() {
            let text = output::table(&HEAD, &news);
            output::text(text.split_once('\n').map_or(&*text, |(_, rows)| rows))?;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Prints events, with `--follow` until the last one.
fn events(client: &mut Client, show: &Show) -> Result<(), CommandFailure> {
    let (mut offset, paint) = (0, Paint::stdout());
    loop {
        let input = json!({ "execution_id": show.id, "limit": PAGE, "offset": offset });
        let page = call(client, "aegis.task.logs", input)?;
        let events = list(&page["events"]);
        for event in events {
            match show.json {
                true => output::json_line(event)?,
                false => output::painted(&line(event, paint))?,
            }
        }
        offset += events.len();
        if offset < usize::try_from(page["total"].as_u64().unwrap_or_default()).unwrap_or(0) {
            continue;
        }
        let status = word(&page["status"]);
        let over = ["completed", "failed", "cancelled"].contains(&status.as_str());
        match (over, show.follow) {
            (true, true) if status != "completed" => return Err(CommandFailure::Reported),
            (true, _) | (_, false) => return Ok(()),
            (false, true) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// An event as a line, with what a person looks for in it.
pub(super) fn line(event: &Value, paint: Paint) -> String {
    let (kind, payload) = (word(&event["event_type"]), &event["payload"]);
    let text = |key: &str| plain::line(&cell(&word(&payload[key]))).into_owned();
    let called = |call: &Value| format!("{}()", word(&call["name"]));
    let what = match &*kind {
        "iteration_started" => text("prompt"),
        "llm_interaction" => {
            let calls: Vec<_> = list(&payload["calls"]).iter().map(called).collect();
            format!("{} {}", text("text"), plain::line(&cell(&calls.join(" "))))
        }
        "execution_completed" => text("output"),
        kind if kind.starts_with("tool_invocation") => {
            let failed = plain::line(&cell(&word(&payload["error"]["message"]))).into_owned();
            let result = if failed.is_empty() { text("result") } else { failed };
            format!("{}: {result}", text("name"))
        }
        _ if payload["error"].is_object() => {
            plain::line(&cell(&word(&payload["error"]["message"]))).into_owned()
        }
        _ => String::new(),
    };
    let kind = plain::line(&kind).into_owned();
    let shown = match () {
        () if kind.ends_with("_failed") => paint.bad(&kind),
        () if kind.ends_with("_completed") => paint.good(&kind),
        () => kind,
    };
    let at = word(&event["recorded_at"]);
    let at = at.get(11..19).unwrap_or_default();
    format!("{:>4} {} {shown} {}\n", word(&event["sequence"]), paint.faint(at), what.trim())
}

pub(super) fn call(client: &mut Client, tool: &str, input: Value) -> Result<Value, CommandFailure> {
    let mut args = object(input);
    args.retain(|_, value| !value.is_null());
    client.get(ControlMethod::Call { tool: tool.to_owned(), args, timeout_ms: None })
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// First line of a text, as much of it as a column has room for.
fn cell(text: &str) -> String {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match first.char_indices().nth(CELL_CHARS) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_takes_a_line_and_no_colour() {
        let said = json!({
            "sequence": 4, "recorded_at": "2026-01-02T03:04:05Z", "event_type": "llm_interaction",
            "payload": { "text": "\u{1b}[2J\n\nI read it first\nand more", "calls": [{ "name": "fs.read" }] },
        });
        let plain = Paint(false);
        assert_eq!(line(&said, plain), "   4 03:04:05 llm_interaction \\u{1b}[2J fs.read()\n");
        let failed = json!({
            "sequence": 12, "recorded_at": "2026-01-02T03:04:06Z", "event_type": "tool_invocation_failed",
            "payload": { "name": "fs.read", "error": { "message": "no such file" } },
        });
        assert_eq!(
            line(&failed, plain),
            "  12 03:04:06 tool_invocation_failed fs.read: no such file\n"
        );
        let long = "x".repeat(100);
        assert_eq!(cell(&long).chars().count(), CELL_CHARS + 1);
    }
}
