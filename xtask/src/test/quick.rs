//! `cargo xtask test --quick`: what changed since `origin/main`, and what depends on it, in some minutes.
//!
//! All tests of packages with changed files, unit tests of packages that depend on them, the rules of the
//! repository, the daemon's tests of what changed, ten scenes with sandboxes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::cmd;

use super::junit::TestTally;
use super::outside::BROWSERS;
use super::{before_the_build, checks, finish, nextest};
use crate::repo::{BENCH_ONLY, Repo, UNIFY};
use crate::steps::{Steps, passed};
use crate::{changelog, guest, image};

const ROOT: &str = "hivekeep";
/// A change of these runs no test but the repository's rules.
const NO_PACKAGES: [&str; 3] = [UNIFY, BENCH_ONLY, "xtask-launcher"];

/// Modules of tests/it that a change of a package calls for, beside the rules, the contract and the
/// command line.
const MODULES: [(&str, &str); 22] = [
    ("hivekeep-artifact", "artifacts"),
    ("hivekeep-audit", "audit"),
    ("hivekeep-browser", "browser"),
    ("hivekeep-config", "daemon|home|http"),
    ("hivekeep-door-e2b", "e2b"),
    ("hivekeep-door-http-api", "approvals|audit|http_api|hub"),
    ("hivekeep-door-mcp", "attach|http|mcp|prompts|resources|rounds|sessions|tasks|toolsets|wire"),
    ("hivekeep-door-ports", "http"),
    (
        "hivekeep-door-server",
        "approvals|attach|audit|daemon|e2b|http|http_api|hub|mcp|pressure|sessions|wire",
    ),
    ("hivekeep-hub", "hub"),
    ("hivekeep-ingest", "knowledge"),
    ("hivekeep-kernel", "daemon|prompts|resources"),
    ("hivekeep-metrics", "metrics"),
    ("hivekeep-model", "models"),
    ("hivekeep-policy", "approvals"),
    ("hivekeep-registry", "mcp|sessions|tasks|toolsets"),
    ("hivekeep-runtime", "daemon|home"),
    ("hivekeep-source", "sources"),
    ("hivekeep-store", "daemon|backup"),
    ("hivekeep-vault", "vault"),
    ("hivekeep-files", "places"),
    (ROOT, "approvals|attach|audit|daemon|home|http|http_api|mcp|rounds|sessions|wire"),
];
const ALWAYS: &str = "house|contract|cli";

/// Scenes of each kind of thing that a sandbox does.
const SCENES: [&str; 10] = [
    "life::create_run_stop_start_destroy",
    "life::a_killed_machine_is_a_crash",
    "life::a_killed_guest_daemon_comes_back",
    "run::output_of_any_size",
    "jobs::a_job_is_followed_to_its_end",
    "files::transfers_both_ways",
    "git::a_repository_goes_round",
    "crash::every_point_of_create",
    "walls::a_sandbox_is_walled_in_and_says_how",
    "team_tasks::thirty_tasks_are_each_run_once",
];

/// Runs the check, with machines too if wanted.
pub(super) fn run(repo: &Repo, vms: bool) -> Result<()> {
    let (mut steps, mut tally) = (Steps::default(), TestTally::default());
    let house = Packages::read(repo)?;
    let files = changed_files(repo)?;
    let changed = house.of_files(&files);
    let dependents = house.dependents(&changed);
    println!("{} files changed, in {}", files.len(), list(&changed));
    println!("their tests run, and unit tests of {}", list(&dependents));
    before_the_build(repo, &mut steps);
    let mut packages: BTreeSet<&str> = changed.union(&dependents).copied().collect();
    packages.insert(ROOT);
    let packages: Vec<&str> = packages.into_iter().collect();
    steps.run("guest", || guest::build(repo).map(|path| passed(path.display())));
    steps.run("build", || {
        repo.cargo(&["nextest", "run", "--no-run"], &packages).run()?;
        Ok(passed(format!("{} packages", packages.len())))
    });
    steps.run("lints", || checks::lints(repo, repo.cargo(&["test"], &packages)));
    steps.run("image", || image::build(repo, "base").map(|()| passed("base")));
    steps.run("changelog", || changelog::check(repo));
    let ready = ["guest", "build", "image"].iter().all(|step| !steps.failed(step));
    steps.run("tests", || {
        ensure!(ready, "guest, build or image failed");
        let run = repo.cargo(&["nextest", "run", "--profile", "ci"], &packages);
        let run = run.arg("--filterset").arg(filterset(&changed, &dependents, vms));
        let run = run.args(["--test-threads", &nextest::threads()?]);
        tally = nextest::ran(repo, nextest::with_programs(repo, run, true)?)?;
        Ok(tally.outcome())
    });
    finish(&steps, &tally)
}

/// The tests, as nextest selects them.
fn filterset(changed: &BTreeSet<&str>, dependents: &BTreeSet<&str>, vms: bool) -> String {
    let whole = changed.iter().filter(|name| **name != ROOT);
    let mut sets: Vec<String> = whole.map(|name| format!("package(={name})")).collect();
    let units = dependents.iter().chain(changed.get(ROOT));
    sets.extend(units.map(|name| format!("(package(={name}) & kind(lib))")));
    let modules = MODULES.iter().filter(|(package, _)| changed.contains(package));
    let modules: Vec<&str> =
        [ALWAYS].into_iter().chain(modules.map(|(_, modules)| *modules)).collect();
    sets.push(format!("(binary(=it) & test(/^({})::/))", modules.join("|")));
    sets.push(format!("(binary(=vm) & test(/^sandbox::({})$/))", SCENES.join("|")));
    if vms {
        sets.push("(binary(=vm) & test(/^vm::bundle/))".to_owned());
    }
    // A power cut is a start of the daemon, many times; a Chrome of its own is for a change of the actor.
    let mut left_out = vec!["test(/power_cuts$/)".to_owned()];
    if !changed.contains("hivekeep-browser") {
        left_out.push(format!("({BROWSERS})"));
    }
    format!("({}) & not ({})", sets.join(" | "), left_out.join(" | "))
}

/// Files that differ from what `origin/main` and this branch have in common, committed or not.
fn changed_files(repo: &Repo) -> Result<BTreeSet<String>> {
    let shell = &repo.shell;
    let base = cmd!(shell, "git merge-base origin/main HEAD").quiet().ignore_stderr().read();
    let base = base.unwrap_or_else(|_| "HEAD".to_owned());
    let tracked = cmd!(shell, "git diff --name-only -z {base}").quiet().read()?;
    let new = cmd!(shell, "git ls-files --others --exclude-standard -z").quiet().read()?;
    let all = tracked.split('\0').chain(new.split('\0'));
    Ok(all.filter(|file| !file.is_empty()).map(str::to_owned).collect())
}

fn list(names: &BTreeSet<&str>) -> String {
    match names.is_empty() {
        true => "no package".to_owned(),
        false => names.iter().copied().collect::<Vec<_>>().join(", "),
    }
}

/// Packages of the workspace.
struct Packages {
    /// Folder below the root, with a slash behind it, of each.
    folders: BTreeMap<String, String>,
    /// Packages of the workspace that each uses, in tests too.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    fn read(repo: &Repo) -> Result<Self> {
        let shell = &repo.shell;
        let metadata = cmd!(shell, "cargo metadata --offline --no-deps --format-version 1");
        let metadata: Value = serde_json::from_str(&metadata.quiet().read()?)?;
        Self::parse(&metadata).context("cargo's metadata of the packages")
    }

    fn parse(metadata: &Value) -> Option<Self> {
        let root = format!("{}/", metadata["workspace_root"].as_str()?);
        let (mut folders, mut uses) = (BTreeMap::new(), BTreeMap::new());
        for package in metadata["packages"].as_array()? {
            let name = package["name"].as_str()?.to_owned();
            if NO_PACKAGES.contains(&&*name) {
                continue;
            }
            let manifest = package["manifest_path"].as_str()?.strip_prefix(&root)?;
            folders.insert(name.clone(), manifest.trim_end_matches("Cargo.toml").to_owned());
            let used = package["dependencies"].as_array()?.iter();
            let used = used.filter(|one| !one["path"].is_null());
            uses.insert(
                name,
                used.filter_map(|one| Some(one["name"].as_str()?.to_owned())).collect(),
            );
        }
        Some(Self { folders, uses })
    }

    /// Packages that the files are of. The root's folder holds all others: of it only code counts.
    fn of_files(&self, files: &BTreeSet<String>) -> BTreeSet<&str> {
        let owner = |file: &String| {
            let inside =
                self.folders.iter().filter(|(_, folder)| file.starts_with(folder.as_str()));
            let (name, folder) = inside.max_by_key(|(_, folder)| folder.len())?;
            let code = ["src/", "tests/it/", "tests/vm/", "examples/", "Cargo."];
            let counts = !folder.is_empty() || code.iter().any(|start| file.starts_with(start));
            counts.then_some(name.as_str())
        };
        files.iter().filter_map(owner).collect()
    }

    /// Packages that use one of these, directly or not, without them.
    fn dependents(&self, changed: &BTreeSet<&str>) -> BTreeSet<&str> {
        let mut all: BTreeSet<&str> = BTreeSet::new();
        loop {
            let more = self.uses.iter().filter(|(name, uses)| {
                let touched = |used: &String| changed.contains(&**used) || all.contains(&**used);
                !changed.contains(&***name) && !all.contains(&***name) && uses.iter().any(touched)
            });
            let more: Vec<&str> = more.map(|(name, _)| name.as_str()).collect();
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn packages() -> Packages {
        let package = |name: &str, folder: &str, uses: &[&str]| {
            let uses: Vec<Value> =
                uses.iter().map(|name| json!({ "name": name, "path": "/c" })).collect();
            json!({
                "name": name, "manifest_path": format!("/c/{folder}Cargo.toml"),
                "dependencies": uses,
            })
        };
        let packages = [
            package(ROOT, "", &["hivekeep-team"]),
            package("hivekeep-store", "actors/store/", &[]),
            package("hivekeep-team", "actors/team/", &["hivekeep-store"]),
            package("hivekeep-shell", "actors/shell/", &[]),
            package(UNIFY, "tests/unify/", &["hivekeep-shell"]),
        ];
        Packages::parse(&json!({ "workspace_root": "/c", "packages": packages })).unwrap()
    }

    #[test]
    fn a_change_reaches_what_depends_on_it_and_nothing_else() {
        let packages = packages();
        let files = |all: &[&str]| all.iter().map(|file| (*file).to_owned()).collect();
        let changed = packages.of_files(&files(&["actors/store/src/lib.rs", "docs/status.md"]));
        assert_eq!(list(&changed), "hivekeep-store");
        assert_eq!(list(&packages.dependents(&changed)), "hivekeep, hivekeep-team");
        let none = packages.of_files(&files(&["README.md", "docs/a.md"]));
        assert_eq!(list(&none), "no package");
        assert_eq!(list(&packages.of_files(&files(&["tests/it/vault.rs"]))), ROOT);
    }

    #[test]
    fn what_changed_is_tested_whole_and_what_depends_on_it_by_its_units() {
        let set = filterset(&["hivekeep-store"].into(), &[ROOT].into(), false);
        for part in [
            "(package(=hivekeep-store) | (package(=hivekeep) & kind(lib))",
            "contract|cli|daemon|backup)::/",
        ] {
            assert!(set.contains(part), "{part} is not in {set}");
        }
        assert!(!set.contains("bundle") && set.contains(&format!("| ({BROWSERS}))")));
        assert!(
            !filterset(&["hivekeep-browser"].into(), &BTreeSet::new(), false).contains(BROWSERS)
        );
        assert!(filterset(&BTreeSet::new(), &BTreeSet::new(), true).contains("/^vm::bundle/"));
    }
}
