//! Installing what the machine lacks. Never asks a question.

mod apt;
#[path = "../../src/check/distribution.rs"]
mod distribution;
pub(crate) mod needs;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xshell::{Shell, cmd};

use self::apt::Order;
use self::distribution::Distribution;
use crate::repo::Repo;

/// A cargo subcommand that is compiled from source where it is missing. Debug builds without
/// what a debugger needs: they take a fraction of the time and run as long as the tests let them.
struct Tool {
    name: &'static str,
    version: &'static str,
    features: &'static [&'static str],
    purpose: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool {
        name: "nextest",
        version: "0.9.143",
        // Without the self-updater it needs half the crates.
        features: &["--no-default-features", "--features", "default-no-update"],
        purpose: "the tests",
    },
    Tool { name: "deny", version: "0.20.2", features: &[], purpose: "licences" },
];

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
        let tools: Vec<&Tool> = match self.packages_only {
            true => Vec::new(),
            false => TOOLS.iter().filter(|tool| !tool.present(shell)).collect(),
        };
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
        tools.iter().try_for_each(|tool| tool.install(shell))?;
        println!("setup: everything is there");
        Ok(())
    }
}

/// Installs the packages alone, without the cargo subcommands of the tests.
pub(crate) fn for_running(repo: &Repo) -> Result<()> {
    packages(&repo.shell)
}

/// Installs packages as root; otherwise says the line that does.
///
/// All that is needed is asked for at once, also what is there: so that apt keeps it,
/// and brings what belongs together to one version.
fn packages(shell: &Shell) -> Result<()> {
    let mut missing = needs::missing();
    if missing.is_empty() {
        return Ok(());
    }
    if !needs::program("apt-get") {
        bail!("no apt-get here: install what provides {}", needs::packages(&missing).join(", "));
    }
    let all = needs::packages(&needs::NEEDS);
    let whole = Order { packages: &all, reinstall: false, keep: &all };
    if !rustix::process::geteuid().is_root() {
        bail!("not root: run this line, then again:\n\n    sudo {}\n", apt::line(shell, &whole));
    }
    apt::update(shell);
    let mut outcome = apt::install(shell, &whole);
    missing = needs::missing();
    if !missing.is_empty() {
        // dpkg may believe to be there what somebody deleted, or apt have left something out.
        if let Err(error) = &outcome {
            println!("{error:#}");
        }
        println!("still missing: {}; once more", needs::names(&missing));
        let rest = needs::packages(&missing);
        outcome = apt::install(shell, &Order { packages: &rest, reinstall: true, keep: &all });
        missing = needs::missing();
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

impl Tool {
    fn present(&self, shell: &Shell) -> bool {
        let name = self.name;
        let asked = cmd!(shell, "cargo {name} --version").quiet().ignore_stdout().ignore_stderr();
        asked.run().is_ok()
    }

    fn install(&self, shell: &Shell) -> Result<()> {
        let Self { name, version, features, .. } = *self;
        println!("compiling cargo-{name} {version}; this takes some minutes, once");
        cmd!(shell, "cargo install --locked cargo-{name} --version {version} {features...} --debug")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .run()
            .with_context(|| format!("cargo-{name} could not be installed"))
    }
}
