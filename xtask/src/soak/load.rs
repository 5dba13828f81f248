//! The work of a soak test: what agents do, all of it at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hivekeep_mcp_client::blocking::Client;
use serde_json::{Value, json};

use crate::bench::house::BenchDaemon;

/// What the daemon's configuration has beside the bench's own. The cache of the journal's database
/// is one that the first tenth fills, also where that is half a minute; and the journal is so small
/// that it is compacted again and again.
pub(super) const CONFIG: &str = "isolation = \"sandbox\"\n\
    [registry.sessions]\ngrace_secs = 5\n\
    [store]\ncache_mb = 8\ncompact_at_mb = 16\nevents_kept = 2000\n";

/// Workers with sandboxes, and sandboxes of each in a soak by time.
const HOLDERS: usize = 4;
const HELD: usize = 10;
/// Sandboxes of each in a soak by count: after as many rounds all have been used.
pub(super) const HELD_BY_COUNT: usize = 3;
/// Command that takes a guest once through its file system's own journal: 16 MiB that are written
/// for the first time, a few KiB with each sync, and over again from then on.
const THROUGH_THE_JOURNAL: &str = "for n in $(seq 1200); do echo $n > /root/round; sync; done";
/// Time that a machine is down, for its layers to be merged.
const STANDS: Duration = Duration::from_secs(3);
/// Some stops after each other have merged enough within this.
const ALL_MERGED_IN: Duration = Duration::from_mins(5);
/// Rounds with machines from one stop of each to the next.
const STOPPED_EVERY: u64 = 40;
/// Machines that live as long as the work.
const MACHINES: [&str; 2] = ["vm-0", "vm-1"];
/// Rounds of a worker between the two counts of a soak by count. All take about as long.
const SANDBOX_ROUNDS: u64 = 25;
const MACHINE_ROUNDS: u64 = 24;
const OTHER_ROUNDS: u64 = 60;
/// Between two rounds of a worker in a soak by time, which leaves the host some air; between two looks.
pub(super) const PAUSE: Duration = Duration::from_millis(150);

/// Counts of each kind of work.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<&'static str, u64>>);

impl Tally {
    fn add(&self, what: &'static str) {
        *self.0.lock().expect("nobody panics with it").entry(what).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.0.lock().expect("nobody panics with it");
        let words: Vec<_> = all.iter().map(|(what, times)| format!("{times} {what}")).collect();
        f.write_str(&words.join(", "))
    }
}

/// One round of a worker's work.
type Round<'w> = Box<dyn FnMut(u64) -> Result<&'static str> + Send + 'w>;
/// What makes a worker, in its thread.
pub(super) type Maker<'w> = Box<dyn FnOnce() -> Result<Worker<'w>> + Send + 'w>;

/// What a soak compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// Levels, over a time.
    Time,
    /// Counts, before and after some rounds.
    Count,
}

/// Work of one kind.
pub(super) struct Worker<'w> {
    /// Rounds between the two counts.
    pub(super) rounds: u64,
    worked: u64,
    round: Round<'w>,
    /// Session with machines that stand still at rest.
    machines: Option<Arc<Client>>,
}

impl<'w> Worker<'w> {
    fn new(rounds: u64, round: impl FnMut(u64) -> Result<&'static str> + Send + 'w) -> Self {
        Self { rounds, worked: 0, round: Box::new(round), machines: None }
    }

    pub(super) fn work(&mut self, rounds: u64, tally: &Tally) -> Result<()> {
        for _ in 0..rounds {
            tally.add((self.round)(self.worked)?);
            self.worked += 1;
        }
        Ok(())
    }

    /// Stops its machines, for their layers to be merged.
    pub(super) fn stop_machines(&self) -> Result<()> {
        self.of_machines(|client, name| {
            client.call("workspace_stop", with(name, json!({})))?;
            Ok(())
        })
    }

    pub(super) fn start_machines(&self) -> Result<()> {
        self.of_machines(started)
    }

    fn of_machines(&self, act: impl Fn(&Client, &str) -> Result<()>) -> Result<()> {
        let Some(client) = &self.machines else { return Ok(()) };
        MACHINES.iter().try_for_each(|name| act(client, name))
    }
}

/// Makers of all workers.
pub(super) fn makers(house: &BenchDaemon, extent: Extent, vms: bool) -> Vec<Maker<'_>> {
    let mut makers: Vec<Maker<'_>> = Vec::new();
    for holder in 0..HOLDERS {
        makers.push(Box::new(move || sandboxes(house, extent, holder)));
    }
    makers.push(Box::new(|| teams(house)));
    makers.push(Box::new(|| notes(house)));
    makers.push(Box::new(|| sessions(house)));
    if vms {
        makers.push(Box::new(move || machines(house, extent)));
    }
    makers
}

/// Some sandboxes, of which the oldest is always being replaced by a new one that works.
fn sandboxes(house: &BenchDaemon, extent: Extent, holder: usize) -> Result<Worker<'_>> {
    let client = house.client()?;
    let held = if extent == Extent::Count { HELD_BY_COUNT } else { HELD };
    for n in 0..held {
        client.call("workspace_create", json!({ "name": format!("s{holder}-{n}") }))?;
    }
    Ok(Worker::new(SANDBOX_ROUNDS, move |nth| {
        let name = format!("s{holder}-{}", nth as usize % held);
        let at = |more: Value| with(&name, more);
        client.call("workspace_destroy", at(json!({})))?;
        client.call("workspace_create", json!({ "name": name }))?;
        client.call("set_env", at(json!({ "vars": { "ROUND": nth.to_string() } })))?;
        let text = "x".repeat(64 << 10);
        client.call("file_write", at(json!({ "path": "/root/file", "content": text })))?;
        let sum = at(json!({ "command": "wc -c < /root/file; echo $ROUND" }));
        let said = client.call("exec", &sum)?;
        ensure!(said["stdout"] == format!("65536\n{nth}\n"), "{said}");
        let job = json!({ "action": "start", "command": "seq 1 2000; sleep 0.2" });
        let id = client.call("exec_background", at(job))?["job_id"].clone();
        let poll = at(json!({ "action": "poll", "job_id": id }));
        while client.call("exec_background", &poll)?["running"] == true {
            sleep(PAUSE);
        }
        Ok("sandboxes made, used and removed")
    }))
}

/// Two machines: a snapshot, a fork of it, work in both.
fn machines(house: &BenchDaemon, extent: Extent) -> Result<Worker<'_>> {
    let client = Arc::new(house.client()?);
    for name in MACHINES {
        client.call("workspace_create", json!({ "name": name, "isolation": "vm" }))?;
        if extent == Extent::Time {
            let through = json!({ "command": THROUGH_THE_JOURNAL, "timeout_secs": 300 });
            client.call("exec", with(name, through))?;
        }
    }
    let machines = Some(client.clone());
    let worker = Worker::new(MACHINE_ROUNDS, move |nth| {
        let name = MACHINES[nth as usize % MACHINES.len()];
        let at = |more: Value| with(name, more);
        if nth % STOPPED_EVERY < 2 && nth > 1 {
            stand(&client, name)?;
        }
        client.call("exec", at(json!({ "command": format!("echo {nth} > /root/round; sync") })))?;
        let snapshot = |action: &str| at(json!({ "action": action, "name": "s" }));
        let mut create = snapshot("create");
        create["include_memory"] = true.into();
        let begun = Instant::now();
        while let Err(error) = client.call("snapshot", &create) {
            // On a busy host one stop is too short to merge all that the rounds before it left.
            ensure!(error.to_string().contains("too_many_layers"), error);
            ensure!(begun.elapsed() < ALL_MERGED_IN, error);
            stand(&client, name)?;
        }
        client.call("workspace_fork", at(json!({ "snapshot_name": "s", "new_name": "fork" })))?;
        let said = client.call("exec", with("fork", json!({ "command": "cat /root/round" })))?;
        ensure!(said["stdout"] == format!("{nth}\n"), "{said}");
        client.call("workspace_destroy", with("fork", json!({})))?;
        client.call("snapshot", snapshot("delete"))?;
        Ok("snapshots of machines, forked")
    });
    Ok(Worker { machines, ..worker })
}

/// Stops a machine for a while: the layers that deleted snapshots leave of its disk are merged
/// meanwhile.
fn stand(client: &Client, machine: &str) -> Result<()> {
    client.call("workspace_stop", with(machine, json!({})))?;
    sleep(STANDS);
    started(client, machine)
}

fn started(client: &Client, machine: &str) -> Result<()> {
    let begun = Instant::now();
    // For the moment in which a merge is recorded a start is refused, to be repeated.
    while let Err(error) = client.call("workspace_start", with(machine, json!({}))) {
        ensure!(error.to_string().contains("workspace_busy"), error);
        ensure!(begun.elapsed() < ALL_MERGED_IN, error);
        sleep(PAUSE);
    }
    Ok(())
}

fn teams(house: &BenchDaemon) -> Result<Worker<'_>> {
    let client = house.client()?;
    Ok(Worker::new(OTHER_ROUNDS, move |nth| {
        let crew = |action: &str, mut more: Value| {
            more["action"] = action.into();
            more["name"] = "crew".into();
            more
        };
        let roles = ["a", "b"].map(|name| json!({ "name": name, "role": "soak" }));
        client.call("team", crew("create", json!({ "roles": roles })))?;
        let text = format!("message {nth}");
        let message = json!({ "agent": "a", "to": "b", "content": text });
        client.call("team", crew("message", message))?;
        let received = client.call("team", crew("receive", json!({ "agent": "b" })))?;
        ensure!(received["messages"][0]["content"] == text, "{received}");
        let task = json!({ "task_id": "t", "command": "echo done" }).to_string();
        let assign =
            json!({ "agent": "a", "to": "b", "message_type": "task_assignment", "content": task });
        client.call("team", crew("message", assign))?;
        let wait = json!({ "agent": "b", "wait_secs": 60 });
        let received = client.call("team", crew("receive", wait))?;
        ensure!(received["daemon_results"][0]["success"] == true, "{received}");
        client.call("team", crew("destroy", json!({})))?;
        Ok("teams made, at work and removed")
    }))
}

fn notes(house: &BenchDaemon) -> Result<Worker<'_>> {
    let client = house.client()?;
    Ok(Worker::new(OTHER_ROUNDS, move |nth| {
        let path = format!("soak/{}.md", nth % 50);
        let word = format!("word{nth}");
        let content = format!("# Round {nth}\n\n{word} {}\n", "text ".repeat(500));
        let write = json!({ "action": "write", "path": path, "content": content });
        client.call("vault", &write)?;
        let found = client.call("vault", json!({ "action": "search", "query": word }))?;
        ensure!(found.to_string().contains(&path), "{found}");
        client.call("vault", json!({ "action": "delete", "path": path, "confirm": true }))?;
        Ok("notes written, found and deleted")
    }))
}

/// Clients that come, look and go.
fn sessions(house: &BenchDaemon) -> Result<Worker<'_>> {
    Ok(Worker::new(OTHER_ROUNDS, move |_| {
        let client = house.client()?;
        client.call("workspace_list", json!({})).context("a new session lists workspaces")?;
        Ok("sessions opened and left")
    }))
}

fn with(workspace: &str, mut more: Value) -> Value {
    more["workspace_id"] = workspace.into();
    more
}
