//! hivekeep judged by programs that others wrote: the official conformance suite, the official
//! inspector, the official clients, acpx as an editor, schemathesis for the HTTP API, MCP servers as sources, and a
//! real language model, a real embedding model, Qdrant's own client, and E2B's SDKs; agents of others as its agents;
//! and its walls by a program that tries to get out.

mod acp;
mod clients;
mod conformance;
pub(crate) mod e2b;
mod embeddings;
mod inspector;
mod models;
mod openapi;
mod package_cache;
mod programs;
mod python;
mod qdrant;
mod server;
mod sources;
mod tools;

use anyhow::{Result, anyhow, ensure};
use xshell::Cmd;

pub(crate) use self::embeddings::{minilm, static_model};
pub(crate) use self::programs::KeptCodex;
pub(crate) use self::python::python;
pub(crate) use self::server::ServedDaemon;
use self::tools::Tools;
use super::{nextest::Scope, proven, roots};
use crate::repo::Repo;
use crate::steps::{Beside, StepOutcome, Steps, passed};
use crate::{containment, soak};

/// Environments of Python that have nothing but what their file names.
const PINNED: [&str; 3] = ["models", "embeddings", "qdrant"];

/// Installs all packages of the steps. It waits for registries and takes next to no processor time: it has its place
/// beside a build. A step whose packages cannot be had says so itself.
pub(super) fn prepare(repo: &Repo) -> Result<StepOutcome> {
    let install = || {
        Tools::get(repo)?;
        PINNED.into_iter().try_for_each(|name| python(repo, name).map(drop))?;
        e2b::install(repo)
    };
    Ok(match install() {
        Ok(()) => passed("all packages are there"),
        Err(why) => StepOutcome::Skipped(format!("{why:#}")),
    })
}

/// Runs all; with `all`, nothing takes turns or is left out because it did not change. A step whose packages cannot be
/// had is skipped. Each waits for what it started most of the time, so that two run at a time.
pub(super) fn steps(repo: &Repo, steps: &mut Steps, built: bool, scope: &Scope<'_>, all: bool) {
    let beside: Vec<Beside<'_>> = vec![
        ("e2b", Box::new(move || alone(built, |repo, tools| e2b::check(repo, tools, scope, all)))),
        ("setup", Box::new(move || in_roots(all))),
        ("soak", Box::new(move || soaked(built, scope))),
    ];
    steps.run_beside(beside, |steps| {
        let tools = if built { Tools::get(repo) } else { Err(anyhow!("build failed")) };
        let with = |step: &dyn Fn(&Tools) -> Result<StepOutcome>| match &tools {
            Ok(tools) => step(tools),
            Err(why) => Ok(StepOutcome::Skipped(format!("{why:#}"))),
        };
        let unchanged = |step: &str, check: &dyn Fn() -> Result<StepOutcome>| match built {
            true => proven::unless_unchanged(&repo.root, step, all, check),
            false => Ok(StepOutcome::Skipped("build failed".to_owned())),
        };
        steps.run("containment", || match built {
            true => containment::check(repo, scope.vms),
            false => Ok(StepOutcome::Skipped("build failed".to_owned())),
        });
        steps.run("conformance", || with(&|tools| conformance::check(repo, tools)));
        steps.run("inspector", || with(&|tools| inspector::check(repo, tools)));
        steps.run("acp", || with(&|tools| acp::check(repo, tools)));
        steps.run("openapi", || with(&|tools| openapi::check(repo, tools)));
        steps.run("sources", || with(&|tools| sources::check(repo, tools)));
        steps.run("browsers", || unchanged("browsers", &|| browsers(repo)));
        steps.run("models", || unchanged("models", &|| models::check(repo)));
        steps.run("embeddings", || {
            unchanged("embeddings", &|| embeddings::check(repo, scope.nightly))
        });
        steps.run("qdrant", || match built {
            true => qdrant::check(repo),
            false => Ok(StepOutcome::Skipped("build failed".to_owned())),
        });
        let there = (scope.images, scope.vms);
        for set in [programs::CODEX].into_iter().chain(all.then_some(programs::OTHERS)) {
            steps.run(set.name, || with(&|tools| programs::check(repo, tools, there, &set)));
        }
        steps.run("clients", || with(&|tools| clients::check(repo, tools, scope, all)));
    });
}

/// A step on a thread of its own: a shell is its thread's.
fn alone(
    built: bool,
    step: impl FnOnce(&Repo, &Tools) -> Result<StepOutcome>,
) -> Result<StepOutcome> {
    if !built {
        return Ok(StepOutcome::Skipped("build failed".to_owned()));
    }
    let repo = Repo::open()?;
    match Tools::get(&repo) {
        Ok(tools) => step(&repo, &tools),
        Err(why) => Ok(StepOutcome::Skipped(format!("{why:#}"))),
    }
}

/// Filterset of the tests that start a Chrome for themselves.
pub(super) const BROWSERS: &str = "package(hivekeep-browser) & test(/^tests::/)";

/// What Chrome does to its actor and its actor to Chrome. Browsers behind a daemon are in each run's tests.
fn browsers(repo: &Repo) -> Result<StepOutcome> {
    tests_of(repo, &["hivekeep-browser"], &["--lib"], BROWSERS).run()?;
    Ok(passed("Chrome killed, hung, hostile, and at work"))
}

/// The soak counts what its own daemon holds, whatever runs beside it.
fn soaked(built: bool, scope: &Scope<'_>) -> Result<StepOutcome> {
    ensure!(built && scope.images, "guest, build or image failed");
    soak::check_by_count(&Repo::open()?, scope.vms)
}

/// `setup` in root file systems, if what it does could have changed.
fn in_roots(all: bool) -> Result<StepOutcome> {
    let repo = Repo::open()?;
    proven::unless_unchanged(&repo.root, "setup", all, || roots::check(&repo.target))
}

/// Tests of packages that are left out of other runs, as the build has compiled them.
fn tests_of<'r>(repo: &'r Repo, packages: &[&str], targets: &[&str], filterset: &str) -> Cmd<'r> {
    let run = ["nextest", "run", "--run-ignored", "all", "--no-tests", "fail"];
    repo.cargo(&run, packages).args(targets).args(["--filterset", filterset])
}
