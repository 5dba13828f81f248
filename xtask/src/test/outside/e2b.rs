//! E2B's own SDKs, unchanged, drive sandboxes of a running daemon: Python and JavaScript, the newest versions and
//! older ones, and a framework that stands on one. What a version has, it must do; `docs/e2b.md` has the table.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use super::{server::ServedDaemon, tools::Tools};
use crate::repo::Repo;
use crate::setup::needs::program;
use crate::steps::StepOutcome;
use crate::test::nextest::Scope;

/// Template that sandboxes are made from.
const TEMPLATE: &str = "base";
/// Packages of the JavaScript SDK in `tests/clients/package.json`, the newest first.
const PACKAGES: [&str; 4] = ["e2b", "e2b-2.46", "e2b-2.35", "e2b-2.20"];
/// Those for code interpreters.
const CODE_PACKAGES: [&str; 2] = ["@e2b/code-interpreter", "code-interpreter-2.7"];
/// Lines around the table.
const BEGIN: &str = "<!-- versions: compared by `cargo xtask test --only e2b` -->";
const END: &str = "<!-- end of versions -->";

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
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for (isolation, needed) in [("sandbox", "bwrap"), ("vm", "qemu-system-x86_64")] {
        if isolation == "vm" && !scope.vms {
            left_out.push("vm: --no-vm".to_owned());
        } else if !program(needed) {
            left_out.push(format!("{isolation}: {needed} is not installed"));
        } else {
            rows.extend(drive(repo, tools, isolation)?);
        }
    }
    ensure!(!rows.is_empty(), "none could run: {}", left_out.join("; "));
    left_out.iter().for_each(|what| println!("SKIPPED: e2b: {what}"));
    if left_out.is_empty() {
        compare(repo, &rows)?;
    }
    left_out.insert(0, format!("{} runs", rows.len()));
    Ok(StepOutcome::Passed(left_out.join("; not ")))
}

/// All versions with sandboxes; with virtual machines, which are slow where there is no KVM, the newest for Python, whose
/// driver asks for more.
fn drive(repo: &Repo, tools: &Tools, isolation: &'static str) -> Result<Vec<(String, Driven)>> {
    use std::os::unix::fs::PermissionsExt;
    // Socket paths are short: not below the target folder. Sandboxes run as users of their own.
    let home = repo.shell.create_temp_dir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
    let open = [
        ("HIVEKEEP_DOORS__E2B__ENABLED", "true"),
        ("HIVEKEEP_DOORS__E2B__BIND", "127.0.0.1:0"),
        ("HIVEKEEP_DOORS__E2B__ISOLATION", isolation),
        ("HIVEKEEP_NETWORK__MODE", "off"),
    ];
    let daemon = ServedDaemon::start_with(repo, home.path(), &open)?;
    let status: serde_json::Value = serde_json::from_str(&daemon.output(&["status", "--json"])?)?;
    let url = status["e2b"].as_str().context("the door is open")?.to_owned();
    let credential = daemon.output(&["credential", "create", "e2b", "--scope", "session"])?;
    let key = credential.trim().replacen("hivekeep_", "e2b_", 1);
    let environment = [("E2B_API_URL", &url), ("E2B_SANDBOX_URL", &url), ("E2B_API_KEY", &key)];
    let folder = repo.root.join("tests/clients");
    let all = isolation == "sandbox";
    let mut rows = Vec::new();
    for (language, package, script, args) in [
        ("Python", "e2b", "drive_e2b.py", &[TEMPLATE, isolation][..]),
        ("Python, code", "e2b-code-interpreter", "drive_code.py", &[isolation][..]),
        (
            "Python, `langchain-e2b`",
            "langchain-e2b",
            "drive_langchain_e2b.py",
            &[TEMPLATE, isolation],
        ),
    ] {
        for (at, (version, packages)) in python_versions(repo, package)?.into_iter().enumerate() {
            let framework = package == "langchain-e2b";
            if all || (at == 0 && !framework) {
                let script = folder.join(script);
                let shell = Shell::new()?;
                let run = cmd!(shell, "python3 {script} {args...}");
                let said = run.env("PYTHONPATH", packages).envs(environment).read();
                let said = said.with_context(|| format!("{language} {version}, {isolation}"))?;
                rows.push((language.to_owned(), driven(&said)?));
            }
        }
    }
    for (language, packages, script, args) in [
        ("JavaScript", &PACKAGES[..], "drive_e2b.mjs", &[TEMPLATE, isolation][..]),
        ("JavaScript, code", &CODE_PACKAGES[..], "drive_code.mjs", &[isolation][..]),
    ] {
        let copy = tools.folder().join(script);
        fs::copy(folder.join(script), &copy)?;
        for package in packages.iter().filter(|_| all) {
            let run = tools.node(&copy).arg(package).args(args).envs(environment);
            let said = run.read().with_context(|| format!("{package}, {isolation}"))?;
            rows.push((language.to_owned(), driven(&said)?));
        }
    }
    Ok(rows)
}

fn driven(said: &str) -> Result<Driven> {
    let line = said.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("the driver said `{line}`"))
}

/// The versions of a package in `tests/clients/e2b.txt`, the newest first, each with the folder that it is
/// installed to.
fn python_versions(repo: &Repo, package: &str) -> Result<Vec<(String, PathBuf)>> {
    let pins = fs::read_to_string(repo.root.join("tests/clients/e2b.txt"))?;
    let lines = pins.lines().filter_map(|line| Some((line, line.strip_prefix(package)?)));
    // A version may stand before that of another package that it is installed with.
    let pinned = lines.filter_map(|(line, rest)| Some((line, rest.strip_prefix("==")?)));
    let install = |(line, version): (&str, &str)| {
        let version = version.split(' ').next().unwrap_or(version);
        let name = package.replace('-', "_");
        let folder = repo.target.join("e2b").join(format!("{name}-{version}"));
        let there = folder.join(format!("{name}-{version}.dist-info/METADATA"));
        if !there.exists() {
            println!("installing {line} to {}", folder.display());
            installed(&folder, line)?;
        }
        Ok((version.to_owned(), folder))
    };
    pinned.map(install).collect()
}

/// The folder of the newest Python SDK, which is installed if it is not there.
pub(crate) fn newest_python(repo: &Repo) -> Result<PathBuf> {
    let newest = python_versions(repo, "e2b")?.into_iter().next();
    newest.map(|(_, folder)| folder).context("tests/clients/e2b.txt names no version")
}

fn installed(folder: &Path, pins: &str) -> Result<()> {
    let shell = Shell::new()?;
    // What a broken installation has left behind is no part of it.
    shell.remove_path(folder)?;
    let python = folder.with_file_name("venv");
    let packages = pins.split(' ');
    cmd!(shell, "python3 -m venv --clear {python}").run().context("python3 -m venv")?;
    let pip = python.join("bin/python");
    cmd!(
        shell,
        "timeout --kill-after=10 300 {pip} -m pip install --quiet --target {folder} {packages...}"
    )
    .run()
    .with_context(|| format!("{pins} cannot be had"))?;
    shell.remove_path(&python)?;
    Ok(())
}

/// Holds the table of the documentation against what was driven.
fn compare(repo: &Repo, rows: &[(String, Driven)]) -> Result<()> {
    let page = repo.root.join("docs/e2b.md");
    let text = fs::read_to_string(&page)?;
    let table = table(rows);
    let found = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (found, _) = found.with_context(|| format!("{} has no table", page.display()))?;
    if found.trim() != table.trim() {
        bail!("docs/e2b.md has another table; this is what was driven:\n{table}");
    }
    Ok(())
}

/// A row for each run, with what the version has and what it has not.
fn table(rows: &[(String, Driven)]) -> String {
    let mut text =
        "| SDK | version | isolation | driven | not there |\n|---|---|---|---|---|\n".to_owned();
    for (language, Driven { version, isolation, features }) in rows {
        let named = |there: bool| {
            let names = features.iter().filter(|(_, is)| **is == there).map(|(name, _)| &**name);
            names.collect::<Vec<_>>().join(", ")
        };
        let (has, lacks) = (named(true), named(false));
        text += &format!("| {language} | {version} | {isolation} | {has} | {lacks} |\n");
    }
    text
}
