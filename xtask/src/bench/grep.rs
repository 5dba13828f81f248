//! A search through a tree of a place, against ripgrep's own program on the same folder.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::kit::output;
use super::tree::{FILES, make};
use super::{house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 40;
/// Matches the title of 111 files.
const PATTERN: &str = r"^# Note 77\d*$";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let folder = kit.repo.shell.create_temp_dir()?;
    let bytes = make(folder.path())?;
    let place = format!("[session.places.tree]\nfolder = {:?}\n", folder.path());
    let house = BenchDaemon::open(kit, &place)?;
    let mut client = house.attach()?;
    let ask = json!({ "path": ".", "pattern": PATTERN, "limit": 1_000 });
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(ROUNDS) {
        let (took, found) = client.timed("fs.grep", &ask)?;
        let (rg_took, lines) = rg(folder.path())?;
        ensure!(found["count"] == lines && lines > 0, "{found} where rg finds {lines}");
        // The first of each finds the folder's pages cold.
        if round > 0 {
            ours.push(took.as_secs_f64() * 1e3);
            theirs.push(rg_took);
        }
    }
    Ok(vec![Figure {
        name: "grep_tree",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(theirs)),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "{FILES} files of {} MiB together; the baseline prints in no order, the tool answers by \
             path",
            round(bytes as f64 / f64::from(1 << 20))
        ),
    }])
}

/// Time that ripgrep takes, in ms, and number of lines that match.
fn rg(folder: &Path) -> Result<(f64, usize)> {
    let mut command = Command::new("rg");
    let flags = ["--no-config", "--no-ignore", "--hidden", "--line-number", PATTERN];
    command.args(flags).arg(folder);
    let began = Instant::now();
    let said = output(command).context("rg: install ripgrep")?;
    Ok((began.elapsed().as_secs_f64() * 1e3, said.lines().count()))
}
