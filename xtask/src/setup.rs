//! Installing what the machine lacks. Never asks a question.

mod apt;
#[path = "../../src/check/distribution.rs"]
mod distribution;
pub(crate) mod needs;
mod tools;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xshell::Shell;

use self::apt::Order;
use self::distribution::Distribution;
use self::needs::SetupNeed;
use self::tools::Tool;
use crate::repo::Repo;

#[derive(Args)]
pub(crate) struct SetupCommand {
    /// Say what is missing and install nothing; exit code 1 when something is
    #[arg(long)]
    check: bool,
    /// Leave out the cargo subcommands of the tests; needs neither checkout nor cargo
    #[arg(long)]
    pub(crate) packages_only: bool,
}

impl SetupCommand {
    pub(crate) fn run(&self, shell: &Shell) -> Result<()> {
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "hivekeep runs on x86-64 Linux only"
        );
        let here = Distribution::here();
        let missing = needs::missing();
        let tools: Vec<&Tool> = if self.packages_only { Vec::new() } else { tools::missing(shell) };
        for need in &missing {
            let remedy = here.install(need.package);
            println!("missing: {}, for {}: {remedy}", need.what, need.purpose);
        }
        for tool in &tools {
            println!("missing: cargo-{}, for {}", tool.name, tool.purpose);
        }
        if self.check {
            ensure!(missing.is_empty() && tools.is_empty(), "run `cargo xtask setup`");
            println!("nothing is missing");
            return Ok(());
        }
        packages(shell)?;
        if !self.packages_only {
            self::tools(shell)?;
        }
        println!("setup: everything is there");
        Ok(())
    }
}

/// Installs cargo subcommands that are missing.
pub(crate) fn tools(shell: &Shell) -> Result<()> {
    tools::missing(shell).iter().try_for_each(|tool| tool.install(shell))
}

/// Installs what makes mutants, which takes minutes and which only a night and a person ask for.
pub(crate) fn for_mutants(shell: &Shell) -> Result<()> {
    tools(shell)?;
    if tools::MUTANTS.present(shell) { Ok(()) } else { tools::MUTANTS.install(shell) }
}

/// Installs packages and cargo subcommands. Who is not root gets the subcommands at least.
pub(crate) fn for_testing(repo: &Repo) -> Result<()> {
    let packages = packages(&repo.shell);
    tools(&repo.shell)?;
    packages
}

/// Installs what the demo takes, with virtual machines or with sandboxes.
pub(crate) fn for_demo(repo: &Repo, virtual_machines: bool) -> Result<()> {
    install(&repo.shell, &needs::for_demo(virtual_machines))
}

fn packages(shell: &Shell) -> Result<()> {
    install(shell, &needs::NEEDS)
}

/// Installs packages as root; otherwise says the line that does.
///
/// All that is needed is asked for at once, also what is there: so that apt keeps it,
/// and brings what belongs together to one version.
fn install(shell: &Shell, needed: &[SetupNeed]) -> Result<()> {
    let mut missing = needs::missing_of(needed);
    if missing.is_empty() {
        return Ok(());
    }
    if !needs::program("apt-get") {
        bail!("no apt-get here: install what provides {}", needs::packages(&missing).join(", "));
    }
    let all = needs::packages(needed);
    let whole = Order { packages: &all, reinstall: false, keep: &all };
    if !rustix::process::geteuid().is_root() {
        bail!("not root: run this line, then again:\n\n    sudo {}\n", apt::line(shell, &whole));
    }
    apt::update(shell);
    let mut outcome = apt::install(shell, &whole);
    missing = needs::missing_of(needed);
    if !missing.is_empty() {
        // dpkg may believe to be there what somebody deleted, or apt have left something out.
        if let Err(error) = &outcome {
            println!("{error:#}");
        }
        println!("still missing: {}; once more", needs::names(&missing));
        let rest = needs::packages(&missing);
        outcome = apt::install(shell, &Order { packages: &rest, reinstall: true, keep: &all });
        missing = needs::missing_of(needed);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (names, rest) = (needs::names(&missing), needs::packages(&missing).join(" "));
    let line = format!("apt-get install --reinstall {rest}");
    let still = format!(
        "after two rounds of apt-get these are still missing: {names}; \
         see what it says to this line, then again:\n\n    {line}\n"
    );
    outcome.context(still.clone())?;
    bail!(still)
}
