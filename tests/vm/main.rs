//! A real daemon with real machines, driven from outside and killed on purpose.
//!
//! Scenes of `sandbox` are played wherever bubblewrap runs and are quick; those of `vm` boot virtual
//! machines, one scene at a time. A scene that the host cannot play, or that has its turn in another
//! run, is ignored; `--left-out` says which and why. What is asked for by `--ignored` is played, and
//! fails where the host cannot.
#![allow(clippy::print_stdout)]

#[path = "../it/knowledge/counter.rs"]
mod counter;
mod door;
#[path = "../it/sources/guarded.rs"]
mod guarded;
mod house;
mod https;
mod leaks;
mod names;
mod needs;
mod scenes;
mod share;
mod table;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::{needs::Host, share::Share, table::Scene};

/// Configuration of daemons whose embeddings a counter makes.
fn knowledge_config(counter: &counter::Counter) -> String {
    format!("{}[ingest]\npoll_secs = 1\n", counter.config())
}

fn ingested(kind: house::Kind) {
    let counter = counter::Counter::start();
    let house = house::House::open_with(kind, &knowledge_config(&counter));
    scenes::knowledge::every_workspace_of_a_session_is_ingested(house, &counter);
}

/// A scene as this run has it.
struct Cast {
    scene: Scene,
    /// What the host lacks for it.
    lacks: Option<String>,
    /// Why its turn is in another run, behind a word for that.
    later: Option<(&'static str, String)>,
}

impl Cast {
    fn of(scene: Scene, host: &mut Host, share: Share) -> Self {
        let (lacks, later) = (host.lacks(&scene.needs), share.leaves_out(scene.when));
        Self { scene, lacks, later }
    }

    /// A line for the summary of the run. One that a bundle has is not left out.
    fn left_out(&self) -> Option<String> {
        let (word, why) = match (&self.lacks, &self.later) {
            (_, Some(("BUNDLED", _))) | (None, None) => return None,
            (_, Some((word, why))) => (*word, why),
            (Some(why), None) => ("SKIPPED", why),
        };
        Some(format!("{word}: {}: {why}", self.scene.name))
    }

    fn trial(self) -> Trial {
        let is_ignored = self.lacks.is_some() || self.later.is_some();
        let Scene { name, play, .. } = self.scene;
        let trial = Trial::test(name, move || match self.lacks {
            Some(why) => Err(format!("it cannot be played: {why}").into()),
            None => {
                play();
                Ok(())
            }
        });
        trial.with_ignored_flag(is_ignored)
    }
}

fn main() -> ExitCode {
    let (mut host, share) = (Host::default(), Share::of_environment());
    let mut cast = |scene| Cast::of(scene, &mut host, share);
    if std::env::args().any(|arg| arg == "--left-out") {
        let left_out =
            table::scenes().into_iter().map(&mut cast).filter_map(|cast| cast.left_out());
        left_out.for_each(|line| println!("{line}"));
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let mut scenes = table::scenes();
    // A runner that names one scene starts this program for each.
    let alone = args.filter.as_ref().filter(|_| args.exact);
    scenes.retain(|scene| alone.is_none_or(|name| scene.name == *name));
    let trials = scenes.into_iter().map(|scene| cast(scene).trial()).collect();
    let conclusion = libtest_mimic::run(&args, trials);
    if !args.list && conclusion.num_ignored > 0 {
        println!(
            "{} scenes were left out, `--left-out` says why of each: use `cargo xtask t vm`\n",
            conclusion.num_ignored
        );
    }
    conclusion.exit_code()
}
