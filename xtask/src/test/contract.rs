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
    let (shell, hivekeep) = (&repo.shell, repo.hivekeep());
    let listing = cmd!(shell, "{hivekeep} tools --json").output()?.stdout;
    let listed: Vec<Value> = serde_json::from_slice(&listing)?;
    ensure!(
        same(&frozen, &reference, &dialect, &listed)?,
        "tests/contract/tools.json is not the reference"
    );
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

/// True when the frozen contract is what the reference says of the dialect, and of each tool of the
/// others that is listed; but for the dialects' names.
fn same(frozen: &str, reference: &str, dialect: &str, listed: &[Value]) -> Result<bool> {
    let reference: Vec<Value> = serde_json::from_str(reference)?;
    let frozen: Vec<Value> = serde_json::from_str(frozen)?;
    let is_listed = |row: &Value| listed.iter().any(|tool| tool["name"] == row["name"]);
    let ours = |row: &&Value| row["dialect"] == dialect || is_listed(row);
    let wanted: Vec<_> = reference.iter().filter(ours).map(without_dialect).collect();
    Ok(frozen == wanted)
}

fn without_dialect(row: &Value) -> Value {
    let mut row = row.clone();
    if let Some(fields) = row.as_object_mut() {
        fields.remove("dialect");
    }
    row
}

/// The dialect of this tool: the reference knows several systems', and ours are all of this one's.
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
        {"name": "exec", "dialect": "two", "family": "execution", "params": [1]},
        {"name": "sum", "dialect": "two", "family": "maths", "params": []},
        {"name": "product", "dialect": "two", "family": "maths", "params": []},
        {"name": "fork", "dialect": "one", "family": "others", "params": []}]"#;

    #[test]
    fn the_frozen_contract_has_its_dialect_and_what_is_listed_of_others() {
        let row =
            |name, family| format!(r#"{{"name": "{name}", "family": "{family}", "params": []}}"#);
        let (exec, fork, sum) =
            (row("exec", "execution"), row("fork", "others"), row("sum", "maths"));
        let other = r#"{"name": "exec", "family": "execution", "params": [1]}"#.to_owned();
        let is = |rows: &[&String], listed: &[&str]| {
            let rows: Vec<_> = rows.iter().map(|row| row.as_str()).collect();
            let listed: Vec<_> =
                listed.iter().map(|name| serde_json::json!({ "name": name })).collect();
            same(&format!("[{}]", rows.join(",")), REFERENCE, "one", &listed).unwrap()
        };
        assert!(is(&[&exec, &fork], &[]) && is(&[&exec, &sum, &fork], &["sum", "own"]));
        assert!(is(&[&exec, &other, &fork], &["exec"]), "what two dialects say of one name");
        assert!(!is(&[&exec, &fork], &["sum"]) && !is(&[&exec, &sum, &fork], &[]));
        assert!(!is(&[], &[]));
        assert_eq!(dialect_of(REFERENCE, "fork").unwrap(), "one");
        assert!(dialect_of(REFERENCE, "gone").is_err());
    }
}
