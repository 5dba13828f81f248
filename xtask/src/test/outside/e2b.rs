//! E2B's own SDKs, unchanged, drive sandboxes of a running daemon: Python and JavaScript, the newest versions and
//! older ones, and a framework that stands on one. What a version has, it must do; `docs/e2b.md` has the table.

mod door;
mod runs;
mod table;
mod versions;

use std::fs;
use std::path::PathBuf;
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use self::door::SdkDoor;
use self::runs::{JAVASCRIPT, PYTHON, SdkProgram, SdkRun};
use self::table::compare;
use self::versions::python_versions;
use super::tools::Tools;
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::StepOutcome;
use crate::test::nextest::Scope;

/// Template that sandboxes are made from.
const TEMPLATE: &str = "base";
/// Folder of the drivers.
const DRIVERS: &str = "tests/clients";

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

/// What a driver says.
#[derive(Debug, Deserialize)]
struct Driven {
    version: String,
    isolation: String,
    features: std::collections::BTreeMap<String, bool>,
}

/// What an isolation's doors were driven by.
#[derive(Default)]
struct DoorOutcome {
    rows: Vec<(String, Driven)>,
    /// Version whose turn it was.
    turn: Option<String>,
    /// Versions whose turn it was not.
    others: Vec<String>,
}

/// With `all`, versions take no turns.
pub(super) fn check(
    repo: &Repo,
    tools: &Tools,
    scope: &Scope<'_>,
    all: bool,
) -> Result<StepOutcome> {
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
    if let Err(why) = install(repo) {
        return Ok(StepOutcome::Skipped(format!("{why:#}")));
    }
    for (_, script) in JAVASCRIPT {
        fs::copy(repo.root.join(DRIVERS).join(script), tools.folder().join(script))?;
    }
    // Both mostly wait: for what they started, and for what does not come.
    let outcomes: Vec<DoorOutcome> = std::thread::scope(|scope| {
        let threads =
            ways.into_iter().map(|isolation| scope.spawn(move || drive_doors(isolation, all)));
        let threads: Vec<_> = threads.collect();
        let join = |it: ScopedJoinHandle<'_, _>| it.join().map_err(|_| anyhow!("it panicked"))?;
        threads.into_iter().map(join).collect::<Result<_>>()
    })?;
    let (mut rows, mut others, mut remark) = (Vec::new(), Vec::new(), String::new());
    for outcome in outcomes {
        rows.extend(outcome.rows);
        others.extend(outcome.others);
        remark
            .extend(outcome.turn.map(|name| format!(", of older ones in machines {name} by turn")));
    }
    ensure!(!rows.is_empty(), "none could run: {}", left_out.join("; "));
    left_out.iter().for_each(|what| println!("SKIPPED: e2b: {what}"));
    compare(repo, &rows, left_out.is_empty().then_some(others.len()))?;
    if !others.is_empty() {
        left_out.push(format!("in machines: {}", others.join(", ")));
    }
    left_out.insert(0, format!("{} runs{remark}", rows.len()));
    Ok(StepOutcome::Passed(left_out.join("; not ")))
}

/// Installs all versions of Python's packages.
pub(super) fn install(repo: &Repo) -> Result<()> {
    for clients in [&BY_ADDRESS, &BY_NAME] {
        for (_, package, ..) in PYTHON {
            python_versions(repo, clients.pins, package)?;
        }
    }
    Ok(())
}

/// Runs of the clients of each door, one door after another in one home.
fn drive_doors(isolation: &'static str, all: bool) -> Result<DoorOutcome> {
    use std::os::unix::fs::PermissionsExt;
    // A shell is its thread's.
    let repo = &Repo::open()?;
    let tools = &Tools::get(repo)?;
    // Socket paths are short: not below the target folder. Sandboxes run as users of their own.
    let home = repo.shell.create_temp_dir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let mut outcome = DoorOutcome::default();
    let mut runs = runs::runs(repo, isolation, &BY_ADDRESS)?;
    if !all {
        (runs, outcome.others) = runs::keep_one(runs, runs::turn(repo));
        let in_turn = runs.iter().find(|run| run.takes_turns);
        outcome.turn = in_turn.map(|run| run.name.clone());
    }
    let door = SdkDoor::by_address(repo, home.path(), isolation)?;
    outcome.rows = drive(tools, isolation, &door, runs)?;
    drop(door);
    if isolation == "sandbox" {
        let door = SdkDoor::by_name(repo, home.path(), isolation)?;
        let runs = runs::runs(repo, isolation, &BY_NAME)?;
        outcome.rows.extend(drive(tools, isolation, &door, runs)?);
    }
    Ok(outcome)
}

fn drive(
    tools: &Tools,
    isolation: &str,
    door: &SdkDoor,
    runs: Vec<SdkRun>,
) -> Result<Vec<(String, Driven)>> {
    let shell = Shell::new()?;
    let row = |SdkRun { row, name, program, arguments, .. }: SdkRun| {
        let command = match &program {
            SdkProgram::Python(python, script) => cmd!(shell, "{python} {script}"),
            SdkProgram::JavaScript(script, package) => {
                tools.node(&tools.folder().join(script)).arg(package)
            }
        };
        let said = command.args(arguments).envs(door.environment.clone()).read();
        Ok((row, driven(&said.with_context(|| format!("{name}, {isolation}"))?)?))
    };
    runs.into_iter().map(row).collect()
}

/// The folder of the newest Python SDK, which is installed if it is not there.
pub(crate) fn newest_python(repo: &Repo) -> Result<PathBuf> {
    let newest = python_versions(repo, BY_ADDRESS.pins, "e2b")?.into_iter().next();
    newest.context("tests/clients/e2b.txt names no version")?.1.packages()
}

fn driven(said: &str) -> Result<Driven> {
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("the driver said `{line}`"))
}
