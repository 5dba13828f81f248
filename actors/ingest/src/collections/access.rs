//! Access to collections: a user's sessions read its own, and a workspace's owner those that were given to the
//! workspace; owners give them, and take them back.

use hivekeep_kernel::{Layer, ToolError, User, WorkspaceId};
use hivekeep_runtime::log::{Decision, LogError};

use super::{CollectionEntry, Collections, Removal, key, no_collection};
use crate::{
    codes,
    ingestion::IngestionProgress,
    point::CollectionId,
    shared::Reader,
    state::{CollectionState, Record},
};

/// Workspaces that a collection is given to at a time.
const MOST_READERS: usize = 256;

/// Collection as a reader sees it.
pub(crate) struct SeenCollection {
    pub(crate) state: CollectionState,
    /// Progress of the running ingestion.
    pub(crate) live: Option<IngestionProgress>,
    /// Whether the collection is another user's, shared with a workspace of the session.
    pub(crate) given: bool,
}

/// Change of who may read a collection.
#[derive(Debug, Clone)]
pub(crate) enum Sharing {
    /// These may.
    With(Vec<WorkspaceId>),
    /// These may not any more.
    TakenBack(Vec<WorkspaceId>),
}

/// Why the readers of a collection are not changed.
enum NotShared {
    Deleted,
    Full,
    Log(LogError),
}

impl From<LogError> for NotShared {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl Collections {
    /// The user's own collection.
    ///
    /// # Errors
    /// `collection_not_found`.
    pub(super) fn find(&self, user: User, name: &str) -> Result<CollectionState, ToolError> {
        let entry = self.all.find_name(&key(user, name)).map(|(_, entry)| entry);
        let state = entry.and_then(|entry| entry.log.state()).filter(|state| !state.deleted);
        state.ok_or_else(|| no_collection(name))
    }

    /// The reader's own collection of a name, or else one that was given, by its name or id.
    ///
    /// # Errors
    /// `collection_not_found`; `collection_ambiguous`.
    pub(super) fn readable(&self, by: Reader, name: &str) -> Result<CollectionState, ToolError> {
        if let Ok(own) = self.find(by.user, name) {
            return Ok(own);
        }
        let is =
            |state: &CollectionState| state.made.name == name || state.made.id.to_string() == name;
        let mut given = self.given(by).map(|(_, state)| state).filter(is);
        match (given.next(), given.next()) {
            (Some(state), None) => Ok(state),
            (Some(_), Some(_)) => {
                let message = format!("several users gave you a collection `{name}`");
                Err(ToolError::new(Layer::Actor, codes::COLLECTION_AMBIGUOUS, message)
                    .next("name it by its id; rag_collections shows it"))
            }
            (None, _) => Err(no_collection(name)),
        }
    }

    /// Number of a user's collections, those that are being made and removed included.
    pub(super) fn owned(&self, user: User) -> usize {
        self.all.iter().filter(|(_, entry)| entry.owner == user).count()
    }

    /// All that a reader may read: its own by name, then those that were given.
    pub(super) fn list(&self, by: Reader) -> Vec<SeenCollection> {
        let live = |entry: &CollectionEntry| {
            entry.handle.as_ref().map(|handle| handle.view(|view| view.live.clone()))
        };
        let own = self.all.iter().filter_map(|(_, entry)| {
            let state = entry.log.state().filter(|state| state.made.owner == by.user)?;
            Some(SeenCollection { state, live: live(entry), given: false })
        });
        let given = self.given(by).map(|(id, state)| {
            let live = self.all.get(id).and_then(live);
            SeenCollection { state, live, given: true }
        });
        let mut all: Vec<_> = own.chain(given).collect();
        all.sort_by_key(|seen| (seen.given, seen.state.made.name.clone()));
        all
    }

    /// Collections of others that were given to workspaces of the reader's session.
    fn given(&self, by: Reader) -> impl Iterator<Item = (CollectionId, CollectionState)> + '_ {
        let files = self.shared.workspaces.as_ref();
        let owns = move |state: &CollectionState| {
            state.readers.iter().any(|reader| {
                let found = files.and_then(|files| files.find(&reader.to_string()));
                found.is_some_and(|found| found.owner == Some(by.session))
            })
        };
        self.all.iter().filter_map(move |(id, entry)| {
            let shared = |state: &&CollectionState| {
                !state.deleted && state.made.owner != by.user && !state.readers.is_empty()
            };
            // Most collections are not shared, and are not copied.
            let state = entry.log.view(|state| state.filter(shared).cloned())?;
            owns(&state).then_some((id, state))
        })
    }

    pub(super) fn share(&mut self, user: User, name: &str, sharing: Sharing, reply: Removal) {
        let entry = self.all.find_name(&key(user, name)).map(|(_, entry)| entry);
        let Some(entry) = entry else { return drop(reply.send(Err(no_collection(name)))) };
        let written = entry.log.decide::<NotShared>(|state| {
            let state = state.filter(|state| !state.deleted).ok_or(NotShared::Deleted)?;
            let record = match sharing {
                Sharing::With(mut more) => {
                    more.retain(|reader| !state.readers.contains(reader));
                    if state.readers.len() + more.len() > MOST_READERS {
                        return Err(NotShared::Full);
                    }
                    (!more.is_empty()).then_some(Record::Shared(more))
                }
                Sharing::TakenBack(mut fewer) => {
                    fewer.retain(|reader| state.readers.contains(reader));
                    (!fewer.is_empty()).then_some(Record::TakenBack(fewer))
                }
            };
            Ok(record.map_or_else(Decision::nothing, Decision::record))
        });
        let name = name.to_owned();
        let _detached = self.me.workers.spawn(async move {
            let outcome = match written {
                Ok(written) => written.await.map_err(ToolError::from),
                Err(NotShared::Deleted) => Err(no_collection(&name)),
                Err(NotShared::Full) => Err(too_many(&name)),
                Err(NotShared::Log(error)) => Err(error.into()),
            };
            // The asker may have gone.
            drop(reply.send(outcome));
        });
    }
}

fn too_many(name: &str) -> ToolError {
    let message = format!("`{name}` would be given to more than {MOST_READERS} workspaces");
    ToolError::new(Layer::Actor, codes::TOO_MANY_READERS, message)
        .next("take it back from workspaces that are gone; rag_collections names them")
}
