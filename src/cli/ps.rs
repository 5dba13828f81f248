//! `hivekeep ps`.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_door_server::plain;
use hivekeep_kernel::ActorRow;

use super::{
    CliContext, CommandFailure,
    output::{self, Paint},
};
use crate::control::ControlMethod;

/// Show the supervision tree as it lives.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep ps
  hivekeep ps --watch
  hivekeep ps --json | jq '.[] | select(.restarts > 0)'")]
pub struct Args {
    /// Show it again and again, until interrupted.
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1.0, value_name = "SECS", requires = "watch")]
    every: f64,
    /// Print JSON; with `--watch`, a line for each look.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    // Below this the looking would be the load.
    let pause = Duration::try_from_secs_f64(args.every.max(0.1))
        .map_err(|error| CommandFailure::Usage(format!("--every: {error}")))?;
    let paint = output::Paint::stdout();
    loop {
        // A connection a look: one that is idle meanwhile may lose its place to another.
        let rows: Vec<ActorRow> = context.client()?.get_as(ControlMethod::Ps {})?;
        match (args.json, args.watch) {
            (true, true) => output::json_line(&rows)?,
            (true, false) => output::json(&rows)?,
            // Home, the new picture line by line, then what is left of the old.
            (false, true) => {
                let picture = draw(&rows, paint).replace('\n', "\x1b[K\n");
                output::painted(&format!("\x1b[H{picture}\x1b[J"))?;
            }
            (false, false) => output::painted(&draw(&rows, paint))?,
        }
        if !args.watch {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}

/// A place in the tree; a place without a row only has places below it.
#[derive(Default)]
struct Place<'r> {
    row: Option<&'r ActorRow>,
    below: BTreeMap<&'r str, Place<'r>>,
}

const HEAD: [&str; 7] = ["ACTOR", "STATE", "RESTARTS", "MAILBOX", "UPTIME", "MEMORY", "LAST ERROR"];
/// Column of the state, which is painted after the columns are laid out.
const STATE: usize = 1;

/// The picture.
fn draw(rows: &[ActorRow], paint: Paint) -> String {
    let mut root = Place::default();
    for row in rows {
        let mut place = &mut root;
        for name in row.path.split('/') {
            place = place.below.entry(name).or_default();
        }
        place.row = Some(row);
    }
    let mut lines = Vec::new();
    let tops = root.below.len();
    for (nth, (name, place)) in root.below.iter().enumerate() {
        // A single root stands at the margin.
        let (own, below) = match (tops, nth + 1 == tops) {
            (1, _) => ("", ""),
            (_, false) => ("├─ ", "│  "),
            (_, true) => ("└─ ", "   "),
        };
        walk(name, place, own, below, &mut lines);
    }
    painted(&output::table(&HEAD, &lines), &lines, paint)
}

fn walk(name: &str, place: &Place<'_>, own: &str, under: &str, lines: &mut Vec<Vec<String>>) {
    lines.push(cells(format!("{own}{}", plain::line(name)), place.row));
    let last = place.below.len().saturating_sub(1);
    for (nth, (name, child)) in place.below.iter().enumerate() {
        let (own, below) = if nth == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        walk(name, child, &format!("{under}{own}"), &format!("{under}{below}"), lines);
    }
}

fn cells(name: String, row: Option<&ActorRow>) -> Vec<String> {
    let Some(row) = row else { return vec![name] };
    let error = row.last_error.as_deref().unwrap_or_default();
    let error: String = error.lines().next().unwrap_or_default().chars().take(72).collect();
    vec![
        name,
        plain::line(&row.state).into_owned(),
        row.restarts.to_string(),
        row.mailbox.to_string(),
        output::age(Duration::from_millis(row.uptime_ms)),
        row.machine_memory_bytes.map_or_else(|| "-".to_owned(), output::bytes),
        error,
    ]
}

fn painted(table: &str, lines: &[Vec<String>], paint: Paint) -> String {
    let mut text = String::new();
    for (nth, line) in table.lines().enumerate() {
        let state = nth.checked_sub(1).and_then(|nth| lines.get(nth)?.get(STATE));
        match state {
            None if nth == 0 => text.push_str(&paint.faint(line)),
            None => text.push_str(line),
            // The name comes first and may hold the word too: paint behind it.
            Some(state) => {
                let name_bytes = lines[nth - 1][0].len();
                let (name, rest) = line.split_at(name_bytes.min(line.len()));
                let word = match state.split(',').next().unwrap_or_default() {
                    "running" | "ready" => paint.good(state),
                    "gave_up" | "crashed" | "failed" => paint.bad(state),
                    _ => paint.odd(state),
                };
                text.push_str(name);
                text.push_str(&rest.replacen(state.as_str(), &word, 1));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::{Census, RestartPolicy};

    use super::*;

    #[test]
    fn the_tree_is_drawn_as_a_tree() {
        let census = Census::default();
        let paths = [
            "root",
            "root/journal",
            "root/workspaces",
            "root/workspaces/ws_1",
            "root/workspaces/ws_1/link",
        ];
        let probes: Vec<_> =
            paths.iter().map(|path| census.probe(path, "actor", RestartPolicy::ENTITY)).collect();
        probes[3].set_state("crashed");
        probes[3].set_error("exit code 1\nmore");
        let picture = draw(&census.rows(), Paint::stdout());
        let names: Vec<_> = picture
            .lines()
            .map(|line| {
                line.split("  starting")
                    .next()
                    .unwrap_or(line)
                    .split("  crashed")
                    .next()
                    .unwrap_or(line)
                    .trim_end()
            })
            .collect();
        assert_eq!(
            names[1..],
            ["root", "├─ journal", "└─ workspaces", "   └─ ws_1", "      └─ link",]
        );
        assert!(picture.contains("exit code 1\n"), "only the first line of an error: {picture}");
    }
}
