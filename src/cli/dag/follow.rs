//! Runs of DAGs as a person follows them.

use std::{collections::HashMap, thread, time::Duration};

use chrono::{DateTime, Utc};
use hivekeep_door_server::plain;
use serde_json::{Value, json};

use crate::cli::{
    CommandFailure,
    client::Client,
    output::{self, Paint, word},
    runs::{call, list},
};

/// Longest wait for the next news of a run, in seconds.
const WAIT_SECS: u64 = 1;
/// Pause between two looks at a step that runs.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Most steps of one answer.
const PAGE: u64 = 200;
/// States that nothing follows.
const OVER: [&str; 8] = [
    "succeeded",
    "partly_succeeded",
    "failed",
    "aborted",
    "rejected",
    "skipped",
    "completed",
    "cancelled",
];

/// Shows each step as it ends, with what it wrote, until the run is over.
pub(super) fn follow(client: &mut Client, id: &str, json: bool) -> Result<(), CommandFailure> {
    let (mut told, paint) = (HashMap::new(), Paint::stdout());
    if !json {
        eprintln!("{id}");
    }
    loop {
        let (run, steps) = whole(client, id)?;
        for step in steps.iter().filter(|_| !json) {
            let (name, state, tries) =
                (word(&step["name"]), word(&step["status"]), word(&step["tries"]));
            if told.get(&name) == Some(&(state.clone(), tries.clone())) {
                continue;
            }
            let is_over = OVER.contains(&state.as_str());
            if is_over || state == "waiting" || state == "pauses" {
                output::painted(&line(step, paint))?;
            }
            if is_over && step["started_at"].is_string() {
                wrote(client, id, &name)?;
            }
            told.insert(name, (state, tries));
        }
        let state = word(&run["status"]);
        if !OVER.contains(&state.as_str()) {
            continue;
        }
        if json {
            output::json(&run)?;
        } else {
            let error = word(&run["error"]);
            let why = match run["stopped_by"].as_str() {
                Some("conditions") => ": its preconditions do not hold".to_owned(),
                Some("timeout") => ": its time was over".to_owned(),
                _ if error.is_empty() => String::new(),
                _ => format!(": {}", plain::line(&error)),
            };
            let shown = painted(paint, &state);
            output::painted(&format!("{shown} in {}{why}\n", lasted(&run)))?;
        }
        return match (state.as_str(), run["stopped_by"].as_str()) {
            ("succeeded" | "partly_succeeded", _) | ("aborted", Some("conditions")) => Ok(()),
            _ => Err(CommandFailure::Reported),
        };
    }
}

/// A run with all its steps; waits a little for its end.
fn whole(client: &mut Client, id: &str) -> Result<(Value, Vec<Value>), CommandFailure> {
    let input = json!({ "run_id": id, "wait_secs": WAIT_SECS, "limit": PAGE });
    let run = call(client, "dag_runs", input)?["run"].take();
    let (mut steps, total) = (list(&run["steps"]).to_vec(), run["total_steps"].as_u64());
    while (steps.len() as u64) < total.unwrap_or_default() {
        let input = json!({ "run_id": id, "limit": PAGE, "offset": steps.len() });
        let more = call(client, "dag_runs", input)?;
        let more = list(&more["run"]["steps"]);
        if more.is_empty() {
            break;
        }
        steps.extend(more.iter().cloned());
    }
    Ok((run, steps))
}

fn wrote(client: &mut Client, id: &str, step: &str) -> Result<(), CommandFailure> {
    let logs = call(client, "dag_logs", json!({ "run_id": id, "step": step }))?;
    for stream in ["stdout", "stderr"] {
        let text = word(&logs[stream]["text"]);
        for line in text.trim_end().lines() {
            output::text(&format!("  {}\n", plain::line(line)))?;
        }
    }
    Ok(())
}

/// Prints what a step wrote, or the events of a run, on and on with `follow`.
pub(super) fn logs(
    client: &mut Client,
    id: &str,
    step: Option<&str>,
    follow: bool,
) -> Result<(), CommandFailure> {
    let Some(step) = step else { return events(client, id, follow) };
    let mut offset = 0;
    loop {
        let page =
            call(client, "dag_logs", json!({ "run_id": id, "step": step, "offset": offset }))?;
        let next = |stream: &str| page[stream]["next_offset"].as_u64().unwrap_or_default();
        let total = |stream: &str| page[stream]["total_bytes"].as_u64().unwrap_or_default();
        output::text(&plain::lines(&word(&page["stdout"]["text"])))?;
        let stderr = word(&page["stderr"]["text"]);
        eprint!("{}", plain::lines(&stderr));
        let before = offset;
        offset = next("stdout").max(next("stderr"));
        let left = total("stdout").max(total("stderr")) > offset;
        let over = OVER.contains(&&*word(&page["status"]));
        match (left && offset > before, over || !follow) {
            (true, _) => {}
            (false, true) => return Ok(()),
            (false, false) => thread::sleep(LOOK_EVERY),
        }
    }
}

fn events(client: &mut Client, id: &str, follow: bool) -> Result<(), CommandFailure> {
    let mut offset = 0;
    loop {
        let page =
            call(client, "dag_logs", json!({ "run_id": id, "limit": PAGE, "offset": offset }))?;
        let events = list(&page["events"]);
        for event in events {
            output::json_line(event)?;
        }
        offset += events.len() as u64;
        let over = OVER.contains(&&*word(&page["status"]));
        match (offset < page["total"].as_u64().unwrap_or_default(), over || !follow) {
            (true, _) => {}
            (false, true) => return Ok(()),
            (false, false) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// A run for people.
pub(super) fn shown(run: &Value) -> String {
    let mut text = format!(
        "{} {} {} in {}\n",
        word(&run["run_id"]),
        word(&run["name"]),
        state(run),
        lasted(run)
    );
    for (what, value) in [("error", &run["error"]), ("next", &run["next_step"])] {
        if !value.is_null() {
            text.push_str(&format!("{what}: {}\n", word(value)));
        }
    }
    let rows: Vec<_> = list(&run["steps"])
        .iter()
        .map(|step| {
            let follows: Vec<_> = list(&step["follows"]).iter().map(word).collect();
            let (error, exit) = (word(&step["error"]), word(&step["exit_code"]));
            let first = error.lines().next().unwrap_or_default().to_owned();
            vec![
                word(&step["name"]),
                word(&step["status"]),
                lasted(step),
                exit,
                follows.join(","),
                first,
            ]
        })
        .collect();
    text.push_str(&output::table(&["STEP", "STATE", "FOR", "EXIT", "BEHIND", "ERROR"], &rows));
    let left = run["total_steps"].as_u64().unwrap_or_default().saturating_sub(rows.len() as u64);
    if left > 0 {
        text.push_str(&format!("and {left} more: --limit shows them\n"));
    }
    for task in list(&run["tasks"]) {
        let reason = task["reason"].as_str().map(|reason| format!(": {reason}"));
        let (name, status) = (word(&task["name"]), word(&task["status"]));
        text.push_str(&format!("task {name} {status}{}\n", reason.unwrap_or_default()));
    }
    for decision in list(&run["decisions"]) {
        text.push_str(&format!("decided {}\n", word(decision)));
    }
    text
}

/// Status, and what it waits for.
pub(super) fn state(run: &Value) -> String {
    match list(&run["waiting"]) {
        [] => word(&run["status"]),
        steps => format!("waits at {}", steps.iter().map(word).collect::<Vec<_>>().join(", ")),
    }
}

/// Time from the beginning to the end, or until now.
pub(super) fn lasted(of: &Value) -> String {
    let time = |key: &str| of[key].as_str()?.parse::<DateTime<Utc>>().ok();
    let Some(began) = time("started_at") else { return String::new() };
    let lasted = (time("ended_at").unwrap_or_else(Utc::now) - began).to_std();
    lasted.map(output::age).unwrap_or_default()
}

fn painted(paint: Paint, state: &str) -> String {
    match state {
        "succeeded" => paint.good(state),
        "failed" | "rejected" | "aborted" => paint.bad(state),
        _ => paint.odd(state),
    }
}

/// A step that has ended, in a line.
fn line(step: &Value, paint: Paint) -> String {
    let name = word(&step["name"]);
    let error = word(&step["error"]);
    let why = error.lines().next().map(|why| format!(": {}", plain::line(why)));
    let state = painted(paint, &word(&step["status"]));
    let time = paint.faint(&lasted(step));
    format!("{state} {} {time}{}\n", plain::line(&name), why.unwrap_or_default())
}
