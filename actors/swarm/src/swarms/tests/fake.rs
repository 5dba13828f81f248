//! The daemon's other tools and its guests' tasks, as far as swarms use them, in memory. They
//! outlive a stage, as machines outlive the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, Resources, SessionId, ToolError, WorkspaceId};
use hivekeep_ports::{
    Hold, InternalCall, SessionQuotas, Standing, TaskAssignment, TaskBoard, TaskCapture, TaskHints,
    TaskOutcome, TaskPage, TaskResult, TaskState, TaskTaken, TaskText, Tasks, Tools,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::swarm::state::{SwarmPlan, TaskEnd};

/// The golden workspace; it has the snapshot `base`.
pub(crate) const GOLDEN: &str = "golden";

#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    pub(crate) id: WorkspaceId,
    pub(crate) owner: SessionId,
    pub(crate) state: &'static str,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) task: Option<(TaskAssignment, Option<TaskOutcome>)>,
    pub(crate) acknowledged: bool,
    hint: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) workspaces: BTreeMap<String, Workspace>,
    /// How often a command took its effect, by workspace.
    pub(crate) effects: BTreeMap<String, usize>,
    /// Forks of a name that has this in it fail.
    pub(crate) fails: Option<&'static str>,
    /// Making a fork takes this long, and does not listen meanwhile.
    pub(crate) slow: Duration,
    /// A task takes this long.
    pub(crate) work: Duration,
    /// Removing these is refused.
    pub(crate) stuck: BTreeSet<String>,
    pub(crate) ended: BTreeSet<SessionId>,
    /// Sessions that were held; one that is has further owners of this.
    pub(crate) held: BTreeMap<SessionId, Arc<()>>,
    /// Forks that were begun, and that run now.
    pub(crate) begun: usize,
    pub(crate) forking: usize,
    /// Most forks that were being made at a time.
    pub(crate) most_forking: usize,
    /// Most workspaces beside the golden one at a time.
    pub(crate) most: usize,
    pub(crate) merges: Vec<Value>,
    /// All sources but the first, which has nothing new, are refused.
    pub(crate) merge_fails: bool,
    /// So many merges do not reach their sources.
    pub(crate) unreached: usize,
    /// The command `gate` is over when this is.
    pub(crate) gate: bool,
    /// Removing takes this long.
    pub(crate) removing: Duration,
    /// Nothing can be written to a guest.
    pub(crate) full: bool,
    /// So many starts meet another change.
    pub(crate) busy_starts: usize,
    pub(crate) starts: usize,
    /// So many cancellations do not reach their guest.
    pub(crate) deaf: usize,
    pub(crate) vault: bool,
    /// What is taken of the quota, and the most workspaces of it.
    pub(crate) reserved: Resources,
    pub(crate) room: Option<u64>,
}

/// The world, shared.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<World>>);

fn text(args: &Value, field: &str) -> String {
    args[field].as_str().expect("a text").to_owned()
}

fn refusal(code: &'static str) -> ToolError {
    ToolError::foreign(Layer::Actor, code, "as told")
}

impl Fake {
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.0.lock().expect("no test panics in here"))
    }

    pub(crate) fn add(&self, name: &str, owner: SessionId) -> WorkspaceId {
        let (id, hint) = (WorkspaceId::new(), Arc::new(watch::channel(0).0));
        let made = Workspace {
            id,
            owner,
            state: "running",
            files: BTreeMap::new(),
            task: None,
            acknowledged: false,
            hint,
        };
        self.with(|world| {
            let before = world.workspaces.insert(name.to_owned(), made);
            assert!(before.is_none(), "`{name}` was there already");
            let forks = world.workspaces.keys().filter(|name| name.starts_with("swarm-")).count();
            world.most = world.most.max(forks);
        });
        id
    }

    /// Puts all forks and the golden workspace into a state.
    pub(crate) fn all_are(&self, state: &'static str) {
        self.with(|world| world.workspaces.values_mut().for_each(|one| one.state = state));
    }

    /// Names of what swarms made.
    pub(crate) fn forks(&self) -> Vec<String> {
        let names = self.with(|world| world.workspaces.keys().cloned().collect::<Vec<_>>());
        names.into_iter().filter(|name| name.starts_with("swarm-")).collect()
    }

    /// The machine of a fork goes down; its task is cut short.
    pub(crate) fn crash(&self, part: &str) {
        self.with(|world| {
            let (_, one) =
                world.workspaces.iter_mut().find(|(name, _)| name.contains(part)).expect("there");
            one.state = "crashed";
            if let Some((_, outcome @ None)) = &mut one.task {
                *outcome = Some(TaskOutcome::Interrupted);
            }
        });
    }

    /// A task that ran before a daemon died, with its result.
    pub(crate) fn run_now(&self, name: &str, plan: &SwarmPlan, task: usize) -> TaskEnd {
        let job = &plan.tasks[task];
        let assignment = TaskAssignment {
            message_id: plan.id.to_string(),
            task_id: plan.id.to_string(),
            command: job.command.clone(),
            workdir: job.workdir.clone(),
            env: plan.env.clone(),
            timeout_secs: plan.timeout_secs,
        };
        let outcome = TaskOutcome::Exited { exit_code: 0 };
        let result = Self::result(&assignment, &outcome);
        self.with(|world| {
            *world.effects.entry(name.to_owned()).or_default() += 1;
            let one = world.workspaces.get_mut(name).expect("there");
            one.task = Some((assignment, Some(outcome)));
        });
        TaskEnd::Ran(Box::new(result))
    }

    fn find(&self, key: &str) -> Result<(String, Workspace), ToolError> {
        let found = self.with(|world| {
            let mut all = world.workspaces.iter();
            let found = all.find(|(name, one)| **name == key || one.id.to_string() == key);
            found.map(|(name, one)| (name.clone(), one.clone()))
        });
        found.ok_or_else(|| refusal("workspace_not_found"))
    }

    fn own(&self, errand: &InternalCall, args: &Value) -> Result<(String, Workspace), ToolError> {
        let found = self.find(&text(args, "workspace_id"))?;
        if found.1.owner == errand.session { Ok(found) } else { Err(refusal("not_owner")) }
    }

    fn guest(&self, id: WorkspaceId) -> Result<(String, Workspace), ToolError> {
        let found = self.find(&id.to_string())?;
        if found.1.state == "running" { Ok(found) } else { Err(refusal("workspace_state")) }
    }

    async fn fork(&self, errand: &InternalCall, args: &Value) -> Result<Value, ToolError> {
        self.own(errand, args)?;
        let name = text(args, "new_name");
        let (fails, slow) = self.with(|world| {
            world.begun += 1;
            world.forking += 1;
            world.most_forking = world.most_forking.max(world.forking);
            (world.fails.is_some_and(|part| name.contains(part)), world.slow)
        });
        tokio::time::sleep(slow).await;
        self.with(|world| world.forking -= 1);
        let size = Resources::workspace(256, 2);
        match &errand.reserved {
            Some(reserved) => reserved.draw(size).await?,
            None => self.reserve(errand.session, size).await?,
        }
        if fails || self.find(&name).is_ok() {
            self.release(errand.session, size);
        }
        if fails {
            return Err(refusal("quota_exceeded"));
        }
        if self.find(&name).is_ok() {
            return Err(refusal("name_taken"));
        }
        let id = self.add(&name, errand.session);
        Ok(json!({ "workspace_id": id, "name": name, "state": "running", "ip": null }))
    }

    async fn destroy(&self, errand: &InternalCall, args: &Value) -> Result<Value, ToolError> {
        let (name, _) = self.own(errand, args)?;
        tokio::time::sleep(self.with(|world| world.removing)).await;
        if self.with(|world| world.stuck.contains(&name)) {
            return Err(refusal("machine_unkillable"));
        }
        self.with(|world| world.workspaces.remove(&name));
        match &errand.reserved {
            Some(reserved) => reserved.put_back(Resources::workspace(256, 2)),
            None => self.release(errand.session, Resources::workspace(256, 2)),
        }
        Ok(json!({ "destroyed": true }))
    }

    fn start(&self, errand: &InternalCall, args: &Value) -> Result<Value, ToolError> {
        let (name, one) = self.own(errand, args)?;
        self.with(|world| {
            world.starts += 1;
            if world.busy_starts > 0 {
                world.busy_starts -= 1;
                return Err(refusal("workspace_busy").retryable());
            }
            if one.state == "running" {
                return Err(refusal("workspace_state"));
            }
            world.workspaces.get_mut(&name).expect("there").state = "running";
            Ok(json!({}))
        })
    }

    fn merge(&self, errand: &InternalCall, args: Value) -> Result<Value, ToolError> {
        if errand.cancel.is_cancelled() {
            return Err(ToolError::cancelled());
        }
        let target = self.find(&text(&args, "target_workspace"))?.1;
        if target.state != "running" {
            return Err(refusal("workspace_state"));
        }
        let (fails, unreached) = self.with(|world| {
            world.merges.push(args.clone());
            let unreached = world.unreached > 0;
            world.unreached -= usize::from(unreached);
            (world.merge_fails, unreached)
        });
        let (mut rows, mut conflicts) = (Vec::new(), Vec::new());
        for (at, source) in
            args["source_workspaces"].as_array().expect("sources").iter().enumerate()
        {
            let down = self.find(source.as_str().expect("an id"))?.1.state != "running";
            let code = match (down || unreached, fails && at > 0) {
                (true, _) => Some("guest_unreachable"),
                (false, true) => Some("conflict"),
                (false, false) => None,
            };
            conflicts.extend(code.map(|code| json!({ "source_id": source, "code": code })));
            let status = if code.is_some() { "failed" } else { "up_to_date" };
            rows.push(json!({ "source_id": source, "status": status }));
        }
        Ok(json!({
            "success": conflicts.is_empty(), "merged_sources": args["source_workspaces"],
            "conflicts": conflicts, "sources": rows,
        }))
    }

    fn result(task: &TaskAssignment, outcome: &TaskOutcome) -> TaskResult {
        let out = format!("did {}", task.command);
        let told = |text: String| TaskText {
            total_bytes: text.len() as u64,
            text,
            truncated: false,
            path: Some("/var/lib/hivekeep/tasks/x".to_owned()),
        };
        TaskResult {
            number: 1,
            task_id: task.task_id.clone(),
            message_id: task.message_id.clone(),
            outcome: outcome.clone(),
            capture: TaskCapture {
                workdir: Some("/root".to_owned()),
                stdout: told(out),
                stderr: told(String::new()),
                elapsed_ms: 5,
            },
        }
    }
}

#[async_trait]
impl Tools for Fake {
    async fn call(
        &self,
        errand: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        match tool {
            "workspace_fork" => self.fork(&errand, &args).await,
            "workspace_list" => {
                let rows = self.with(|world| {
                    let row = |(name, one): (&String, &Workspace)| {
                        let owned = one.owner == errand.session;
                        json!({ "workspace_id": one.id, "name": name, "owned": owned })
                    };
                    world.workspaces.iter().map(row).collect::<Vec<_>>()
                });
                Ok(json!({ "workspaces": rows }))
            }
            "workspace_info" => {
                let (name, one) = self.own(&errand, &args)?;
                let golden = name == GOLDEN;
                let snapshots = if golden { json!([{ "name": "base" }]) } else { json!([]) };
                let resources = json!({ "memory_mb": 256, "disk_gb": 2 });
                Ok(json!({ "state": one.state, "snapshots": snapshots, "resources": resources }))
            }
            "workspace_destroy" => self.destroy(&errand, &args).await,
            "workspace_start" => self.start(&errand, &args),
            "workspace_merge" => self.merge(&errand, args),
            "file_write" => {
                let (name, one) = self.own(&errand, &args)?;
                if self.with(|world| world.full) {
                    return Err(refusal("guest_disk_full"));
                }
                if one.state != "running" {
                    return Err(refusal("workspace_state"));
                }
                self.with(|world| {
                    let one = world.workspaces.get_mut(&name).expect("there");
                    one.files.insert(text(&args, "path"), text(&args, "content"));
                });
                Ok(json!({}))
            }
            "vault" if !self.with(|world| world.vault) => Err(refusal("vault_disabled")),
            "vault" if args["action"] == "read" => Ok(json!({ "content": "the whole note" })),
            "vault" => {
                assert_eq!(args["max_results"], 5);
                let hit =
                    json!({ "path": "a.md", "line_number": 7, "line": "x", "context": "w\nx" });
                Ok(json!({ "results": [hit] }))
            }
            other => panic!("swarms do not call {other}"),
        }
    }
}

#[async_trait]
impl Tasks for Fake {
    async fn put(&self, id: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        let (name, one) = self.guest(id)?;
        if let Some((before, outcome)) = &one.task {
            assert_eq!(*before, task, "another task of the same id");
            let result = outcome.as_ref().map(|outcome| Self::result(before, outcome));
            let state = if result.is_some() { TaskState::Done } else { TaskState::Running };
            return Ok(TaskTaken { state, repeat: true, differs: false, result });
        }
        let work = self.with(|world| {
            *world.effects.entry(name.clone()).or_default() += 1;
            world.workspaces.get_mut(&name).expect("there").task = Some((task.clone(), None));
            world.work
        });
        let fake = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(work).await;
            let closed = || task.command == "gate" && !fake.with(|world| world.gate);
            while closed() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let exit_code = match task.command.as_str() {
                "hang" => return,
                "fail" => 3,
                _ => 0,
            };
            fake.with(|world| {
                let Some(one) = world.workspaces.get_mut(&name) else { return };
                if let Some((_, outcome @ None)) = &mut one.task {
                    *outcome = Some(TaskOutcome::Exited { exit_code });
                }
                one.hint.send_modify(|count| *count += 1);
            });
        });
        Ok(TaskTaken { state: TaskState::Running, repeat: false, differs: false, result: None })
    }

    async fn results(
        &self,
        id: WorkspaceId,
        _: u64,
        _: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        let (_, one) = self.guest(id)?;
        let done = one.task.iter().filter_map(|(task, outcome)| {
            assert_eq!(sent.get(&task.task_id), Some(&task.message_id));
            outcome.as_ref().map(|outcome| Self::result(task, outcome))
        });
        let results = done.collect();
        Ok(TaskPage {
            results,
            next_after: 1,
            more: false,
            queued: 0,
            running: 0,
            told: false,
            dropped: 0,
            refused_paths: 0,
        })
    }

    async fn acknowledge(&self, id: WorkspaceId, task_ids: Vec<String>) -> Result<u32, ToolError> {
        let (name, _) = self.guest(id)?;
        self.with(|world| {
            world.workspaces.get_mut(&name).expect("there").acknowledged = task_ids.len() == 1;
        });
        Ok(1)
    }

    async fn cancel(&self, id: WorkspaceId, _: String) -> Result<TaskState, ToolError> {
        let (name, _) = self.guest(id)?;
        let deaf = self.with(|world| {
            let deaf = world.deaf > 0;
            world.deaf -= usize::from(deaf);
            deaf
        });
        if deaf {
            return Err(refusal("guest_unreachable"));
        }
        self.with(|world| {
            let one = world.workspaces.get_mut(&name).expect("there");
            if let Some((_, outcome @ None)) = &mut one.task {
                *outcome = Some(TaskOutcome::Cancelled);
            }
            one.hint.send_modify(|count| *count += 1);
        });
        Ok(TaskState::Running)
    }

    async fn board(&self, id: WorkspaceId) -> Result<TaskBoard, ToolError> {
        let (_, one) = self.guest(id)?;
        let running = one.task.iter().filter(|(_, outcome)| outcome.is_none());
        let running = running.map(|(task, _)| task.task_id.clone()).collect();
        Ok(TaskBoard { queued: Vec::new(), running, results: 0 })
    }

    async fn hints(&self, id: WorkspaceId) -> Result<TaskHints, ToolError> {
        Ok(TaskHints::new(self.find(&id.to_string())?.1.hint.subscribe()))
    }
}

#[async_trait]
impl SessionQuotas for Fake {
    async fn reserve(&self, _: SessionId, what: Resources) -> Result<(), ToolError> {
        self.with(|world| {
            let after = world.reserved.plus(what);
            if world.room.is_some_and(|room| after.workspaces > room) {
                return Err(refusal("quota_exceeded"));
            }
            world.reserved = after;
            Ok(())
        })
    }
    fn release(&self, _: SessionId, what: Resources) {
        self.with(|world| world.reserved = world.reserved.minus(what));
    }
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, session: SessionId) -> Hold {
        self.with(|world| Hold::of(world.held.entry(session).or_default().clone()))
    }
    fn user(&self, _: SessionId) -> Option<hivekeep_kernel::User> {
        None
    }
    async fn standing(&self, session: SessionId) -> Standing {
        let ended = self.with(|world| world.ended.contains(&session));
        Standing { attached: !ended, calls_in_flight: 0, idle_for: Duration::ZERO, ended }
    }
}
