//! Prepare once, fork many, do another thing in each at once, take one of them back.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

use super::{DemoIsolation, teller::Teller};

const GOLDEN: &str = "golden";
const PREFIX: &str = "try";
const FORKS: usize = 8;
/// File that the preparation leaves in memory alone.
const NUMBERS: &str = "/dev/shm/numbers";
const LAST_NUMBER: u64 = 20_000;

/// Leaves nothing behind. A sandbox is asked as well, and says why it cannot.
pub(super) fn play(client: &Client, teller: &Teller, isolation: DemoIsolation) -> Result<()> {
    if isolation == DemoIsolation::Sandbox {
        return teller.step("workspace_prepare", || {
            let refused = client.call("workspace_prepare", recipe(isolation));
            let refused =
                refused.err().context("a sandbox was prepared, which has no snapshots")?;
            Ok(format!("refused, as it must be: {refused:#}"))
        });
    }
    prepare(client, teller, isolation)?;
    let names = fork(client, teller)?;
    each_its_own(client, teller, &names)?;
    rewind(client, teller, &names[0])?;
    teller.step("destroy them all", || {
        for name in names.iter().map(String::as_str).chain([GOLDEN]) {
            client.call("workspace_destroy", json!({ "workspace_id": name }))?;
        }
        Ok(format!("{} workspaces", names.len() + 1))
    })
}

fn recipe(isolation: DemoIsolation) -> Value {
    let count = format!("seq 1 {LAST_NUMBER} > {NUMBERS}");
    json!({
        "name": GOLDEN, "isolation": isolation.word(), "memory_mb": 256,
        "setup_commands": ["git init -q . && touch ready", count],
    })
}

fn prepare(client: &Client, teller: &Teller, isolation: DemoIsolation) -> Result<()> {
    teller.step("workspace_prepare", || {
        let made = client.call("workspace_prepare", recipe(isolation))?;
        ensure!(made["has_memory"] == true && made["reused_existing"] == false, "{made}");
        let steps = made["steps"].as_array().context("its steps")?.iter();
        let told = |step: &Value| {
            format!("{} {} ms", step["kind"].as_str().unwrap_or_default(), step["elapsed_ms"])
        };
        Ok(steps.map(told).collect::<Vec<_>>().join(", "))
    })?;
    teller.step("the same again", || {
        let again = client.call("workspace_prepare", recipe(isolation))?;
        ensure!(again["reused_existing"] == true, "{again}");
        Ok("answered from the snapshot that is there".to_owned())
    })
}

/// Their names.
fn fork(client: &Client, teller: &Teller) -> Result<Vec<String>> {
    let mut names = Vec::new();
    teller.step("workspace_fork", || {
        let args = json!({
            "workspace_id": GOLDEN, "snapshot_name": "golden", "count": FORKS, "name_prefix": PREFIX,
        });
        let begun = Instant::now();
        let forked = client.call("workspace_fork", args)?;
        let took = begun.elapsed().as_millis();
        ensure!(forked["success_count"] == FORKS, "{}", forked["failures"]);
        let workers = forked["workers"].as_array().context("the forks")?;
        names.extend(workers.iter().filter_map(|worker| worker["name"].as_str().map(str::to_owned)));
        Ok(format!("{FORKS} at once with the memory in {took} ms: {} to {}", names[0], names[FORKS - 1]))
    })?;
    Ok(names)
}

/// The nth sums the multiples of n + 1 that its memory holds, and writes that down.
fn each_its_own(client: &Client, teller: &Teller, names: &[String]) -> Result<()> {
    teller.step("exec_parallel", || {
        let divisors = (1..).take(names.len());
        let command = |divisor: u64| {
            format!(
                "awk '$1 % {divisor} == 0 {{ sum += $1 }} END {{ print sum }}' {NUMBERS} | tee result"
            )
        };
        let commands: Vec<_> = divisors.clone().map(command).collect();
        let args = json!({ "workspace_ids": names, "commands": commands });
        let answer = client.call("exec_parallel", args)?;
        let rows = answer["results"].as_array().context("results")?;
        let mut told = Vec::new();
        for (row, divisor) in rows.iter().zip(divisors) {
            let expected: u64 = (1..=LAST_NUMBER).filter(|n| n % divisor == 0).sum();
            let found = row["stdout"].as_str().unwrap_or_default().trim();
            ensure!(found == expected.to_string(), "{row}, expected {expected}");
            told.push(found.to_owned());
        }
        ensure!(told.len() == names.len(), "not all answered: {answer}");
        Ok(format!("{} commands at once, each another sum: {}", told.len(), told.join(" ")))
    })
}

/// Breaks one of them, and goes back to before.
fn rewind(client: &Client, teller: &Teller, name: &str) -> Result<()> {
    let exec = |client: &Client, command: &str| {
        client.call("exec", json!({ "workspace_id": name, "command": command }))
    };
    let snapshot = |client: &Client, action: &str, memory: Option<bool>| {
        let args = json!({
            "workspace_id": name, "action": action, "name": "before", "include_memory": memory,
        });
        client.call("snapshot", args)
    };
    let look = format!("cat result; wc -l < {NUMBERS}");
    teller.step("break one of them", || {
        let made = snapshot(client, "create", Some(true))?;
        let broken = exec(client, &format!("rm result {NUMBERS} ready; {look}"))?;
        ensure!(broken["exit_code"] != 0, "it is not broken: {broken}");
        Ok(format!("{name}: its files are gone; it was frozen before, in {} ms", made["pause_ms"]))
    })?;
    teller.step("rewind it", || {
        let back = snapshot(client, "restore", None)?;
        let found = exec(client, &look)?;
        let expected = format!("{}\n{LAST_NUMBER}\n", (1..=LAST_NUMBER).sum::<u64>());
        ensure!(found["stdout"] == expected, "{found}, expected {expected:?}");
        Ok(format!("disk and memory are back after {} ms", back["boot_time_ms"]))
    })
}
