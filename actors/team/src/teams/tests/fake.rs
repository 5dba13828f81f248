//! The daemon's other tools, as far as teams call them, over workspaces in memory. They outlive a
//! stage, as machines outlive the daemon.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, Resources, SessionId, ToolError, User, WorkspaceId};
use hivekeep_ports::{Hold, InternalCall, ReachPolicy, SessionQuotas, Standing, Tools};
use serde_json::{Value, json};

use super::wires::Shelf;

#[derive(Debug, Clone)]
pub(super) struct Workspace {
    pub(super) id: WorkspaceId,
    pub(super) owner: SessionId,
    pub(super) state: &'static str,
    pub(super) link: &'static str,
    pub(super) forked: bool,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) workspaces: BTreeMap<String, Workspace>,
    /// Making a workspace of a name that has this in it fails.
    pub(super) fails: Option<&'static str>,
    /// A workspace of a name that has this in it is made by another call just before.
    pub(super) claimed: Option<&'static str>,
    /// Making one takes this long, and does not listen meanwhile.
    pub(super) slow: Duration,
    /// Removing one takes this long.
    pub(super) slow_end: Duration,
    /// Removing these is refused.
    pub(super) stuck: BTreeSet<String>,
    pub(super) ended: BTreeSet<SessionId>,
    /// Sessions of another user.
    pub(super) strangers: BTreeSet<SessionId>,
    /// Machines are not on a bridge, for this reason.
    pub(super) alone: Option<&'static str>,
    /// No workspace has a place in the network.
    pub(super) placeless: bool,
    /// The policy of a workspace of a name that has this in it cannot be changed.
    pub(super) unruly: Option<&'static str>,
    pub(super) policies: BTreeMap<WorkspaceId, ReachPolicy>,
    /// The next lists of workspaces take so long, each in its turn.
    pub(super) slow_lists: VecDeque<Duration>,
    /// What sessions hold, and may.
    pub(super) used: u64,
    pub(super) allowed: Option<u64>,
    /// Makes that were begun, and that run now.
    pub(super) begun: usize,
    pub(super) running: usize,
    pub(super) most: usize,
    pub(super) removed: Vec<String>,
    /// Lists of them.
    pub(super) lists: usize,
    /// Looks at a workspace.
    pub(super) looks: usize,
    /// What somebody wanted to have removed, whether it is there or not.
    pub(super) asked_to_remove: Vec<String>,
}

/// The world, shared.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(super) Arc<Mutex<World>>, pub(super) Shelf);

impl Fake {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        change(&mut self.0.lock().expect("no test panics in here"))
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.with(|world| world.workspaces.keys().cloned().collect())
    }

    /// As `workspace_adopt` does.
    pub(super) fn adopt(&self, by: SessionId) {
        self.with(|world| world.workspaces.values_mut().for_each(|one| one.owner = by));
    }

    async fn make(
        &self,
        call: &InternalCall,
        name: String,
        forked: bool,
    ) -> Result<Value, ToolError> {
        let (fails, slow) = self.with(|world| {
            world.begun += 1;
            world.running += 1;
            world.most = world.most.max(world.running);
            (world.fails.is_some_and(|part| name.contains(part)), world.slow)
        });
        tokio::time::sleep(slow).await;
        self.with(|world| world.running -= 1);
        if fails {
            return Err(ToolError::foreign(Layer::Machine, "boot_failed", "it does not boot"));
        }
        let (id, owner) = (WorkspaceId::new(), call.session);
        let one = Workspace { id, owner, state: "running", link: "up", forked };
        if self.with(|world| world.claimed.is_some_and(|part| name.contains(part))) {
            self.reserve(owner, Resources::workspace(512, 10)).await?;
            self.with(|world| world.workspaces.insert(name.clone(), one));
            return Err(ToolError::foreign(Layer::Actor, "name_taken", name));
        }
        let size = Resources::workspace(512, 10);
        match &call.reserved {
            Some(reserved) => reserved.draw(size).await?,
            None => self.reserve(owner, size).await?,
        }
        let taken = self.with(|world| world.workspaces.insert(name.clone(), one).is_some());
        assert!(!taken, "`{name}` was there already");
        Ok(json!({ "workspace_id": id, "name": name, "state": "running", "ip": null }))
    }

    fn find(&self, args: &Value) -> Result<(String, Workspace), ToolError> {
        let key = args["workspace_id"].as_str().expect("an id or a name").to_owned();
        let found = self.with(|world| {
            let mut all = world.workspaces.iter();
            let found = all.find(|(name, one)| **name == key || one.id.to_string() == key);
            found.map(|(name, one)| (name.clone(), one.clone()))
        });
        found.ok_or_else(|| ToolError::foreign(Layer::Resolve, "workspace_not_found", key))
    }

    fn own(&self, call: &InternalCall, args: &Value) -> Result<(String, Workspace), ToolError> {
        let found = self.find(args)?;
        if found.1.owner == call.session {
            return Ok(found);
        }
        Err(ToolError::foreign(Layer::Policy, "not_owner", "another's"))
    }
}

#[async_trait]
impl Tools for Fake {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let text = |field: &str| args[field].as_str().expect("a text").to_owned();
        match tool {
            "workspace_create" => self.make(&call, text("name"), false).await,
            "workspace_fork" => {
                assert_eq!(text("snapshot_name"), "base");
                self.own(&call, &args)?;
                self.make(&call, text("new_name"), true).await
            }
            "workspace_list" => {
                let slow = self.with(|world| {
                    world.lists += 1;
                    world.slow_lists.pop_front()
                });
                if let Some(slow) = slow {
                    tokio::time::sleep(slow).await;
                }
                let row = |(name, one): (&String, &Workspace)| json!({ "workspace_id": one.id, "name": name, "owned": one.owner == call.session });
                let rows: Vec<_> = self.with(|world| world.workspaces.iter().map(row).collect());
                Ok(json!({ "workspaces": rows, "count": rows.len() }))
            }
            "workspace_info" => {
                self.with(|world| world.looks += 1);
                let (name, one) = self.own(&call, &args)?;
                let snapshots = if name.starts_with("golden") {
                    json!([{ "name": "base" }])
                } else {
                    json!([])
                };
                Ok(json!({
                    "state": one.state, "ip": "10.0.0.9", "snapshots": snapshots,
                    "machine": { "link": one.link },
                    "resources": { "vcpus": 2, "memory_mb": 512, "disk_gb": 10 },
                }))
            }
            "workspace_destroy" => {
                let slow = self.with(|world| {
                    world.asked_to_remove.push(text("workspace_id"));
                    world.slow_end
                });
                tokio::time::sleep(slow).await;
                let (name, _) = self.own(&call, &args)?;
                if self.with(|world| world.stuck.contains(&name)) {
                    return Err(ToolError::foreign(Layer::Machine, "machine_unkillable", "stuck"));
                }
                self.with(|world| {
                    let gone = world.workspaces.remove(&name);
                    gone.map(|gone| world.policies.remove(&gone.id));
                    world.removed.push(name);
                    world.used -= 1;
                });
                Ok(json!({ "destroyed": true }))
            }
            other => panic!("teams do not call {other}"),
        }
    }
}

#[async_trait]
impl SessionQuotas for Fake {
    async fn reserve(&self, _: SessionId, what: Resources) -> Result<(), ToolError> {
        self.with(|world| {
            if world.allowed.is_some_and(|most| world.used + what.workspaces > most) {
                return Err(ToolError::foreign(Layer::Quota, "quota_exceeded", "no more"));
            }
            world.used += what.workspaces;
            Ok(())
        })
    }
    fn release(&self, _: SessionId, what: Resources) {
        self.with(|world| world.used -= what.workspaces);
    }
    fn restore(&self, _: SessionId, _: Resources) {}
    fn hold(&self, _: SessionId) -> Hold {
        Hold::default()
    }
    fn user(&self, session: SessionId) -> Option<User> {
        let stranger = self.with(|world| world.strangers.contains(&session));
        Some(if stranger { User::Nobody } else { User::Bearer })
    }
    async fn standing(&self, session: SessionId) -> Standing {
        let ended = self.with(|world| world.ended.contains(&session));
        Standing { attached: !ended, calls_in_flight: 0, idle_for: Duration::ZERO, ended }
    }
}
