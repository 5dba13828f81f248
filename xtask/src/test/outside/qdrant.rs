//! The store of collections beside Qdrant's own client: the same changes, filters and searches, the same answers.

use anyhow::Result;

use super::models;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};
use crate::test::nextest;

pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    let python = match models::python(repo, "qdrant") {
        Ok(python) => python,
        Err(why) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    let test = "test(/^tests::agreement::an_index_of_ours_and_qdrants_own_client_agree$/)";
    nextest::command(repo)
        .args(["--filterset", test, "--no-tests", "fail"])
        .env("TEST_HIVEKEEP_QDRANT_PYTHON", python)
        .run()?;
    Ok(passed("both stores answer as qdrant-client's local mode"))
}
