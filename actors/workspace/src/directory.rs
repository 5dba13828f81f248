//! A directory of all workspaces, readable without asking an actor.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use dashmap::DashMap;
use hivekeep_kernel::{
    Address, Layer, SessionId, SnapshotId, Target, ToolError, User, WorkspaceId, serve,
};

use crate::{
    codes,
    lifetime::{Lifetime, WorkspaceLabels},
    messages::Msg,
    name::WorkspaceName,
    phase::{MachineProcess, Phase},
    records::{Planned, Pooled, WorkspaceSpec},
};

/// Summary of a workspace.
#[derive(Debug, Clone)]
pub(crate) struct DirectoryEntry {
    pub(crate) id: WorkspaceId,
    pub(crate) name: WorkspaceName,
    pub(crate) phase: Phase,
    pub(crate) process: MachineProcess,
    pub(crate) owner: Option<SessionId>,
    /// The user of whoever owned it last.
    pub(crate) user: Option<User>,
    /// The session whose call the workspace was made for.
    pub(crate) planned_by: SessionId,
    /// Set while the workspace is the pool's.
    pub(crate) pool: Option<Pooled>,
    pub(crate) spec: WorkspaceSpec,
    pub(crate) slot: u32,
    /// The snapshot that the workspace is a fork of.
    pub(crate) fork_of: Option<SnapshotId>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) labels: Arc<WorkspaceLabels>,
    pub(crate) lifetime: Option<Lifetime>,
    /// The workspace runs, and is parked once it has been idle for long enough.
    pub(crate) parks_when_idle: bool,
    pub(crate) address: Address<Msg>,
}

/// Cards by id and ids by name. Cheap to clone. Written by the manager, which adds and removes cards,
/// and by each workspace (its own card); read by anyone.
#[derive(Debug, Clone, Default)]
pub struct WorkspaceDirectory {
    cards: Arc<DashMap<WorkspaceId, DirectoryEntry>>,
    names: Arc<DashMap<WorkspaceName, WorkspaceId>>,
    slots: Arc<DashMap<u32, WorkspaceId>>,
}

impl WorkspaceDirectory {
    /// Claims a name.
    ///
    /// # Errors
    /// `name_taken`.
    pub(crate) fn claim(&self, name: &WorkspaceName, id: WorkspaceId) -> Result<(), ToolError> {
        match self.names.entry(name.clone()) {
            dashmap::Entry::Occupied(taken) if *taken.get() != id => {
                Err(name_taken(name, *taken.get()))
            }
            entry => {
                entry.insert(id);
                Ok(())
            }
        }
    }

    /// Moves a claimed name from one workspace to another.
    pub(crate) fn hand_over(&self, name: &WorkspaceName, from: WorkspaceId, to: WorkspaceId) {
        if let Some(mut holder) = self.names.get_mut(name).filter(|holder| **holder == from) {
            *holder = to;
        }
    }

    /// Whether a workspace has, or is being given, this name.
    pub(crate) fn is_taken(&self, name: &WorkspaceName) -> bool {
        self.names.contains_key(name)
    }

    /// Names of the forks of each snapshot.
    pub(crate) fn forks_by_snapshot(&self) -> BTreeMap<SnapshotId, Vec<String>> {
        let mut forks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for card in self.cards() {
            if let (Some(snapshot), true) = (card.fork_of, card.phase != Phase::Failed) {
                forks.entry(snapshot).or_default().push(card.name.to_string());
            }
        }
        forks
    }

    /// Takes the lowest free slot below `most`.
    pub(crate) fn take_slot(&self, id: WorkspaceId, most: usize) -> Option<u32> {
        (0..u32::try_from(most).unwrap_or(u32::MAX)).find(|slot| self.hold_slot(*slot, id))
    }

    fn hold_slot(&self, slot: u32, id: WorkspaceId) -> bool {
        match self.slots.entry(slot) {
            dashmap::Entry::Occupied(taken) => *taken.get() == id,
            dashmap::Entry::Vacant(free) => {
                free.insert(id);
                true
            }
        }
    }

    /// Takes the name and slot of a recorded workspace. Two records with one name
    /// cannot be: the name was claimed before the record was written.
    pub(crate) fn claim_recorded(&self, plan: &Planned) -> Result<(), ToolError> {
        // A machine of the pool has a name for its guest only.
        if plan.pool.is_none() {
            self.claim(&plan.name, plan.id)?;
        }
        if self.hold_slot(plan.slot, plan.id) {
            return Ok(());
        }
        Err(ToolError::internal(format!("slot {} is recorded twice", plan.slot)))
    }

    /// Gives name and slot back, as far as they are this workspace's.
    pub(crate) fn release(&self, plan: &Planned) {
        self.names.remove_if(&plan.name, |_, holder| *holder == plan.id);
        self.slots.remove_if(&plan.slot, |_, holder| *holder == plan.id);
    }

    /// Whether a workspace has its card.
    pub(crate) fn knows(&self, id: WorkspaceId) -> bool {
        self.cards.contains_key(&id)
    }

    pub(crate) fn insert(&self, card: DirectoryEntry) {
        self.cards.insert(card.id, card);
    }

    pub(crate) fn update(&self, id: WorkspaceId, change: impl FnOnce(&mut DirectoryEntry)) {
        if let Some(mut card) = self.cards.get_mut(&id) {
            change(&mut card);
        }
    }

    /// Removes a workspace with its name and slot.
    pub(crate) fn remove(&self, id: WorkspaceId) {
        if let Some((_, card)) = self.cards.remove(&id) {
            // A name may be claimed for the workspace before its card has it.
            self.names.retain(|_, holder| *holder != id);
            self.slots.remove_if(&card.slot, |_, holder| *holder == id);
        }
    }

    /// The cards of all workspaces except the pool's, oldest first.
    pub(crate) fn cards(&self) -> Vec<DirectoryEntry> {
        self.all().into_iter().filter(|card| card.pool.is_none()).collect()
    }

    /// The pool's cards, oldest first.
    pub(crate) fn pooled(&self) -> Vec<DirectoryEntry> {
        self.all().into_iter().filter(|card| card.pool.is_some()).collect()
    }

    /// All cards, oldest first.
    pub(crate) fn all(&self) -> Vec<DirectoryEntry> {
        let mut cards: Vec<_> = self.cards.iter().map(|card| card.clone()).collect();
        cards.sort_by_key(|card| card.id);
        cards
    }

    /// All workspaces except the pool's, with their users and owners, in no order.
    pub(crate) fn owners(&self) -> Vec<(WorkspaceId, Option<User>, Option<SessionId>)> {
        let everybodys = self.cards.iter().filter(|card| card.pool.is_none());
        everybodys.map(|card| (card.id, card.user, card.owner)).collect()
    }

    /// Addresses of workspaces whose lifetime is over.
    pub(crate) fn over(&self, now: DateTime<Utc>) -> Vec<Address<Msg>> {
        let due = |card: &DirectoryEntry| card.lifetime.is_some_and(|it| it.is_due(now));
        self.cards.iter().filter(|card| due(card)).map(|card| card.address.clone()).collect()
    }

    /// Addresses of running workspaces that are parked when idle.
    pub(crate) fn may_idle(&self) -> Vec<Address<Msg>> {
        let runs = self.cards.iter().filter(|card| card.parks_when_idle);
        runs.map(|card| card.address.clone()).collect()
    }

    /// The card of an id, the pool's included.
    pub(crate) fn any(&self, id: WorkspaceId) -> Option<DirectoryEntry> {
        self.cards.get(&id).map(|card| card.clone())
    }

    /// The card of an id or a unique name. Machines of the pool are not found.
    ///
    /// # Errors
    /// `workspace_not_found`.
    pub(crate) fn card(&self, id_or_name: &str) -> Result<DirectoryEntry, ToolError> {
        let id = id_or_name.parse().ok().or_else(|| {
            let name: WorkspaceName = id_or_name.parse().ok()?;
            self.names.get(&name).map(|id| *id)
        });
        id.and_then(|id| self.any(id))
            .filter(|card| card.pool.is_none())
            .ok_or_else(|| unknown(id_or_name))
    }
}

/// Refusal of a name that another workspace has.
pub(crate) fn name_taken(name: &WorkspaceName, by: WorkspaceId) -> ToolError {
    let message = format!("a workspace named `{name}` exists");
    ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
        .next("choose another name, or leave it out")
        .detail("workspace_id", by.to_string())
}

/// Refusal of a workspace that does not exist, or is another user's.
pub(crate) fn unknown(id_or_name: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::WORKSPACE_NOT_FOUND, "workspace", id_or_name)
        .next("workspace_list shows the workspaces there are")
}

impl serve::ActorDirectory for WorkspaceDirectory {
    fn find(&self, id_or_name: &str) -> Result<Arc<dyn Target>, ToolError> {
        Ok(Arc::new(self.card(id_or_name)?.address))
    }
}
