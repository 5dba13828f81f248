//! MCP servers that others wrote, as sources of a daemon.

use anyhow::Result;

use super::tools::Tools;
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};
use crate::test::nextest;

pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    nextest::command(repo)
        .args(["--filterset", "test(/^sources::npm::/)", "--no-tests", "fail"])
        .env("TEST_HIVEKEEP_NPM", tools.folder())
        .env("TEST_HIVEKEEP_NODE", tools.node_program())
        .run()?;
    Ok(passed("server-everything and server-filesystem"))
}
