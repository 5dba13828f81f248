//! A search through the vault, against ripgrep's own program on the same folder.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::kit::output;
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 40;
const NOTES: usize = 10_000;
const FOLDERS: usize = 100;
/// Every so many notes have the word.
const EVERY: usize = 500;
const WORD: &str = "xylograph";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "")?;
    let folder = house.path().join("state/vault");
    let bytes = fill(&folder)?;
    let mut client = house.attach()?;
    let ask = json!({ "action": "search", "query": WORD, "max_results": 100 });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        let (took, found) = client.timed("vault", &ask)?;
        let wanted = (json!(NOTES / EVERY), json!(NOTES), json!(false));
        let got = (&found["result_count"], &found["notes_searched"], &found["truncated"]);
        ensure!(got == (&wanted.0, &wanted.1, &wanted.2), "the search found {found}");
        let (rg_took, lines) = rg(&folder)?;
        ensure!(lines == NOTES / EVERY, "rg found {lines} lines");
        // The first of each finds the folder's pages cold.
        if round > 0 {
            ours.push(took.as_secs_f64() * 1e3);
            theirs.push(rg_took);
        }
    }
    Ok(vec![Figure {
        name: "vault_search",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(theirs)),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "{NOTES} notes of {} MiB together, none left out by an index; the baseline prints in \
             no order, the tool answers by path",
            round(bytes as f64 / f64::from(1 << 20))
        ),
    }])
}

/// Notes as people have them: front matter, paragraphs, a tag. How many bytes.
fn fill(folder: &Path) -> Result<usize> {
    let mut bytes = 0;
    for nth in 0..NOTES {
        let at = folder.join(format!("folder-{:02}", nth % FOLDERS));
        if nth < FOLDERS {
            fs::create_dir_all(&at)?;
        }
        let mut text = format!("---\ntitle: Note {nth}\ntags: [bench, n{}]\n---\n", nth % 7);
        for line in 0..30 {
            let _ =
                writeln!(text, "Line {line} of note {nth} says what a line of a note says. #tag");
        }
        if nth % EVERY == 0 {
            let _ = writeln!(text, "Here is a {WORD}.");
        }
        bytes += text.len();
        fs::write(at.join(format!("note-{nth}.md")), text)?;
    }
    Ok(bytes)
}

/// Time that ripgrep takes, in ms, and number of lines that match.
fn rg(folder: &Path) -> Result<(f64, usize)> {
    let mut command = Command::new("rg");
    let flags = ["--no-config", "--no-ignore", "--hidden", "--line-number", "--context", "2"];
    command.args(flags).args(["--glob", "*.md", "--fixed-strings", WORD]).arg(folder);
    let began = Instant::now();
    let said = output(command).context("rg: install ripgrep")?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    Ok((took, said.lines().filter(|line| line.contains(WORD)).count()))
}
