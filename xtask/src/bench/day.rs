//! A day of work on files, driven by one script: a session of ours against the npm package
//! `@modelcontextprotocol/server-filesystem`, on equal trees of a folder of the host and of a sandbox.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xshell::cmd;

use super::client::StdioClient;
use super::figure::{Figure, Target, median, round};
use super::tree::{FILES, FOLDERS, MAKE, file};
use super::{house::BenchDaemon, kit::BenchPrograms};

/// Version of the package that is the baseline.
const SERVER: &str = "@modelcontextprotocol/server-filesystem@2026.8.31";
const ROUNDS: usize = 10;
/// Calls of each kind in one round.
const READS: usize = 200;
const LISTS: usize = 20;
const SEARCHES: usize = 2;
const EDITS: usize = 100;

/// Kinds of calls, in the order of a round.
const KINDS: [&str; 4] = ["read", "list", "search", "edit"];

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let folder = kit.repo.shell.create_temp_dir()?;
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    for tree in [&ours, &theirs] {
        super::tree::make(tree)?;
    }
    let place = format!("[session.places.day]\nfolder = {ours:?}\nread_only = false\n");
    let house = BenchDaemon::open(kit, &format!("isolation = \"sandbox\"\n{place}"))?;
    let mut client = house.attach()?;
    let (mut baseline, mut nth) = (Days::default(), 0);
    let mut npm = StdioClient::start(server(kit, &theirs)?)?;
    let mut figures = Vec::new();
    for (name, place) in [("fs_day", "day"), ("fs_day_workspace", "files")] {
        if !kit.wants(name) {
            continue;
        }
        if name == "fs_day_workspace" {
            client.call("workspace_create", &json!({ "name": place, "isolation": "sandbox" }))?;
            let make = json!({ "workspace_id": place, "command": MAKE, "timeout_secs": 300 });
            let made = client.call("exec", &make)?;
            ensure!(made["exit_code"] == 0, "the tree was not made: {made}");
        }
        let mut days = Days::default();
        for _ in 0..=kit.rounds(ROUNDS) {
            let ours = day(&mut client, nth, &|kind, at| our_call(place, kind, at, nth))?;
            let other = day(&mut npm, nth, &|kind, at| npm_call(&theirs, kind, at, nth))?;
            // The first of each finds the trees cold.
            if nth > 0 {
                days.0.push(ours);
                baseline.0.push(other);
            }
            nth += 1;
        }
        figures.push(Figure {
            name,
            unit: "ms",
            value: days.median(|day| day.iter().sum()),
            baseline: Some(baseline.median(|day| day.iter().sum())),
            target: if place == "day" { Target::AtMostTimes(1.0) } else { Target::Stated },
            remark: days.beside(&baseline),
        });
    }
    Ok(figures)
}

/// Time of each kind of calls in one round, in milliseconds.
type Day = [f64; KINDS.len()];

#[derive(Default)]
struct Days(Vec<Day>);

impl Days {
    fn median(&self, of: impl Fn(&Day) -> f64) -> f64 {
        median(self.0.iter().map(of).collect())
    }

    fn beside(&self, baseline: &Self) -> String {
        let kinds = KINDS.iter().zip([READS, LISTS, SEARCHES, EDITS]).enumerate();
        let each = kinds.map(|(at, (kind, calls))| {
            let [ours, theirs] = [self, baseline].map(|days| round(days.median(|day| day[at])));
            format!("{calls} of {kind} {ours} ms beside {theirs}")
        });
        format!("{FILES} files; {}; our edits are on the disk", each.collect::<Vec<_>>().join(", "))
    }
}

/// One round: the same calls of the same files on each side, and each answer is looked at.
fn day(
    client: &mut StdioClient,
    nth: usize,
    call: &dyn Fn(&str, usize) -> (&'static str, Value),
) -> Result<Day> {
    let mut took = [0.0; KINDS.len()];
    for (at, (kind, calls)) in KINDS.iter().zip([READS, LISTS, SEARCHES, EDITS]).enumerate() {
        let mut all = Duration::ZERO;
        for file in 0..calls {
            let (tool, args) = call(kind, file);
            let (time, answer) = client.timed(tool, &args)?;
            check(kind, &answer, nth, file).with_context(|| format!("{tool} {args}: {answer}"))?;
            all += time;
        }
        took[at] = all.as_secs_f64() * 1e3;
    }
    Ok(took)
}

/// File of a call of a round: others in each round, in all folders.
fn number(nth: usize, at: usize) -> usize {
    (nth * READS + at) % FILES
}

fn our_call(place: &str, kind: &str, at: usize, nth: usize) -> (&'static str, Value) {
    let path = file(number(nth, at));
    match kind {
        "read" => ("fs.read", json!({ "place": place, "path": path })),
        "list" => ("fs.list", json!({ "place": place, "path": folder(nth, at) })),
        "search" => {
            let pattern = pattern(at);
            ("fs.glob", json!({ "place": place, "path": ".", "pattern": pattern, "limit": 10_000 }))
        }
        _ => {
            let (old, new) = texts(nth);
            let args = json!({ "place": place, "path": path, "target_content": old, "replacement_content": new });
            ("fs.edit", args)
        }
    }
}

fn npm_call(root: &Path, kind: &str, at: usize, nth: usize) -> (&'static str, Value) {
    let path = root.join(file(number(nth, at)));
    match kind {
        "read" => ("read_text_file", json!({ "path": path })),
        "list" => ("list_directory", json!({ "path": root.join(folder(nth, at)) })),
        "search" => ("search_files", json!({ "path": root, "pattern": pattern(at) })),
        _ => {
            let (old, new) = texts(nth);
            ("edit_file", json!({ "path": path, "edits": [{ "oldText": old, "newText": new }] }))
        }
    }
}

fn folder(nth: usize, at: usize) -> String {
    format!("folder-{:02}", (nth * 7 + at) % FOLDERS)
}

fn pattern(at: usize) -> String {
    format!("**/note-*{}7.md", at + 1)
}

/// Text that an edit replaces, and what it makes of it.
fn texts(nth: usize) -> (&'static str, String) {
    ("Line 3 says", format!("Line 3 of round {nth} says"))
}

fn check(kind: &str, answer: &Value, nth: usize, at: usize) -> Result<()> {
    let text = answer.to_string();
    let name = file(number(nth, at));
    let holds = match kind {
        "read" => text.contains("Line 19 says"),
        "list" => text.matches("note-").count() == FILES / FOLDERS,
        "search" => text.matches(&format!("{}7.md", at + 1)).count() == FILES / 100,
        _ => !text.is_empty(),
    };
    ensure!(holds, "{kind} of {name} is not what it should be");
    Ok(())
}

/// The package's server over a folder. It is installed where it is missing.
pub(super) fn server(kit: &BenchPrograms<'_>, folder: &Path) -> Result<Command> {
    let at = kit.repo.target.join("tools/server-filesystem").join(SERVER.replace('/', "-"));
    let script = at.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    if !script.exists() {
        std::fs::create_dir_all(&at)?;
        let install = cmd!(kit.repo.shell, "timeout --kill-after=10 180 npm install --prefix {at}")
            .args(["--no-fund", "--no-audit", "--ignore-scripts", "--no-package-lock"])
            .args(["--loglevel", "error", SERVER]);
        install.run().context("npm: install the packages nodejs and npm")?;
    }
    let mut command = Command::new("node");
    command.arg(script).arg(folder).stderr(std::process::Stdio::null());
    Ok(command)
}
