//! Writes the manifest of `tests/unify`, the package that is selected beside others so that each selection
//! of packages has the features of all (docs/decisions/0101-compiled-once.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xshell::cmd;

use crate::repo::{BENCH_ONLY, Repo, UNIFY};

/// The root's package. Its families are the selection's to choose, its crash points are on in all.
const ROOT: &str = "hivekeep";
/// Packages that are not part of what is unified.
const LEFT_OUT: [&str; 3] = [UNIFY, "xtask-launcher", BENCH_ONLY];
/// Line behind which the generated ones stand.
const SECTION: &str = "\n[dependencies]\n";

/// Writes the dependencies of `tests/unify`.
pub(crate) fn write(repo: &Repo) -> Result<()> {
    Ok(fs::write(manifest(repo), fresh(repo)?)?)
}

/// Fails when a package has a dependency, or a feature of one, that `tests/unify` has not.
pub(crate) fn check(repo: &Repo) -> Result<()> {
    let kept = fs::read_to_string(manifest(repo))?;
    ensure!(kept == fresh(repo)?, "tests/unify/Cargo.toml is stale; run `cargo xtask docs`");
    Ok(())
}

fn manifest(repo: &Repo) -> PathBuf {
    repo.root.join("tests/unify/Cargo.toml")
}

fn fresh(repo: &Repo) -> Result<String> {
    let shell = &repo.shell;
    let metadata = cmd!(shell, "cargo metadata --offline --no-deps --format-version 1");
    let metadata: Value = serde_json::from_str(&metadata.quiet().read()?)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    let kept = fs::read_to_string(manifest(repo))?;
    let (head, _) = kept.split_once(SECTION).context("tests/unify has no dependencies")?;
    let root = metadata["workspace_root"].as_str().context("cargo names no root")?;
    Ok(format!("{head}{SECTION}{}", dependencies(packages, root)))
}

/// A line for each library of the workspace, and for each crate of others that tests, programs or
/// optional features take: what libraries always take comes with them.
fn dependencies(packages: &[Value], root: &str) -> String {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let packages: Vec<&Value> =
        packages.iter().filter(|package| !LEFT_OUT.contains(&&*name(package))).collect();
    let libraries: BTreeMap<String, &Value> = packages
        .iter()
        .filter(|package| has_library(package))
        .map(|package| (name(package), *package))
        .collect();
    let mut features: BTreeMap<String, BTreeSet<&str>> =
        libraries.keys().map(|library| (library.clone(), BTreeSet::new())).collect();
    features.entry(ROOT.to_owned()).or_default().insert("failpoints");
    for package in &packages {
        let program = !libraries.contains_key(&name(package));
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = name(dependency);
            let own = libraries.contains_key(&used);
            // What is optional comes with its package when it is asked for there.
            let alone = program || dependency["kind"] == "dev" || dependency["optional"] == true;
            if own || (dependency["path"].is_null() && alone) {
                let asked = dependency["features"].as_array().into_iter().flatten();
                features.entry(used).or_default().extend(asked.filter_map(Value::as_str));
            }
        }
    }
    let line = |(used, features): (&String, &BTreeSet<&str>)| {
        let mut source = match libraries.get(used) {
            Some(package) => format!("path = \"../..{}\"", folder(package, root)),
            None => "workspace = true".to_owned(),
        };
        // What is left out of the demo is the selection's to choose.
        if libraries.get(used).is_some_and(|package| package["features"].get("full").is_some()) {
            source.push_str(", default-features = false");
        }
        if !features.is_empty() {
            let all: Vec<String> = features.iter().map(|one| format!("\"{one}\"")).collect();
            source.push_str(&format!(", features = [{}]", all.join(", ")));
        }
        format!("{used} = {{ {source} }}\n")
    };
    features.iter().map(line).collect()
}

fn has_library(package: &Value) -> bool {
    let kinds = package["targets"].as_array().into_iter().flatten();
    kinds.flat_map(|target| target["kind"].as_array()).flatten().any(|kind| kind == "lib")
}

/// Folder of a package below the root, with a slash before it; nothing for the root's.
fn folder(package: &Value, root: &str) -> String {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let folder = manifest.trim_end_matches("/Cargo.toml");
    folder.strip_prefix(root).unwrap_or(folder).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn features_of_tests_and_of_programs_are_everybodys() {
        let on = |name: &str, kind: Value, features: &[&str]| json!({ "name": name, "kind": kind, "features": features });
        let package = |name: &str, kind: &str, dependencies: &[Value]| {
            json!({
                "name": name, "manifest_path": format!("/c/{name}/Cargo.toml"),
                "targets": [{ "kind": [kind] }], "dependencies": dependencies,
            })
        };
        let mut own = on("base", json!("dev"), &["test-util"]);
        own["path"] = json!("/c/base");
        let mut program = package(ROOT, "lib", &[]);
        program["features"] = json!({ "full": [] });
        let packages = [
            program,
            package("base", "lib", &[on("tokio", Value::Null, &["full"])]),
            package("team", "lib", &[on("tokio", json!("dev"), &["test-util"]), own]),
            package("xtask", "bin", &[on("plotters", Value::Null, &["svg"])]),
            package(UNIFY, "bin", &[on("gone", Value::Null, &[])]),
        ];
        assert_eq!(
            dependencies(&packages, "/c"),
            "base = { path = \"../../base\", features = [\"test-util\"] }\n\
             hivekeep = { path = \"../../hivekeep\", default-features = false, features = [\"failpoints\"] }\n\
             plotters = { workspace = true, features = [\"svg\"] }\n\
             team = { path = \"../../team\" }\n\
             tokio = { workspace = true, features = [\"test-util\"] }\n"
        );
    }
}
