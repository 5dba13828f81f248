//! A swarm: this repository goes into a machine, four forks of it each make, test and commit a
//! change on a branch of their own, and what they made comes together in one history.
//!
//! ```text
//! this checkout ── git bundle ──► repo ── snapshot, with memory ──► 4 forks, a task each
//!                                   ▲                                 │ change ─ test ─ commit
//!                                   └── merge of four branches ◄──────┘
//! ```
//! Run it with `cargo run --example swarm` inside of a clone of the repository. It prints what
//! happens, removes what it made whatever happened, and exits with another status than 0 if
//! anything was not as it should be.
#![allow(clippy::print_stdout)]

#[path = "../shared/agent.rs"]
mod agent;
mod changes;

use std::{collections::BTreeSet, process::Command};

use agent::{Agent, text};
use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use changes::CHANGES;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// A repository is larger than the output of a command.
const BUNDLE: &str = "/tmp/repo.bundle";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let here = Here::look()?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let agent = Agent::attach("swarm").await?;
    // Unique: others may run this example at the same daemon.
    let repo = format!("repo-{}", std::process::id());
    let swarm = Swarm { agent: &agent, repo: &repo, here: &here };
    // Not to be interrupted: what is half made could not be found.
    let played = match swarm.make().await {
        Ok(()) => tokio::select! {
            played = swarm.play() => played,
            _ = interrupted.recv() => Err(anyhow::anyhow!("interrupted")),
        },
        failed => failed,
    };
    let removed = swarm.remove().await;
    // Both may have failed; the first reason is the one to read first.
    played.and(removed)?;
    agent.leave().await?;
    println!("done: every change is in one history, and nothing is left");
    Ok(())
}

/// The checkout that this is run in.
struct Here {
    commit: String,
    bundle: Vec<u8>,
}

impl Here {
    fn look() -> Result<Self> {
        ensure!(
            git(&["rev-parse", "--is-shallow-repository"])? == b"false\n",
            "this clone has only a part of the history: git fetch --unshallow"
        );
        let commit = String::from_utf8(git(&["rev-parse", "HEAD"])?)?.trim().to_owned();
        Ok(Self { commit, bundle: git(&["bundle", "create", "--quiet", "-", "HEAD"])? })
    }
}

/// What git says on this host.
fn git(arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("git").args(arguments).output().context("git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), said.trim());
    Ok(output.stdout)
}

struct Swarm<'a> {
    agent: &'a Agent,
    /// Name of the workspace with the repository.
    repo: &'a str,
    here: &'a Here,
}

impl Swarm<'_> {
    async fn play(&self) -> Result<()> {
        self.bring_in().await?;
        let ran = self.run().await?;
        judge(&ran)?;
        self.look_at_history().await?;
        for change in &CHANGES {
            self.exec(change.test)
                .await
                .with_context(|| format!("{} is not there", change.name))?;
        }
        println!("each change passes its test in the merged tree");
        Ok(())
    }

    /// The machine that gets the repository.
    async fn make(&self) -> Result<()> {
        self.agent.call("workspace_create", json!({ "name": self.repo })).await.map(drop)
    }

    /// This repository in a machine, frozen with its memory.
    async fn bring_in(&self) -> Result<()> {
        let write = json!({
            "workspace_id": self.repo, "path": format!("{BUNDLE}.b64"),
            "content": BASE64_STANDARD.encode(&self.here.bundle),
        });
        self.agent.call("file_write", write).await?;
        let unpack = format!(
            "base64 -d {BUNDLE}.b64 > {BUNDLE} && git clone -q {BUNDLE} /workspace &&
             rm {BUNDLE} {BUNDLE}.b64 && cd /workspace && git switch -q -C main"
        );
        self.agent.exec(self.repo, &unpack).await?;
        let commit = self.exec("git rev-parse HEAD").await?;
        ensure!(commit.trim() == self.here.commit, "HEAD is another commit there: {commit}");
        println!("the repository is in a machine, at the commit that is checked out here");
        let freeze = json!({
            "action": "create", "workspace_id": self.repo, "name": "cloned",
            "include_memory": true,
        });
        self.agent.call("snapshot", freeze).await?;
        println!("the machine is frozen with its memory");
        Ok(())
    }

    async fn exec(&self, command: &str) -> Result<String> {
        self.agent.exec(self.repo, &format!("cd /workspace && {{ {command}\n}}")).await
    }

    async fn run(&self) -> Result<Value> {
        let tasks: Vec<_> = CHANGES.iter().map(|change| change.task()).collect();
        println!("{} forks make a change each, test and commit it", tasks.len());
        let run = json!({
            "golden_workspace": self.repo, "snapshot_name": "cloned", "tasks": tasks,
            "max_parallel": 4, "timeout_secs": 120, "merge_strategy": "branch-per-source",
            "env_vars": {
                "GIT_AUTHOR_NAME": "A worker", "GIT_AUTHOR_EMAIL": "worker@example.org",
                "GIT_COMMITTER_NAME": "A worker", "GIT_COMMITTER_EMAIL": "worker@example.org",
            },
        });
        self.agent.call("swarm_run", run).await
    }

    /// All branches are in the target's history, nothing else is, and git finds it sound.
    async fn look_at_history(&self) -> Result<()> {
        let base = &self.here.commit;
        self.exec("git fsck --strict --no-dangling && git diff --quiet HEAD").await?;
        let subjects = self.exec(&format!("git log --no-merges --format=%s {base}..HEAD")).await?;
        let subjects: BTreeSet<_> = subjects.lines().collect();
        ensure!(subjects == CHANGES.iter().map(|one| one.subject).collect(), "{subjects:?}");
        let files = self.exec(&format!("git diff --name-only {base} HEAD")).await?;
        let files: BTreeSet<_> = files.lines().collect();
        ensure!(files == CHANGES.iter().map(|one| one.file).collect(), "{files:?}");
        self.exec(&format!("git diff --check {base} HEAD")).await?;
        println!("the history has the four commits, and git finds it sound");
        Ok(())
    }

    /// Removes the machine. A swarm removes its forks; one that was interrupted is told to.
    async fn remove(&self) -> Result<()> {
        let swarms = self.agent.call("swarm_status", json!({})).await?;
        let swarms = swarms["swarms"].as_array().context("no list")?;
        let runs = |one: &&Value| one["owned"] == true && one["ended_at"].is_null();
        for swarm in swarms.iter().filter(runs) {
            let id = &swarm["swarm_id"];
            self.agent.call("swarm_cancel", json!({ "swarm_id": id })).await?;
            let wait = json!({ "swarm_id": id, "wait_secs": 300 });
            self.agent.call("swarm_status", wait).await?;
            println!("the swarm is cancelled");
        }
        let there = || async {
            let list = self.agent.call("workspace_list", json!({})).await?;
            let all = list["workspaces"].as_array().context("no list")?.clone();
            Ok::<_, anyhow::Error>(all)
        };
        if there().await?.iter().any(|one| one["name"] == self.repo) {
            let destroy = json!({ "workspace_id": self.repo });
            self.agent.call("workspace_destroy", destroy).await?;
            println!("the machine is removed");
        }
        let mut left = there().await?;
        left.retain(|one| one["owned"] == true && text(&one["name"]).starts_with("swarm-"));
        ensure!(left.is_empty(), "forks are left: {left:?}");
        Ok(())
    }
}

/// Every task and the merge have to have succeeded, and every fork has to be gone.
fn judge(ran: &Value) -> Result<()> {
    for task in ran["tasks"].as_array().context("no tasks")? {
        ensure!(task["success"] == true, "{}: {task}", text(&task["name"]));
        println!("{}: {}", text(&task["name"]), text(&task["stdout"]).trim());
    }
    let summary = &ran["summary"];
    ensure!(summary["succeeded"] == CHANGES.len(), "not all: {summary}");
    ensure!(summary["workers_destroyed"] == CHANGES.len(), "forks are left: {ran}");
    ensure!(ran["merge"]["success"] == true, "the merge: {}", ran["merge"]);
    println!("all branches are merged, and the forks are gone");
    Ok(())
}
