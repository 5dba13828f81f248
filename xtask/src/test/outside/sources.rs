//! MCP servers that others wrote, as sources of a daemon.

use anyhow::Result;

use super::{tests_of, tools::Tools};
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};

pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    tests_of(repo, &["hivekeep"], &["--test", "it"], "test(/^sources::npm::/)")
        .env("TEST_HIVEKEEP_NPM", tools.npm())
        .env("TEST_HIVEKEEP_NODE", tools.node_program())
        .run()?;
    Ok(passed("server-everything and server-filesystem"))
}
