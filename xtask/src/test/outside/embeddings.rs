//! A real embedding model in a daemon: questions to this repository's documentation, and what is found.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Shell, cmd};

use super::models;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};
use crate::test::nextest;

pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    let folder = match model(repo) {
        Ok(folder) => folder,
        Err(why) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    nextest::command(repo)
        .args(["--filterset", "test(/^knowledge::real::/)", "--no-tests", "fail", "--no-capture"])
        .env("TEST_HIVEKEEP_EMBED_MODEL", folder)
        .run()?;
    Ok(passed("recall@5 and MRR of 157 questions, by vectors, words and both"))
}

/// Folder of the model.
fn model(repo: &Repo) -> Result<PathBuf> {
    let (shell, python) = (Shell::new()?, models::python(repo, "embeddings")?);
    let find = "import sysconfig; print(sysconfig.get_path('purelib') + '/static_model/model')";
    Ok(PathBuf::from(cmd!(shell, "{python} -c {find}").quiet().read()?))
}
