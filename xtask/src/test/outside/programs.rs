//! Agents of others as agents of ours: the pinned programs, each in a sandbox without a network, over a scripted
//! provider, with a daemon that is killed; and one of them in a virtual machine that is forked. Their packages are put
//! into an image of this host.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

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
    /// Forms of them that speak the Agent Client Protocol.
    acp: &'static [&'static str],
    /// True if Codex is forked in a virtual machine, too, which takes minutes without KVM.
    forks_codex: bool,
}

/// In each run.
pub(super) const CODEX: ProgramSet = ProgramSet {
    name: "codex",
    programs: &[("codex", ".bin/codex")],
    acp: &[],
    forks_codex: false,
};
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
    acp: &["opencode-acp", "qwen-acp", "gemini-acp"],
    forks_codex: true,
};
/// Image that they are in while the step runs.
const IMAGE: &str = "local/programs";
const IMAGE_DIR: &str = "HIVEKEEP_WORKSPACE__IMAGE_DIR";

/// A program that cannot be had fails the step: nothing else shows that it works.
pub(super) fn check(
    repo: &Repo,
    tools: &Tools,
    (images, vms): (bool, bool),
    set: &ProgramSet,
) -> Result<StepOutcome> {
    if !images {
        return Ok(StepOutcome::Skipped("no images".to_owned()));
    }
    if !program("bwrap") {
        return Ok(StepOutcome::Skipped("bwrap is not installed".to_owned()));
    }
    let ProgramSet { programs, acp, forks_codex, .. } = *set;
    let names: Vec<_> = programs.iter().map(|(name, _)| *name).collect();
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    // Images of its own: what a run leaves that was ended is in nobody's way.
    let store = repo.target.join("programs-images");
    let _none_before = fs::remove_dir_all(&store);
    pull(repo, tools, set, (&hivekeep, &store))?;
    // Sandboxes run as users of their own, and pass through the home.
    let home = shell.create_temp_dir()?;
    cmd!(shell, "chmod 755").arg(home.path()).run()?;
    let drive = |script: &str, names: &[&str], store: &Path| {
        tools
            .python(&repo.root.join("tests/clients").join(script))
            .args([&hivekeep, &PathBuf::from(IMAGE)])
            .args(names)
            .env(IMAGE_DIR, store)
            .env("HIVEKEEP_WORKSPACE__GUEST_BINARY", guest::installed(repo))
            .env("HIVEKEEP_HOME", home.path())
            .env("HIVEKEEP_REGISTRY__RATE__ENABLED", "false")
            .env("HIVEKEEP_NETWORK__MODE", "off")
            .run()
    };
    let mut driven = drive("drive_programs.py", &names, &store);
    if driven.is_ok() && !acp.is_empty() {
        driven = drive("drive_programs_acp.py", acp, &store);
    }
    fs::remove_dir_all(&store)?;
    driven?;
    let all = [&names[..], acp].concat().join(", ");
    let forked = forks_codex && vms;
    if forked {
        let _kept = KeptCodex::new(repo, hivekeep.clone())?;
        drive("drive_program_forks.py", &["codex"], &repo.images())?;
    }
    let forked = if forked { "; codex forked in a virtual machine" } else { "" };
    Ok(passed(format!("{all}, with daemons killed under each{forked}")))
}

/// Puts a set's programs into an image of a store; the folder of their packages.
fn pull(
    repo: &Repo,
    tools: &Tools,
    &ProgramSet { name, programs, .. }: &ProgramSet,
    (hivekeep, store): (&Path, &Path),
) -> Result<PathBuf> {
    let pins = format!("{name}.json");
    let packages = tools.packages(repo, (name, &pins))?;
    let files: Vec<_> =
        programs.iter().map(|(_, path)| packages.join("node_modules").join(path)).collect();
    if let Some(missing) = files.iter().find(|file| !file.exists()) {
        bail!("{} is not among the packages of tests/clients/{pins}", missing.display());
    }
    let inside = |path: &str| PathBuf::from("/node_modules").join(path);
    let extras = ImageExtras {
        programs: vec![tools.node_program()],
        linked: files,
        links: programs.iter().map(|(name, path)| (*name, inside(path))).collect(),
        beside: Some((&packages, "node_modules")),
    };
    let (shell, folder) = (&repo.shell, repo.target.join("programs-image"));
    let archive = host_image::write(shell, &folder, &extras)?;
    let from = format!("docker-archive:{}", archive.display());
    cmd!(shell, "{hivekeep} image pull {from} --name {IMAGE}")
        .envs(image::environment(repo))
        .env(IMAGE_DIR, store)
        .run()
        .context("the image of the programs")?;
    fs::remove_dir_all(&folder)?;
    Ok(packages)
}

/// Codex on this host, and in an image beside those of the bench, which is removed when this is dropped.
pub(crate) struct KeptCodex<'r> {
    repo: &'r Repo,
    hivekeep: PathBuf,
    /// Search path in which it is found on this host.
    pub(crate) path: OsString,
}

impl<'r> KeptCodex<'r> {
    pub(crate) const IMAGE: &'static str = IMAGE;

    pub(crate) fn new(repo: &'r Repo, hivekeep: PathBuf) -> Result<Self> {
        let tools = Tools::get(repo)?;
        let packages = pull(repo, &tools, &CODEX, (&hivekeep, &repo.images()))?;
        let mut path = packages.join("node_modules/.bin:").into_os_string();
        path.push(tools.search_path());
        Ok(Self { repo, hivekeep, path })
    }
}

impl Drop for KeptCodex<'_> {
    fn drop(&mut self) {
        let Self { repo, hivekeep, .. } = self;
        let removal = cmd!(repo.shell, "{hivekeep} image rm {IMAGE}");
        if let Err(error) = removal.envs(image::environment(repo)).run() {
            eprintln!("xtask: the image of the programs stays: {error:#}");
        }
    }
}
