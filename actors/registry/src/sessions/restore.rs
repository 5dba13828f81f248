//! Sessions from before a restart of the daemon.

use std::sync::Arc;

use hivekeep_kernel::{Address, Census, Resources, SessionId};
use hivekeep_runtime::{
    collection::CollectionMember,
    log::{self, Log, LogError},
};
use hivekeep_store::Journal;

use super::{
    Msg, SessionShared, SessionsHandle, SessionsSeed, handle::SessionTable, records::Recorded,
    session, supervisor::SessionMember,
};
use crate::Options;

impl SessionsHandle {
    /// Reads all sessions back. Whoever was attached is detached now, with the
    /// whole grace time to come back: the daemon's own absence does not count.
    ///
    /// The handle is good at once, before the supervisor runs, so actors may ask
    /// for standings and restore reserves as they start. All sessions together get `room` and no
    /// more. Blocks: call it from `spawn_blocking`.
    ///
    /// # Errors
    /// When a stream is unreadable. Nothing is changed then.
    pub fn restore(
        options: &Options,
        room: Resources,
        journal: Journal,
        census: Census,
        supervisor: Address<Msg>,
    ) -> Result<(Self, SessionsSeed), LogError> {
        let events = journal.events();
        let table =
            Arc::new(SessionTable::new(options, room, (journal, events), census, supervisor));
        table.read_counts()?;
        let parent = table.supervisor.probe().path();
        // A stream without a record is passed over: nothing of it was acknowledged.
        let streams = log::load_all::<Recorded>(&table.journal)?;
        for stream in streams.stray {
            let failed = |source| LogError::Journal { stream: stream.clone(), source };
            if !table.journal.replay(&stream).map_err(failed)?.records.is_empty() {
                let what = "it ends before it is opened".to_owned();
                return Err(LogError::Unreadable { stream, what });
            }
        }
        for (stream, loaded) in streams.loaded {
            let id: SessionId = stream.id().parse().map_err(|error| {
                let what = format!("{error}");
                LogError::Unreadable { stream: stream.clone(), what }
            })?;
            let recorded = loaded.state.clone();
            let log = Log::of(table.journal.clone(), stream, Some(loaded));
            let (account, address) =
                (table.account(recorded.user), address(&table.census, parent, id));
            let session = SessionShared::new(id, recorded.about, account, options, address, log);
            session.tell_attached(false);
            session.toolsets.send_replace(recorded.toolsets);
            session.bind(recorded.profile);
            // Use of the session is not written, so it counts as used.
            session.mark_used();
            if let Some((at, reason)) = recorded.ended {
                session.end(at, reason);
            }
            table.sessions.insert(id, Arc::new(session));
        }
        Ok((Self(table.clone()), SessionsSeed(table)))
    }
}

/// Address of a session's actor, before there is a supervisor to start it.
fn address(census: &Census, parent: &str, id: SessionId) -> Address<session::Msg> {
    Address::vacant(census.probe(
        &format!("{parent}/{id}"),
        SessionMember::KIND,
        SessionMember::RESTART,
    ))
}
