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

/// Programs that are had together.
pub(super) struct ProgramSet {
    /// Name of the step, of the cache, and of the file of `tests/clients` that pins the packages.
    pub(super) name: &'static str,
    /// Names, and where the packages have them. What an installation would run is not: native programs are where the
    /// packages of their platforms have them.
    programs: &'static [(&'static str, &'static str)],
}

/// In each run.
pub(super) const CODEX: ProgramSet =
    ProgramSet { name: "codex", programs: &[("codex", ".bin/codex")] };
/// 400 MB of packages, and minutes: a night's, or for whoever names it.
pub(super) const OTHERS: ProgramSet = ProgramSet {
    name: "programs",
    programs: &[
        ("opencode", "opencode-linux-x64/bin/opencode"),
        ("pi", ".bin/pi"),
        ("qwen", ".bin/qwen"),
        ("gemini", ".bin/gemini"),
        ("claude", "@anthropic-ai/claude-code-linux-x64/claude"),
    ],
};
/// Image that they are in while the step runs.
const IMAGE: &str = "local/programs";
const IMAGE_DIR: &str = "HIVEKEEP_WORKSPACE__IMAGE_DIR";

/// A program that cannot be had fails the step: nothing else shows that it works.
pub(super) fn check(
    repo: &Repo,
    tools: &Tools,
    images: bool,
    set: &ProgramSet,
) -> Result<StepOutcome> {
    let ProgramSet { name, programs } = *set;
    if !images {
        return Ok(StepOutcome::Skipped("no images".to_owned()));
    }
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    let pins = format!("{name}.json");
    let packages = tools.packages(repo, (name, &pins))?;
    let files: Vec<_> =
        programs.iter().map(|(_, path)| packages.join("node_modules").join(path)).collect();
    if let Some(missing) = files.iter().find(|file| !file.exists()) {
        bail!("{} is not among the packages of tests/clients/{pins}", missing.display());
    }
    let names: Vec<_> = programs.iter().map(|(name, _)| *name).collect();
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let inside = |path: &str| PathBuf::from("/node_modules").join(path);
    let extras = ImageExtras {
        programs: vec![tools.node_program()],
        linked: files,
        links: programs.iter().map(|(name, path)| (*name, inside(path))).collect(),
        beside: Some((&packages, "node_modules")),
    };
    let folder = repo.target.join("programs-image");
    let archive = host_image::write(shell, &folder, &extras)?;
    let from = format!("docker-archive:{}", archive.display());
    // Images of its own: what a run leaves that was ended is in nobody's way.
    let store = folder.join("images");
    cmd!(shell, "{hivekeep} image pull {from} --name {IMAGE}")
        .envs(image::environment(repo))
        .env(IMAGE_DIR, &store)
        .run()
        .context("the image of the programs")?;
    fs::remove_file(&archive)?;
    // Sandboxes run as users of their own, and pass through the home.
    let home = shell.create_temp_dir()?;
    cmd!(shell, "chmod 755").arg(home.path()).run()?;
    let driven = tools
        .python(&repo.root.join("tests/clients/drive_programs.py"))
        .args([&hivekeep, &PathBuf::from(IMAGE)])
        .args(&names)
        .env(IMAGE_DIR, &store)
        .env("HIVEKEEP_WORKSPACE__GUEST_BINARY", guest::installed(repo))
        .env("HIVEKEEP_HOME", home.path())
        .env("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
        .env("HIVEKEEP_NETWORK__MODE", "off")
        .run();
    fs::remove_dir_all(&folder)?;
    driven?;
    Ok(passed(format!("{}, with daemons killed under each", names.join(", "))))
}
