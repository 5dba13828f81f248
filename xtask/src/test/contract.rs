//! The tools' contract, checked by the reference checker where one is beside the
//! checkout. The same contract, frozen in `tests/contract/`, is checked by a
//! test everywhere.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xshell::cmd;

use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

pub(super) fn check(repo: &Repo, built: bool) -> Result<StepOutcome> {
    let shared = repo.root.join("../shared");
    let checker = shared.join("bin/contract-check");
    if !checker.exists() {
        return Ok(StepOutcome::Skipped(
            "no reference beside this checkout; the frozen contract is among the tests".to_owned(),
        ));
    }
    if !built {
        return Ok(StepOutcome::Skipped("build failed".to_owned()));
    }
    let reference = fs::read_to_string(shared.join("reference/tools.json"))?;
    let dialect = dialect_of(&reference, "workspace_create")?;
    let contract = repo.root.join("tests/contract/tools.json");
    let frozen = fs::read_to_string(&contract)?;
    ensure!(same(&frozen, &reference, &dialect)?, "tests/contract/tools.json is not the reference");
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let listing = cmd!(shell, "{hivekeep} tools --json").output()?.stdout;
    // The frozen one is the reference's part that is ours.
    let verdict =
        cmd!(shell, "{checker} --contract {contract}").stdin(listing).ignore_status().output()?;
    let text = String::from_utf8_lossy(&verdict.stdout);
    println!("{text}");
    if !verdict.status.success() {
        bail!("{}", text.lines().last().unwrap_or("the checker said nothing"));
    }
    Ok(passed(text.lines().last().unwrap_or_default()))
}

/// True when the frozen contract is what the reference says of the dialect, but for its name.
fn same(frozen: &str, reference: &str, dialect: &str) -> Result<bool> {
    let mut wanted: Vec<Value> = serde_json::from_str(reference)?;
    wanted.retain(|row| row["dialect"] == dialect);
    for row in wanted.iter_mut().filter_map(Value::as_object_mut) {
        row.remove("dialect");
    }
    let frozen: Vec<Value> = serde_json::from_str(frozen)?;
    Ok(frozen == wanted)
}

/// The reference knows several systems' tools; ours are those of the one that has this tool.
fn dialect_of(reference: &str, tool: &str) -> Result<String> {
    let tools: Vec<Value> = serde_json::from_str(reference)?;
    let row = tools.iter().find(|row| row["name"] == tool);
    let dialect = row.and_then(|row| row["dialect"].as_str());
    dialect.map(str::to_owned).with_context(|| format!("the reference has no `{tool}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = r#"[
        {"name": "exec", "dialect": "one", "family": "execution", "params": []},
        {"name": "exec", "dialect": "two", "family": "execution", "params": []},
        {"name": "fork", "dialect": "one", "family": "others", "params": []}]"#;

    #[test]
    fn the_frozen_contract_is_compared_with_its_dialect_only() {
        let frozen = r#"[{"name": "exec", "family": "execution", "params": []},
            {"name": "fork", "family": "others", "params": []}]"#;
        assert!(same(frozen, REFERENCE, "one").unwrap());
        assert!(!same("[]", REFERENCE, "one").unwrap());
        assert_eq!(dialect_of(REFERENCE, "fork").unwrap(), "one");
        assert!(dialect_of(REFERENCE, "gone").is_err());
    }
}
