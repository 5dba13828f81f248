//! The official MCP conformance suite, both revisions, over HTTP.

use anyhow::{Result, bail};

use super::{server::Fixture, tools::Tools};
use crate::repo::Repo;
use crate::steps::StepOutcome;

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Scenarios that fail are listed, each with its reason, in `tests/conformance/`;
/// one that fails unlisted and one that passes although listed are both an error.
pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    let fixture = Fixture::start(repo)?;
    let folder = repo.root.join("tests/conformance");
    let preload = format!("--import {}", folder.join("bearer.mjs").display());
    let (mut said, mut failed) = (Vec::new(), Vec::new());
    for revision in REVISIONS {
        let results = tools.folder().join(format!("conformance-{revision}"));
        let run = tools
            .npm_script("@modelcontextprotocol/conformance/dist/index.js")
            .args(["server", "--url", &fixture.url, "--requirements", revision, "--output-dir"])
            .arg(results)
            .arg("--expected-failures")
            .arg(folder.join(format!("expected-failures-{revision}.yaml")))
            .env("NODE_OPTIONS", &preload)
            .env("BEARER_TOKEN", &fixture.token)
            .ignore_status()
            .output()?;
        let text = String::from_utf8_lossy(&run.stdout);
        let summary = text.split_once("=== SUMMARY ===").map_or(&*text, |(_, summary)| summary);
        println!("{revision}{summary}{}", String::from_utf8_lossy(&run.stderr));
        let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
        said.push(format!("{revision}: {}", total.unwrap_or("no total")));
        if !run.status.success() || total.is_none() {
            failed.push(revision);
        }
    }
    if !failed.is_empty() {
        bail!("not as expected on {}: {}", failed.join(" and "), said.join("; "));
    }
    Ok(StepOutcome::Passed(format!("{}, as expected", said.join("; "))))
}
