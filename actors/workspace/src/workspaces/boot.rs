//! Actors of the workspaces: of all recorded ones when the manager starts, records first, then the world;
//! and of one that was planned, or the plan is undone when it gets none.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Display,
    sync::Arc,
};

use hivekeep_kernel::{Address, Fault};
use hivekeep_machine::sweep::Leftover;
use hivekeep_runtime::log::Decision;
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    backup,
    directory::DirectoryEntry,
    ledger::Ledger,
    manager::{WorkspaceMember, Workspaces},
    messages::{LifecycleMsg, Msg},
    phase::{MachineProcess, Phase},
    records::{Planned, Record},
    snapshots::files,
    state,
};

/// Reply to a creation: the address of its workspace.
type SpawnReply = oneshot::Sender<Result<Address<Msg>, Fault>>;

impl Workspaces {
    /// Gives every recorded workspace its actor, after removing what no record names.
    pub(super) async fn boot(&mut self) -> Result<(), Fault> {
        let first_boot = self.shared.first_boot();
        if first_boot {
            self.shared.logs.open_all().await?;
            self.give_up_merges().await?;
        }
        let ledgers = self.shared.logs.states();
        self.sweep(&ledgers).await?;
        self.sweep_snapshots(&ledgers).await?;
        // Failed workspaces have left the network already.
        let members = ledgers.iter().filter(|ledger| ledger.failed.is_none());
        let members = members.map(|ledger| ledger.plan.id).collect();
        let retained = self.shared.network.retain(members).await;
        retained.map_err(|error| Fault::new(error.to_text()))?;
        let bases = ledgers.iter().filter(|ledger| ledger.failed.is_none());
        let user = self.shared.image_user();
        let bases =
            bases.filter_map(|it| Some((format!("{user}.{}", it.plan.id), it.base.clone()?)));
        let held = self.shared.images.replace_uses(user.clone(), bases.collect()).await;
        held.map_err(|error| Fault::new(error.to_string()))?;
        // A creation that was under way when an earlier manager ended is undone.
        self.shared.fresh.clear();
        for ledger in &ledgers {
            let plan = &ledger.plan;
            if ledger.failed.is_none() {
                let claimed = self.shared.directory.claim_recorded(plan);
                claimed.map_err(|error| Fault::new(error.to_string()))?;
            }
            if first_boot && ledger.failed.is_none() {
                self.shared.volumes.set(plan.id, &plan.volumes);
            }
            if let (true, true, Some(owner)) = (first_boot, ledger.counts(), ledger.owner) {
                self.shared.daemon.sessions.restore(owner, ledger.resources());
            }
            self.spawn(plan)?;
        }
        if first_boot {
            self.shared.volumes.all_set();
            self.release_backups(&ledgers);
        }
        Ok(())
    }

    /// Gives up merges that an earlier daemon did not end. Runs only at a daemon's first boot: later, the
    /// record of an end may still be on its way.
    async fn give_up_merges(&self) -> Result<(), Fault> {
        let logs = &self.shared.logs;
        for ledger in logs.states().into_iter().filter(|ledger| ledger.merge.is_some()) {
            let (written, outcome) = oneshot::channel();
            let then = move |durable| drop(written.send(durable));
            let fault = |error: &dyn Display| Fault::new(format!("giving up a merge: {error}"));
            let given_up = Decision::record(Record::MergeFailed);
            logs.decide(ledger.plan.id, given_up, then).map_err(|error| fault(&error))?;
            outcome.await.map_err(|error| fault(&error))?.map_err(|error| fault(&error))?;
        }
        Ok(())
    }

    /// Removes snapshots that a backup of an earlier daemon made and could not remove.
    fn release_backups(&self, ledgers: &[Ledger]) {
        let of_backup = |ledger: &Ledger| {
            let id = ledger.plan.id;
            let nodes = ledger.snapshots.nodes().filter(|node| node.by_backup);
            nodes.map(|node| (id, node.id)).collect::<Vec<_>>()
        };
        let left: Vec<_> = ledgers.iter().flat_map(of_backup).collect();
        if !left.is_empty() {
            let _detached = self.me.workers.spawn(backup::release(self.shared.clone(), left));
        }
    }

    /// Removes layers and memories that no record needs.
    async fn sweep_snapshots(&self, ledgers: &[Ledger]) -> Result<(), Fault> {
        let shared = self.shared.clone();
        for ledger in ledgers {
            // Files held before are removed by the sweep below, if nobody needs them.
            drop(shared.ref_counts.replace(ledger.plan.id, ledger.artifacts()));
        }
        let sweep = move || files::sweep(&shared.folders, &shared.ref_counts);
        let removed = tokio::task::spawn_blocking(sweep)
            .await
            .map_err(|error| Fault::new(error.to_string()))?
            .map_err(|error| Fault::new(format!("removing what no snapshot needs: {error}")))?;
        for what in removed {
            tracing::warn!(%what, "removed what an interrupted snapshot left");
            self.shared.publish("leftover.removed", "host", json!({ "what": what }));
        }
        Ok(())
    }

    /// Ends and removes what a crash left between an intent and its record.
    async fn sweep(&self, ledgers: &[Ledger]) -> Result<(), Fault> {
        let fault = |error: hivekeep_machine::Error| Fault::new(error.to_string());
        let id = |ledger: &Ledger| ledger.plan.id.to_string();
        let recorded: HashSet<_> = ledgers.iter().map(id).collect();
        let launched = ledgers.iter().filter(|ledger| ledger.handle().is_some()).map(id).collect();
        let sweeper = &self.shared.sweeper;
        sweeper.empty_trash();
        // A process without a record of its launch is removed even if its workspace is recorded; a folder
        // only if it is not.
        let mut found = sweeper.find(&launched).await.map_err(fault)?;
        found.retain(|leftover| !matches!(leftover, Leftover::Folder { .. }));
        found.extend(sweeper.find(&recorded).await.map_err(fault)?);
        for leftover in found {
            match (sweeper.remove(&leftover).await, &leftover) {
                (Ok(()), _) => {}
                // A folder that a guest made irremovable does not keep the other workspaces waiting.
                (Err(error), Leftover::Folder { path }) => {
                    let path = path.display();
                    tracing::error!(%error, %path, "a folder of no workspace stays until the next start");
                    continue;
                }
                (Err(error), _) => return Err(fault(error)),
            }
            tracing::warn!(?leftover, "removed what an interrupted operation left");
            self.shared.publish(
                "leftover.removed",
                "host",
                json!({ "what": format!("{leftover:?}") }),
            );
        }
        Ok(())
    }

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
        let args = state::Args {
            id,
            shared: self.shared.clone(),
            manager: Arc::new(self.me.address.clone()),
        };
        // Names are claimed in the directory.
        let _no_name_here = self.workspaces.insert(id, WorkspaceMember);
        self.workspaces.start_at(id, &address, args)?;
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
