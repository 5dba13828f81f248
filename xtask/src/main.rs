//! Developers' commands: `cargo xtask setup`, `demo`, `test`, `figures`, `docs`.
//!
//! One file per subcommand. Everything here talks to people, so it prints.
#![allow(clippy::print_stdout)]

mod bench;
mod changelog;
mod containment;
mod demo;
mod docs;
mod e2b_suite;
mod figures;
mod fuzz;
mod guest;
mod image;
mod mutants;
mod repo;
mod setup;
mod soak;
mod steps;
mod t;
mod test;
mod unify;
mod upgrade;
mod way;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Set up, build, test and document hivekeep")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what this machine lacks, or print the one line that does
    Setup(setup::SetupCommand),
    /// Run the tests of one package, or of one module of the root's
    T(t::TestOne),
    /// Check, build and test everything; the summary says what was skipped and why
    Test(test::Test),
    /// Build the static in-guest daemon and put it where the daemon looks for it
    Guest,
    /// Build the images that the tests boot, or reuse them
    Image(image::Image),
    /// Play the main job on this repository: a machine, its files, its jobs, a killed daemon
    Demo(demo::Demo),
    /// Measure, each figure beside its baseline; writes docs/performance.md and .json
    Bench(bench::Bench),
    /// Fuzz the parsers that meet a guest, a client or a file from outside
    Fuzz(fuzz::Fuzz),
    /// Make faults in the platform's crates, and count those that their tests see
    Mutants(mutants::Mutants),
    /// Work for an hour, and see that the daemon holds no more at the end
    Soak(soak::Soak),
    /// Try to get out of each kind of wall, and print what holds and by what
    Containment(containment::ContainmentCommand),
    /// Build an older version, kill it at work, and go on in its place
    Upgrade(upgrade::Upgrade),
    /// Run E2B's own tests of sandboxes, of a checkout of theirs, and print how many pass
    E2bSuite(e2b_suite::E2bSuite),
    /// Count the files that a call passes in the daemon
    Way(way::Way),
    /// Print lines of each crate with and without tests, and the largest circle of its imports
    Figures(figures::Figures),
    /// Write what is generated: docs/tools/, docs/errors.md, config.toml, tests/contract/cli.txt,
    /// README.md's table of tools, the counts in pages, and the manifest of tests/unify
    Docs(docs::Docs),
    /// Say what a change is to users, release what was said, or see what was not
    Changelog(changelog::Changelog),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    // Packages are installed also where there is no checkout.
    if let Command::Setup(setup) = &command
        && setup.packages_only
    {
        return setup.run(&xshell::Shell::new()?);
    }
    let repo = repo::Repo::open()?;
    match command {
        Command::Setup(setup) => setup.run(&repo.shell),
        Command::T(one) => one.run(&repo),
        Command::Test(test) => test.run(&repo),
        Command::Guest => guest::build(&repo).map(|path| println!("{}", path.display())),
        Command::Image(image) => image.run(&repo),
        Command::Demo(demo) => demo.run(&repo),
        Command::Bench(bench) => bench.run(&repo),
        Command::Fuzz(fuzz) => fuzz.run(&repo),
        Command::Mutants(mutants) => mutants.run(&repo),
        Command::Soak(soak) => soak.run(&repo),
        Command::Containment(containment) => containment.run(&repo),
        Command::Upgrade(upgrade) => upgrade.run(&repo),
        Command::E2bSuite(suite) => suite.run(&repo),
        Command::Way(way) => way.run(&repo),
        Command::Figures(figures) => figures.run(&repo),
        Command::Docs(docs) => docs.run(&repo),
        Command::Changelog(changelog) => changelog.run(&repo),
    }
}
