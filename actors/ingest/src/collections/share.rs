//! Collections that are given to workspaces to read, and taken back.

use hivekeep_kernel::{Layer, ToolError, User, WorkspaceId};
use hivekeep_runtime::log::{Decision, LogError};

use super::{Collections, Removal, member::key};
use crate::{codes, refuse::no_collection, state::Record};

/// Workspaces that a collection is given to at a time.
const MOST_READERS: usize = 256;

/// Change of who may read a collection.
#[derive(Debug, Clone)]
pub(crate) enum Sharing {
    /// These may.
    With(Vec<WorkspaceId>),
    /// These may not any more.
    TakenBack(Vec<WorkspaceId>),
}

/// Why it is not changed.
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
