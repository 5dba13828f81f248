//! A team: a coordinator hands out work, two workers do it, check each other, and report.
//!
//! ```text
//! lead ── task: count the primes of a range ──► anna, ben    (run in their machines)
//! anna, ben ── message: how many ──► lead
//! lead ── task: count the other's range, another way ──► anna, ben
//! lead: both counts of each range agree, and with what this program counts by itself
//! ```
//! Run it with `cargo run --example team`. It prints what happens, removes the team whatever
//! happened, and exits with another status than 0 if anything was not as it should be.
#![allow(clippy::print_stdout)]

#[path = "../shared/agent.rs"]
mod agent;

use agent::{Agent, text};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

const LEAD: &str = "lead";
/// Each worker and its half of the numbers.
const WORKERS: [(&str, std::ops::RangeInclusive<u32>); 2] =
    [("anna", 1..=1_000), ("ben", 1_001..=2_000)];
/// How long a member's next message or result is waited for at a time.
const WAIT_SECS: u64 = 60;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let agent = Agent::attach("team").await?;
    // Unique: others may run this example at the same daemon.
    let name = format!("primes-{}", std::process::id());
    let team = Team { agent: &agent, name: &name };
    // Not to be interrupted: what is half made could not be found.
    let played = match team.make().await {
        Ok(()) => tokio::select! {
            played = team.play() => played,
            _ = interrupted.recv() => Err(anyhow::anyhow!("interrupted")),
        },
        failed => failed,
    };
    let removed = team.remove().await;
    // Both may have failed; the first reason is the one to read first.
    played.and(removed)?;
    agent.leave().await?;
    println!("done: all counts agree, and nothing is left");
    Ok(())
}

struct Team<'a> {
    agent: &'a Agent,
    name: &'a str,
}

impl Team<'_> {
    async fn play(&self) -> Result<()> {
        for (worker, range) in &WORKERS {
            let (first, last) = (range.start(), range.end());
            // A prime is what has one factor: itself.
            let count = format!("seq {first} {last} | factor | grep -c '^[0-9]*: [0-9]*$'");
            self.assign(worker, "count", &format!("echo run >> /tmp/runs; {count}")).await?;
            println!("{LEAD} gave {worker} the numbers {first} to {last}");
        }
        for (worker, _) in &WORKERS {
            let result = self.result(worker, "count").await?;
            println!("{worker} counted {} primes in its machine", result.trim());
            let report = json!({ "agent": worker, "to": LEAD, "content": result.trim() });
            self.team("message", report).await?;
        }
        let counts = self.reports().await?;

        // The other one's range, by trial division.
        for ((worker, _), (other, range)) in WORKERS.iter().zip(WORKERS.iter().rev()) {
            let (first, last) = (range.start(), range.end());
            self.assign(worker, "check", &by_division(*first, *last)).await?;
            println!("{LEAD} asked {worker} to check {other}");
        }
        for ((worker, _), (other, range)) in WORKERS.iter().zip(WORKERS.iter().rev()) {
            let checked: usize = self.result(worker, "check").await?.trim().parse()?;
            let counted = counts[other];
            ensure!(checked == counted, "{other} counted {counted}, {worker} {checked}");
            let truth = range.clone().filter(|number| is_prime(*number)).count();
            ensure!(counted == truth, "{other} counted {counted}; there are {truth}");
            println!("{worker} found the same {checked} as {other}");
        }
        self.once().await
    }

    /// Three machines, or none.
    async fn make(&self) -> Result<()> {
        let role = |name: &str, role: &str| json!({ "name": name, "role": role });
        let workers = WORKERS.iter().map(|(name, _)| role(name, "worker"));
        let roles: Vec<_> = [role(LEAD, "coordinator")].into_iter().chain(workers).collect();
        let made = self.team("create", json!({ "roles": roles })).await?;
        ensure!(made["state"] == "ready" && made["member_count"] == 3, "made: {made}");
        println!("a team of {LEAD}, anna and ben, a machine each");
        Ok(())
    }

    async fn team(&self, action: &str, more: Value) -> Result<Value> {
        let mut call = json!({ "action": action, "name": self.name });
        let more = more.as_object().context("more is an object")?.clone();
        call.as_object_mut().context("a call is an object")?.extend(more);
        self.agent.call("team", call).await
    }

    async fn assign(&self, worker: &str, task_id: &str, command: &str) -> Result<Value> {
        let task = json!({ "task_id": task_id, "command": command, "timeout_secs": 120 });
        let message = json!({
            "agent": LEAD, "to": worker, "message_type": "task_assignment",
            "content": task.to_string(),
        });
        self.team("message", message).await
    }

    /// What a task of a worker wrote. It has to have succeeded.
    async fn result(&self, worker: &str, task_id: &str) -> Result<String> {
        let wanted = json!({ "agent": worker, "wait_secs": WAIT_SECS });
        loop {
            let got = self.team("receive", wanted.clone()).await?;
            let results = got["daemon_results"].as_array().context("no results")?;
            if let Some(result) = results.iter().find(|one| one["task_id"] == task_id) {
                ensure!(result["success"] == true, "{worker}'s task `{task_id}`: {result}");
                return Ok(text(&result["stdout"]).to_owned());
            }
            let pending = &got["daemon_pending_tasks"];
            ensure!(*pending != 0, "{worker}'s task `{task_id}` is gone: {got}");
        }
    }

    /// What the workers wrote to the coordinator.
    async fn reports(&self) -> Result<std::collections::HashMap<&'static str, usize>> {
        let mut counts = std::collections::HashMap::new();
        while counts.len() < WORKERS.len() {
            let wanted = json!({ "agent": LEAD, "wait_secs": WAIT_SECS });
            let got = self.team("receive", wanted).await?;
            let messages = got["messages"].as_array().context("no messages")?;
            ensure!(!messages.is_empty(), "a report did not arrive: {counts:?}");
            for message in messages {
                let sender = WORKERS.iter().find(|(name, _)| message["from"] == *name);
                let (sender, _) = sender.with_context(|| format!("from a stranger: {message}"))?;
                let count = text(&message["content"]).parse()?;
                println!("{LEAD} has {sender}'s report: {count}");
                counts.insert(*sender, count);
            }
        }
        Ok(counts)
    }

    /// The same task again is answered with what became of it, and runs nothing.
    async fn once(&self) -> Result<()> {
        let (worker, range) = &WORKERS[0];
        let (first, last) = (range.start(), range.end());
        let count = format!("seq {first} {last} | factor | grep -c '^[0-9]*: [0-9]*$'");
        let again =
            self.assign(worker, "count", &format!("echo run >> /tmp/runs; {count}")).await?;
        ensure!(again["tasks"][0]["repeat"] == true, "taken for a new one: {again}");
        let status = self.team("status", json!({})).await?;
        let members = status["members"].as_array().context("no members")?;
        let member = members.iter().find(|one| one["name"] == *worker).context("no such member")?;
        let runs = self.agent.exec(text(&member["workspace_name"]), "wc -l < /tmp/runs").await?;
        ensure!(runs.trim() == "1", "the task ran {} times", runs.trim());
        println!("the same task once more: answered, and not run again");
        Ok(())
    }

    /// Removes what there is of the team.
    async fn remove(&self) -> Result<()> {
        let list = self.agent.call("team", json!({ "action": "list" })).await?;
        let teams = list["teams"].as_array().context("no list")?;
        if !teams.iter().any(|team| team["name"] == self.name) {
            return Ok(());
        }
        let ended = self.team("destroy", json!({})).await?;
        ensure!(ended["success"] == true, "the team is not removed: {ended}");
        let list = self.agent.call("workspace_list", json!({})).await?;
        let left = list["workspaces"].as_array().context("no list")?.iter();
        let ours = |one: &&Value| text(&one["name"]).starts_with(self.name);
        ensure!(left.filter(ours).count() == 0, "machines are left: {list}");
        println!("the team is removed, with its machines");
        Ok(())
    }
}

/// Counts the primes of a range in nothing but the shell.
fn by_division(first: u32, last: u32) -> String {
    format!(
        "n={first} count=0
        while [ $n -le {last} ]; do
            d=2 prime=1
            [ $n -lt 2 ] && prime=0
            while [ $((d * d)) -le $n ]; do
                [ $((n % d)) -eq 0 ] && prime=0 && break
                d=$((d + 1))
            done
            count=$((count + prime)) n=$((n + 1))
        done
        echo $count"
    )
}

fn is_prime(number: u32) -> bool {
    let divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number >= 2 && divisors.into_iter().all(|divisor| !number.is_multiple_of(divisor))
}
