//! Installing what the machine lacks. Never asks a question.

mod apt;
pub(crate) mod needs;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use xshell::{Shell, cmd};

use self::needs::Need;
use crate::repo::Repo;

/// A cargo subcommand that is compiled from source where it is missing. Debug
/// builds: they take a third of the time and run as long as the tests let them.
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
pub(crate) struct Setup {
    /// Say what is missing and install nothing; exit code 1 when something is
    #[arg(long)]
    check: bool,
}

impl Setup {
    pub(crate) fn run(&self, repo: &Repo) -> Result<()> {
        let shell = &repo.shell;
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "hivekeep runs on x86-64 Linux only"
        );
        let missing = needs::missing();
        let tools: Vec<&Tool> = TOOLS.iter().filter(|tool| !tool.present(shell)).collect();
        for need in &missing {
            println!("missing: {} ({}), for {}", need.what, need.package, need.purpose);
        }
        for tool in &tools {
            println!("missing: cargo-{}, for {}", tool.name, tool.purpose);
        }
        if self.check {
            ensure!(missing.is_empty() && tools.is_empty(), "run `cargo xtask setup`");
            println!("nothing is missing");
            return Ok(());
        }
        packages(shell, &missing)?;
        tools.iter().try_for_each(|tool| tool.install(shell))?;
        println!("setup: everything is there");
        Ok(())
    }
}

/// Installs the packages alone, without the cargo subcommands of the tests.
pub(crate) fn for_running(repo: &Repo) -> Result<()> {
    packages(&repo.shell, &needs::missing())
}

/// Installs packages as root; otherwise says the line that does.
fn packages(shell: &Shell, missing: &[Need]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let packages = needs::packages(missing);
    if !needs::program("apt-get") {
        bail!("this is no Debian: install what provides {}", packages.join(", "));
    }
    if !rustix::process::geteuid().is_root() {
        bail!("not root: run this line, then again:\n\n    sudo {}\n", apt::line(shell, &packages));
    }
    apt::install(shell, &packages)?;
    let still = needs::missing();
    let names: Vec<&str> = still.iter().map(|need| need.what).collect();
    ensure!(still.is_empty(), "apt-get succeeded and these are still missing: {names:?}");
    Ok(())
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
            .run()
            .with_context(|| format!("cargo-{name} could not be installed"))
    }
}
