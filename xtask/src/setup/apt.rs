//! apt-get, without questions: simulated, told in words, then done.

mod plan;
mod variants;

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use self::plan::{Change, Plan};

const INSTALL: [&str; 4] = ["install", "-y", "--no-install-recommends", "-q"];

/// Packages that are asked for in one transaction.
pub(super) struct Order<'a> {
    pub(super) packages: &'a [&'static str],
    /// Also unpack anew what dpkg believes to be there.
    pub(super) reinstall: bool,
    /// None of these may be removed for it.
    pub(super) keep: &'a [&'static str],
}

/// Arguments of apt-get that it can satisfy, and what it would do.
struct Transaction {
    arguments: Vec<String>,
    plan: Plan,
}

/// Fetches the package lists; as root.
pub(super) fn update(shell: &Shell) {
    // A source that fails must not keep the others from serving what is needed.
    if let Err(error) = cmd!(shell, "apt-get update -q").run() {
        println!("apt-get update failed ({error}); going on with the lists there are");
    }
}

/// Command line for a person, after a text that says what it would do.
pub(super) fn line(shell: &Shell, order: &Order<'_>) -> String {
    // The lists may be missing before the update; then the names are the best guess.
    let arguments = match choose(shell, order) {
        Ok(transaction) => {
            tell(shell, &transaction.plan);
            transaction.arguments
        }
        Err(_) => order.packages.iter().map(|&package| package.to_owned()).collect(),
    };
    let install = INSTALL.join(" ");
    format!("sh -c 'apt-get update; apt-get {install} {}'", arguments.join(" "))
}

/// Carries an order out; as root.
pub(super) fn install(shell: &Shell, order: &Order<'_>) -> Result<()> {
    let Transaction { arguments, plan } = choose(shell, order)?;
    tell(shell, &plan);
    cmd!(shell, "apt-get {INSTALL...} {arguments...}")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
        .context("apt-get could not install them")
}

/// The first variant that apt-get does not refuse and that takes away nothing that is needed.
fn choose(shell: &Shell, order: &Order<'_>) -> Result<Transaction> {
    let installed = installed(shell);
    let installed: Vec<&str> = installed.iter().map(String::as_str).collect();
    let madison = madison(shell, &installed);
    let mut refusals = Vec::new();
    for mut arguments in variants::variants(order.packages, &installed, &madison) {
        if order.reinstall {
            arguments.insert(0, "--reinstall".to_owned());
        }
        let simulated = cmd!(shell, "apt-get --simulate {INSTALL...}")
            .args(&arguments)
            .quiet()
            .ignore_status()
            .output()?;
        let plan = Plan::parse(&String::from_utf8_lossy(&simulated.stdout));
        let lost = plan.takes_away(order.keep);
        let refusal = match (simulated.status.success(), lost.is_empty()) {
            (true, true) => return Ok(Transaction { arguments, plan }),
            (true, false) => format!("it would remove {}, which is needed", lost.join(", ")),
            (false, _) => String::from_utf8_lossy(&simulated.stderr).trim().to_owned(),
        };
        refusals.push(format!("apt-get install {}\n{refusal}", arguments.join(" ")));
    }
    bail!("apt-get cannot bring all that is needed:\n{}", refusals.join("\n"))
}

/// Says what becomes of packages that are there.
fn tell(shell: &Shell, plan: &Plan) {
    for Change { package, from, to } in &plan.changes {
        match to {
            None => println!("apt-get removes {package} {from}"),
            Some(to) if newer(shell, from, to) => {
                println!("apt-get downgrades {package} from {from} to {to}");
            }
            Some(to) if from != to => println!("apt-get upgrades {package} from {from} to {to}"),
            Some(_) => println!("apt-get unpacks {package} {from} anew"),
        }
    }
}

fn newer(shell: &Shell, one: &str, other: &str) -> bool {
    cmd!(shell, "dpkg --compare-versions {one} gt {other}").quiet().run().is_ok()
}

/// The packages of QEMU's source on this machine.
fn installed(shell: &Shell) -> Vec<String> {
    let format = "${db:Status-Status} ${source:Package} ${Package}\n";
    let listed = cmd!(shell, "dpkg-query --show --showformat {format} qemu-*")
        .quiet()
        .ignore_stderr()
        .ignore_status()
        .read()
        .unwrap_or_default();
    let qemu = listed.lines().filter_map(|line| line.strip_prefix("installed qemu "));
    qemu.map(str::to_owned).collect()
}

/// The versions of QEMU's packages that apt's sources have.
fn madison(shell: &Shell, installed: &[&str]) -> String {
    let qemu = variants::QEMU;
    cmd!(shell, "apt-cache madison {qemu...} {installed...}")
        .quiet()
        .ignore_stderr()
        .ignore_status()
        .read()
        .unwrap_or_default()
}
