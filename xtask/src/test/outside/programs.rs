//! Agents of others as agents of ours: the pinned programs, each in a sandbox without a network, over a scripted
//! provider, with a daemon that is killed. Their packages are put into an image of this host.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use xshell::cmd;

use super::tools::Tools;
use crate::demo::host_image::{self, ImageExtras};
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::{StepOutcome, passed};
use crate::{guest, image};

/// Programs, and where their packages have them. What an installation would run is not: native programs are where the
/// packages of their platforms have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("codex", ".bin/codex"),
    ("opencode", "opencode-linux-x64/bin/opencode"),
    ("pi", ".bin/pi"),
    ("qwen", ".bin/qwen"),
    ("gemini", ".bin/gemini"),
    ("claude", "@anthropic-ai/claude-code-linux-x64/claude"),
];
/// Image that they are in while the step runs.
const IMAGE: &str = "local/programs";

/// A program that cannot be had fails the step: nothing else shows that it works.
pub(super) fn check(repo: &Repo, tools: &Tools, images: bool) -> Result<StepOutcome> {
    if !images {
        return Ok(StepOutcome::Skipped("no images".to_owned()));
    }
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    let packages = tools.packages(repo, ("programs", "programs.json"))?;
    let files: Vec<_> =
        PROGRAMS.iter().map(|(_, path)| packages.join("node_modules").join(path)).collect();
    if let Some(missing) = files.iter().find(|file| !file.exists()) {
        bail!("{} is not among the packages of tests/clients/programs.json", missing.display());
    }
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let inside = |path: &str| PathBuf::from("/node_modules").join(path);
    let extras = ImageExtras {
        programs: vec![tools.node_program()],
        linked: files,
        links: PROGRAMS.iter().map(|(name, path)| (*name, inside(path))).collect(),
        beside: Some((&packages, "node_modules")),
    };
    let folder = repo.target.join("programs-image");
    let archive = host_image::write(shell, &folder, &extras)?;
    let from = format!("docker-archive:{}", archive.display());
    let run = |words: &[&str]| {
        cmd!(shell, "{hivekeep} image {words...}").envs(image::environment(repo)).run()
    };
    let pulled = run(&["pull", &from, "--name", IMAGE]);
    fs::remove_dir_all(&folder)?;
    pulled.context("the image of the programs")?;
    // Sandboxes run as users of their own, and pass through the home.
    let home = shell.create_temp_dir()?;
    cmd!(shell, "chmod 755").arg(home.path()).run()?;
    let driven = tools
        .python(&repo.root.join("tests/clients/drive_programs.py"))
        .args([&hivekeep, &PathBuf::from(IMAGE)])
        .args(PROGRAMS.iter().map(|(name, _)| *name))
        .env("HIVEKEEP_WORKSPACE__IMAGE_DIR", repo.images())
        .env("HIVEKEEP_WORKSPACE__GUEST_BINARY", guest::installed(repo))
        .env("HIVEKEEP_HOME", home.path())
        .env("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
        .env("HIVEKEEP_NETWORK__MODE", "off")
        .run();
    let removed = run(&["rm", IMAGE]);
    driven?;
    removed?;
    Ok(passed(format!("{} programs, with daemons killed under each", PROGRAMS.len())))
}
