//! The main job on real input, from an MCP client to a command in the guest and
//! back: this repository is moved into a workspace, committed, searched, counted
//! and edited there, while the daemon is killed under it. Every effect is compared
//! with what the host finds by itself.
//!
//! ```text
//! prepare: packages ─ daemon, guest beside ─ image
//! play:    house (folder and daemon) ─ client ─ workspace ─ ... ─ destroy
//! close:   client ─ machines ─ daemon ─ folder, whatever happened before
//! ```

mod explore;
mod farewell;
pub(crate) mod host_image;
mod house;
mod job;
mod play;
mod prepare;
mod sources;
mod teller;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::{house::DemoDaemon, play::Play, prepare::DemoPrograms, teller::Teller};
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

#[derive(Args)]
pub(crate) struct Demo {
    /// How the workspace is isolated
    #[arg(long, value_enum, default_value_t = DemoIsolation::Vm)]
    isolation: DemoIsolation,
    /// Leave the daemon and its workspace running, and say how to reach them
    #[arg(long)]
    keep: bool,
    /// Build all of hivekeep with optimizations, not what is played with alone
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

impl Demo {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let teller = Teller::new()?;
        println!("{}\n", self.expected());
        let programs = self.prepare(repo, &teller)?;
        teller.prepared(match self.isolation {
            DemoIsolation::Vm => "about a minute in virtual machines",
            DemoIsolation::Sandbox => "about half a minute in a sandbox",
        });
        let mut house = DemoDaemon::new(&programs)?;
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
        farewell::configuration(&programs, self.isolation, self.release);
        Ok(())
    }

    /// The demo as a test: a daemon without the feature `full` builds and works.
    pub(crate) fn check(repo: &Repo) -> Result<StepOutcome> {
        let demo = Self { isolation: DemoIsolation::Sandbox, keep: false, release: false };
        demo.run(repo).map(|()| passed("in a sandbox"))
    }

    /// How long it takes, before anything is known of this machine.
    fn expected(&self) -> &'static str {
        match self.release {
            true => {
                "half an hour on two idle cores from an empty cache, two minutes once all is built"
            }
            false => "ten minutes on two idle cores from an empty cache, two once all is built",
        }
    }
}
