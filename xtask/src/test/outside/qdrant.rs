//! The store of collections beside Qdrant's own client: the same changes, filters and searches, the same answers.

use anyhow::Result;

use super::python::python;
use super::tests_of;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    let python = match python(repo, "qdrant") {
        Ok(python) => python,
        Err(why) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    let test = "test(/^tests::agreement::an_index_of_ours_and_qdrants_own_client_agree$/)";
    tests_of(repo, &["hivekeep-ingest"], &["--lib"], test)
        .env("TEST_HIVEKEEP_QDRANT_PYTHON", python)
        .run()?;
    Ok(passed("both stores answer as qdrant-client's local mode"))
}
