//! Giving a planned workspace its actor, or undoing the plan when it gets none.

use std::{collections::BTreeSet, sync::Arc};

use hivekeep_kernel::{Address, Fault};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    directory::DirectoryEntry,
    ledger::Ledger,
    manager::{WorkspaceMember, Workspaces},
    messages::{LifecycleMsg, Msg},
    phase::{MachineProcess, Phase},
    records::Planned,
    state,
};

/// Reply to a creation: the address of its workspace.
pub(super) type SpawnReply = oneshot::Sender<Result<Address<Msg>, Fault>>;

impl Workspaces {
    /// Gives a plan its actor on behalf of a creation. The plan is durable: if the creation ends here, its
    /// record, name, slot and quota go with it.
    pub(super) fn spawn_for(&mut self, plan: Planned, reply: SpawnReply) {
        if self.workspaces.get(plan.id).is_some() {
            // An earlier manager recorded the plan; this one found it and is undoing it.
            let _asker_gone = reply.send(Err(Fault::new("the creation is being undone")));
            return;
        }
        // A machine launched after all were stopped would outlive the daemon.
        if reply.is_closed() || self.shared.may_start().is_err() {
            return self.unplan(plan);
        }
        self.shared.ref_counts.replace(plan.id, Ledger::new(plan.clone()).artifacts());
        match self.spawn(&plan) {
            Ok(address) => {
                if reply.send(Ok(address.clone())).is_err() {
                    let _stops_by_itself = address.send(LifecycleMsg::Abandon.into());
                }
            }
            Err(fault) => {
                // Nothing was made for the plan yet.
                self.workspaces.remove(plan.id);
                drop(self.shared.ref_counts.replace(plan.id, BTreeSet::new()));
                self.unplan(plan);
                let _asker_gone = reply.send(Err(fault));
            }
        }
    }

    /// Starts a workspace's actor and lists it.
    pub(super) fn spawn(&mut self, plan: &Planned) -> Result<Address<Msg>, Fault> {
        let (id, address) = (plan.id, self.workspaces.vacant(plan.id));
        self.shared.directory.insert(DirectoryEntry {
            id,
            name: plan.name.clone(),
            phase: Phase::Creating,
            process: MachineProcess::None,
            owner: plan.holder(),
            user: plan.user,
            planned_by: plan.owner,
            pool: plan.pool.clone(),
            spec: plan.spec.clone(),
            slot: plan.slot,
            created_at: plan.at,
            labels: Arc::new(plan.labels.clone()),
            lifetime: None,
            parks_when_idle: false,
            fork_of: plan.fork.as_ref().map(|fork| fork.snapshot),
            address: address.clone(),
        });
        let seed = state::Seed {
            id,
            shared: self.shared.clone(),
            manager: Arc::new(self.me.address.clone()),
        };
        // Names are claimed in the directory.
        let _no_name_here = self.workspaces.insert(id, WorkspaceMember);
        self.workspaces.start_at(id, &address, seed)?;
        Ok(address)
    }

    /// Takes back a plan that has no actor. Nothing was made for it yet.
    fn unplan(&self, plan: Planned) {
        let shared = self.shared.clone();
        let _detached = self.me.workers.spawn(async move {
            if let Err(error) = shared.network.leave(plan.id).await {
                tracing::error!(workspace = %plan.id, %error, "a place in the network stays taken");
            }
            if let Err(error) = shared.logs.forget(plan.id).await {
                // Claims of a record stay held: the next start undoes the plan.
                tracing::error!(workspace = %plan.id, %error, "a plan could not be taken back");
                return;
            }
            shared.take_fresh(plan.id);
            shared.volumes.set(plan.id, &[]);
            shared.directory.remove(plan.id);
            shared.directory.release(&plan);
            if let Some(owner) = plan.holder() {
                shared.daemon.sessions.release(owner, plan.spec.resources());
            }
            shared.publish("workspace.create_undone", plan.id, json!({ "name": plan.name }));
        });
    }
}
