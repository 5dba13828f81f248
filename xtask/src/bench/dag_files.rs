//! Check of a published corpus of DAGs, beside a parser that reads the same files.

use std::env;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::figure::{Figure, Target, median};
use super::kit::{BenchPrograms, output};

const ROUNDS: usize = 15;
/// Names the folder of the corpus, which is not ours to keep here.
pub(super) const CORPUS: &str = "HIVEKEEP_DAG_CORPUS";
const PART: &str = "dagu-docs-2026";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let Some(corpus) = env::var_os(CORPUS) else {
        println!("LEFT OUT: {CORPUS} names no folder of DAGs");
        return Ok(Vec::new());
    };
    let folder = std::path::Path::new(&corpus).join(PART);
    let (mut ours, mut bare, mut files) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..=kit.rounds(ROUNDS) {
        let mut parser = kit.baseline("bare-yaml");
        parser.arg(&folder);
        let began = Instant::now();
        files = output(parser)?.trim().to_owned();
        bare.push(began.elapsed().as_secs_f64() * 1e3);

        let mut checker = Command::new(kit.hivekeep());
        checker.args(["dag", "validate"]).arg(&folder).env_remove(CORPUS);
        let began = Instant::now();
        let checked = checker.output()?;
        ours.push(began.elapsed().as_secs_f64() * 1e3);
        let said = String::from_utf8_lossy(&checked.stdout);
        let last = said.lines().last().context("it says how many are valid")?;
        ensure!(last.ends_with(&format!(" of {files} valid")), "{last}");
    }
    // The first of each finds the files cold.
    Ok(vec![Figure {
        name: "dag_validate_855",
        unit: "ms",
        value: median(ours.split_off(1)),
        baseline: Some(median(bare.split_off(1))),
        target: Target::AtMostTimes(5.0),
        remark: format!(
            "{files} files; the baseline is a program that parses each of them as YAML, and no more"
        ),
    }])
}
