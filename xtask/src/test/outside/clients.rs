//! The official clients, Python and TypeScript, drive workspaces over stdio, and over HTTP answer what
//! the daemon asks the person at the client; the official library for tasks follows some.
//!
//! Nothing of MCP is a machine's: over stdio they have sandboxes, and machines in a run of everything.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::{server::ServedDaemon, tools::Tools};
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::StepOutcome;
use crate::test::nextest::Scope;

/// The newest protocol revision; it knows no `initialize`.
const STATELESS: &str = "2026-07-28";

/// With `all`, machines too.
pub(super) fn check(
    repo: &Repo,
    tools: &Tools,
    scope: &Scope<'_>,
    all: bool,
) -> Result<StepOutcome> {
    over_http(repo, tools)?;
    if !scope.images {
        return Ok(StepOutcome::Passed("4 runs over HTTP; not over stdio: no images".to_owned()));
    }
    let mut left_out = Vec::new();
    // Socket paths are short: not below the target folder.
    let home = repo.shell.create_temp_dir()?;
    open_to_all(home.path())?;
    let daemon = ServedDaemon::start(repo, home.path())?;
    let environment = || daemon.environment().iter().cloned();
    let folder = repo.root.join("tests/clients");
    // Packages are found from where a script lies.
    let typescript = tools.folder().join("drive.mjs");
    fs::copy(folder.join("drive.mjs"), &typescript)?;
    let python = folder.join("drive.py");
    let mut driven = 0;
    let isolations = [("sandbox", "bwrap"), ("vm", "qemu-system-x86_64")];
    for (isolation, needed) in isolations.into_iter().take(if all { 2 } else { 1 }) {
        let reason = match (isolation, program(needed)) {
            ("vm", _) if !scope.vms => "--no-vm".to_owned(),
            (_, false) => format!("{needed} is not installed"),
            _ => String::new(),
        };
        if !reason.is_empty() {
            left_out.push(format!("{isolation}: {reason}"));
            continue;
        }
        for lifecycle in ["legacy", STATELESS] {
            tools
                .python(&python)
                .arg(repo.hivekeep())
                .args([isolation, lifecycle])
                .envs(environment())
                .run()
                .with_context(|| format!("Python, {isolation}, {lifecycle}"))?;
        }
        tools
            .node(&typescript)
            .arg(repo.hivekeep())
            .arg(isolation)
            .envs(environment())
            .run()
            .with_context(|| format!("TypeScript, {isolation}"))?;
        driven += 3;
    }
    ensure!(driven > 0, "none could run: {}", left_out.join("; "));
    left_out.iter().for_each(|what| println!("SKIPPED: clients: {what}"));
    if !all {
        left_out.push("in machines, which a run of everything has".to_owned());
    }
    left_out.insert(0, format!("4 runs over HTTP, {driven} over stdio"));
    Ok(StepOutcome::Passed(left_out.join("; not ")))
}

/// Over HTTP, each client with the credential of a session.
fn over_http(repo: &Repo, tools: &Tools) -> Result<()> {
    let home = repo.shell.create_temp_dir()?;
    let open = [
        ("HIVEKEEP_HTTP__MCP__ENABLED", "true"),
        ("HIVEKEEP_HTTP__MCP__BIND", "127.0.0.1:0"),
        ("HIVEKEEP_POLICY__APPROVALS__ELICITATION", "true"),
    ];
    let daemon = ServedDaemon::start_with(repo, home.path(), &open)?;
    daemon.output(&["policy", "add", "careful", "ask", "aegis.script.save"])?;
    let status: serde_json::Value = serde_json::from_str(&daemon.output(&["status", "--json"])?)?;
    let url = status["mcp_http"].as_str().context("the door is open")?;
    let credential = |name: &str| -> Result<String> {
        let token = daemon.output(&["credential", "create", name, "--scope", "session"])?;
        Ok(token.trim().to_owned())
    };
    let folder = repo.root.join("tests/clients");
    for script in ["drive_http.mjs", "drive_tasks.mjs"] {
        let copy = tools.folder().join(script);
        fs::copy(folder.join(script), &copy)?;
        let run = tools.node(&copy).arg(url).arg(repo.hivekeep());
        let run = run.envs(daemon.environment().iter().cloned());
        run.env("CREDENTIAL", credential(script)?).run().context(script)?;
    }
    for lifecycle in ["legacy", STATELESS] {
        let script = tools.python(&folder.join("drive_http.py")).args([url, lifecycle]);
        let run = script.env("CREDENTIAL", credential(&format!("python-{lifecycle}"))?);
        run.run().with_context(|| format!("Python over HTTP, {lifecycle}"))?;
    }
    Ok(())
}

/// Machines and sandboxes run as users of their own and pass through the home.
fn open_to_all(path: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
