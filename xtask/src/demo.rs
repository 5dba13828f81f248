//! The main job on real input, from an MCP client to a command in the guest and
//! back: this repository is moved into a workspace, committed, searched, counted
//! and edited there, while the daemon is killed under it. Every effect is compared
//! with what the host finds by itself.
//!
//! ```text
//! prepare: packages ─ build ─ guest ─ image
//! play:    house (folder and daemon) ─ client ─ workspace ─ ... ─ destroy
//! close:   client ─ machines ─ daemon ─ folder, whatever happened before
//! ```

mod explore;
mod farewell;
mod house;
mod job;
mod play;
mod sources;
mod teller;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use xshell::cmd;

use self::{house::DemoDaemon, play::Play, teller::Teller};
use crate::{guest, image, repo::Repo, setup};

#[derive(Args)]
pub(crate) struct Demo {
    /// How the workspace is isolated
    #[arg(long, value_enum, default_value_t = DemoIsolation::Vm)]
    isolation: DemoIsolation,
    /// Leave the daemon and its workspace running, and say how to reach them
    #[arg(long)]
    keep: bool,
    /// Build hivekeep with optimizations
    #[arg(long)]
    release: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoIsolation {
    /// A virtual machine
    Vm,
    /// Namespaces on the host's kernel
    Sandbox,
}

impl DemoIsolation {
    /// As tools and configuration spell it.
    fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Sandbox => "sandbox",
        }
    }
}

/// The programs that are played with.
pub(crate) struct DemoPrograms {
    /// The daemon and its command line.
    hivekeep: PathBuf,
}

impl Demo {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let teller = Teller::default();
        let programs = self.prepare(repo, &teller)?;
        let mut house = DemoDaemon::new(repo, &programs)?;
        let played = Play::new(repo, &programs, &mut house, &teller, self.isolation)
            .and_then(|play| play.all(self.keep));
        let played = teller.interrupted().and(played);
        if played.is_err() {
            teller.failed(&house.last_words());
        }
        if self.keep {
            farewell::kept(&house);
            return played;
        }
        let closed = house.close().context("cleaning up");
        // Both may have failed; the first reason is the one to read first.
        played.and(closed)?;
        teller.closed();
        farewell::configuration(repo, &programs, self.isolation);
        Ok(())
    }

    /// Everything that is made once and kept in the target folder.
    fn prepare(&self, repo: &Repo, teller: &Teller) -> Result<DemoPrograms> {
        let shell = &repo.shell;
        teller.step("packages of the system", || {
            setup::for_running(repo).map(|()| "all there".to_owned())
        })?;
        let (profile, flag) =
            if self.release { ("release", Some("--release")) } else { ("debug", None) };
        teller.step("build", || {
            let what = ["--package", "hivekeep", "--bin", "hivekeep"];
            cmd!(shell, "cargo build {what...}").args(flag).quiet().run()?;
            Ok(format!("hivekeep, {profile}"))
        })?;
        teller.step("guest", || {
            let guest = guest::build(repo)?;
            Ok(format!("static, {} KiB", std::fs::metadata(guest)?.len() / 1024))
        })?;
        let programs = DemoPrograms { hivekeep: repo.target.join(profile).join("hivekeep") };
        teller.step("image `base`", || {
            let hivekeep = &programs.hivekeep;
            cmd!(shell, "{hivekeep} image build base")
                .envs(image::environment(repo))
                .quiet()
                .run()?;
            Ok(format!("in {}", repo.images().display()))
        })?;
        Ok(programs)
    }
}
