//! Entry of the manager for one collection.

use hivekeep_kernel::User;
use hivekeep_runtime::{
    collection::CollectionMember,
    log::Log,
    saga::{SagaActor, SagaHandle},
};

use super::{Removal, begin::Wish};
use crate::{ingestion::Ingestion, point::CollectionId, state::CollectionState};

/// A collection as its manager has it.
pub(super) struct CollectionEntry {
    pub(super) owner: User,
    /// Owner and name.
    key: String,
    pub(super) log: Log<CollectionState>,
    /// The ingestion that runs or has just ended.
    pub(super) handle: Option<SagaHandle<Ingestion>>,
    /// Whether the beginning of an ingestion, or the removal of the collection, is being written.
    pub(super) beginning: bool,
    /// Whether the ingestion that begins is to watch.
    pub(super) watches: bool,
    /// Reply to a removal that waits for the end of the ingestion.
    pub(super) removal: Option<Removal>,
    /// Ingestion that begins when the actor of the previous one has ended.
    pub(super) waiting: Option<Box<Wish>>,
}

impl CollectionEntry {
    pub(super) fn new(owner: User, name: &str, log: Log<CollectionState>) -> Self {
        Self {
            owner,
            key: key(owner, name),
            log,
            handle: None,
            beginning: false,
            watches: false,
            removal: None,
            waiting: None,
        }
    }
}

impl CollectionMember for CollectionEntry {
    type Id = CollectionId;
    type Actor = SagaActor<Ingestion>;
    const KIND: &'static str = "ingestion";

    fn name(&self) -> Option<&str> {
        Some(&self.key)
    }
}

/// Unique name of a user's collection.
pub(super) fn key(owner: User, name: &str) -> String {
    format!("{owner}/{name}")
}
