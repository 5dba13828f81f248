//! Recovery of all workspaces when the manager starts: records first, then the world.

use std::{collections::HashSet, fmt::Display};

use hivekeep_kernel::Fault;
use hivekeep_machine::sweep::Leftover;
use hivekeep_runtime::log::Decision;
use serde_json::json;
use tokio::sync::oneshot;

use crate::{backup, ledger::Ledger, manager::Workspaces, records::Record, snapshots::files};

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
}
