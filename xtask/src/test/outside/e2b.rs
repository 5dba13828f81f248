//! E2B's own SDKs, unchanged, drive sandboxes of a running daemon: Python and JavaScript, the newest versions and
//! older ones, and a framework that stands on one. What a version has, it must do; `docs/e2b.md` has the table.

mod door;
mod table;
mod versions;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use self::door::SdkDoor;
use self::table::compare;
use self::versions::python_versions;
use super::tools::Tools;
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::StepOutcome;
use crate::test::nextest::Scope;

/// Template that sandboxes are made from.
const TEMPLATE: &str = "base";

/// Version of the Python SDK among those that asks for a sandbox that it connects to by its name; newer ones find it by
/// an address alone.
const CONNECTS_BY_NAME: &str = "2.10.2";

/// SDKs that drive a door, those of each language with the newest first.
struct SdkClients {
    /// File of Python's packages in `tests/clients`.
    pins: &'static str,
    /// Packages of the JavaScript SDK in `tests/clients/package.json`.
    packages: &'static [&'static str],
    /// Those for code interpreters.
    code_packages: &'static [&'static str],
    /// Remark of the table.
    over: &'static str,
}

const BY_ADDRESS: SdkClients = SdkClients {
    pins: "e2b.txt",
    packages: &["e2b", "e2b-2.46", "e2b-2.35", "e2b-2.20"],
    code_packages: &["@e2b/code-interpreter", "code-interpreter-2.7"],
    over: "",
};

/// SDKs that ask for code by a sandbox's name.
const BY_NAME: SdkClients = SdkClients {
    pins: "e2b_by_name.txt",
    packages: &[],
    code_packages: &["code-interpreter-2.6", "code-interpreter-2.5"],
    over: ", over TLS",
};

/// Folder of the drivers.
const DRIVERS: &str = "tests/clients";
/// Clients in Python: their row, their package, their driver, and whether that is told the template (0) or not (1).
const PYTHON: [(&str, &str, &str, usize); 3] = [
    ("Python", "e2b", "drive_e2b.py", 0),
    ("Python, code", "e2b-code-interpreter", "drive_code.py", 1),
    ("Python, `langchain-e2b`", "langchain-e2b", "drive_langchain_e2b.py", 0),
];
/// Clients in JavaScript: their row and their driver.
const JAVASCRIPT: [(&str, &str); 2] =
    [("JavaScript", "drive_e2b.mjs"), ("JavaScript, code", "drive_code.mjs")];

/// What a driver says.
#[derive(Debug, Deserialize)]
struct Driven {
    version: String,
    isolation: String,
    features: std::collections::BTreeMap<String, bool>,
}

pub(super) fn check(repo: &Repo, tools: &Tools, scope: &Scope<'_>) -> Result<StepOutcome> {
    if !scope.images {
        return Ok(StepOutcome::Skipped("no images".to_owned()));
    }
    let (mut ways, mut left_out) = (Vec::new(), Vec::new());
    for (isolation, needed) in [("sandbox", "bwrap"), ("vm", "qemu-system-x86_64")] {
        if isolation == "vm" && !scope.vms {
            left_out.push("vm: --no-vm".to_owned());
        } else if !program(needed) {
            left_out.push(format!("{isolation}: {needed} is not installed"));
        } else {
            ways.push(isolation);
        }
    }
    install(repo, tools)?;
    // Both mostly wait: for what they started, and for what does not come.
    let rows: Vec<_> = std::thread::scope(|scope| {
        let driven = ways.into_iter().map(|isolation| scope.spawn(move || drive_doors(isolation)));
        let driven: Vec<_> = driven.collect();
        let rows = driven.into_iter().map(|it| it.join().map_err(|_| anyhow!("it panicked"))?);
        rows.collect::<Result<Vec<_>>>()
    })?
    .into_iter()
    .flatten()
    .collect();
    ensure!(!rows.is_empty(), "none could run: {}", left_out.join("; "));
    left_out.iter().for_each(|what| println!("SKIPPED: e2b: {what}"));
    if left_out.is_empty() {
        compare(repo, &rows)?;
    }
    left_out.insert(0, format!("{} runs", rows.len()));
    Ok(StepOutcome::Passed(left_out.join("; not ")))
}

/// Puts everything in its place that drivers of several threads share.
fn install(repo: &Repo, tools: &Tools) -> Result<()> {
    for clients in [&BY_ADDRESS, &BY_NAME] {
        for (_, package, ..) in PYTHON {
            python_versions(repo, clients.pins, package)?;
        }
    }
    for (_, script) in JAVASCRIPT {
        fs::copy(repo.root.join(DRIVERS).join(script), tools.folder().join(script))?;
    }
    Ok(())
}

/// Runs of the clients of each door, one door after another in one home.
fn drive_doors(isolation: &'static str) -> Result<Vec<(String, Driven)>> {
    use std::os::unix::fs::PermissionsExt;
    // A shell is its thread's.
    let repo = &Repo::open()?;
    let tools = &Tools::get(repo)?;
    // Socket paths are short: not below the target folder. Sandboxes run as users of their own.
    let home = repo.shell.create_temp_dir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let door = SdkDoor::by_address(repo, home.path(), isolation)?;
    let mut rows = drive(repo, tools, isolation, (&door, &BY_ADDRESS))?;
    drop(door);
    if isolation == "sandbox" {
        let door = SdkDoor::by_name(repo, home.path(), isolation)?;
        rows.extend(drive(repo, tools, isolation, (&door, &BY_NAME))?);
    }
    Ok(rows)
}

/// Runs of a door's clients. With virtual machines, which are slow where there is no KVM, older versions are asked for
/// what sandboxes have not, and only the newest for code.
fn drive(
    repo: &Repo,
    tools: &Tools,
    isolation: &'static str,
    (door, clients): (&SdkDoor, &SdkClients),
) -> Result<Vec<(String, Driven)>> {
    let folder = repo.root.join(DRIVERS);
    let (all, over) = (isolation == "sandbox", clients.over);
    let part = |at| if all || at == 0 { &[][..] } else { &["life"] };
    let mut rows = Vec::new();
    let args = [TEMPLATE, isolation];
    for (language, package, script, from) in PYTHON {
        let args = &args[from..];
        let versions = python_versions(repo, clients.pins, package)?;
        for (at, (version, packages)) in versions.into_iter().enumerate() {
            let in_machines = match package {
                "e2b" => version != CONNECTS_BY_NAME,
                "langchain-e2b" => false,
                _ => at == 0,
            };
            if all || in_machines {
                let (script, part) = (folder.join(script), part(at));
                let shell = Shell::new()?;
                let run = cmd!(shell, "python3 {script} {args...} {part...}");
                let said = run.env("PYTHONPATH", packages).envs(door.environment.clone()).read();
                let said = said.with_context(|| format!("{language} {version}, {isolation}"))?;
                rows.push((format!("{language}{over}"), driven(&said)?));
            }
        }
    }
    for (language, script) in JAVASCRIPT {
        let (copy, in_machines) = (tools.folder().join(script), language == "JavaScript");
        let (packages, args) = match in_machines {
            true => (clients.packages, &args[..]),
            false => (clients.code_packages, &args[1..]),
        };
        for (at, package) in packages.iter().enumerate().filter(|_| all || in_machines) {
            let run = tools.node(&copy).arg(package).args(args).args(part(at));
            let run = run.envs(door.environment.clone());
            let said = run.read().with_context(|| format!("{package}, {isolation}"))?;
            rows.push((format!("{language}{over}"), driven(&said)?));
        }
    }
    Ok(rows)
}

/// The folder of the newest Python SDK, which is installed if it is not there.
pub(crate) fn newest_python(repo: &Repo) -> Result<PathBuf> {
    let newest = python_versions(repo, BY_ADDRESS.pins, "e2b")?.into_iter().next();
    newest.map(|(_, folder)| folder).context("tests/clients/e2b.txt names no version")
}

fn driven(said: &str) -> Result<Driven> {
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("the driver said `{line}`"))
}
