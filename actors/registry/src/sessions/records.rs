//! An event-sourced session: its records, in its stream `session/<id>`, what they add up to, and
//! sessions that are restored from them after a restart of the daemon.

use std::{collections::BTreeSet, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Address, Census, Door, Resources, SessionId, User};
use hivekeep_policy::SessionProfile;
use hivekeep_runtime::{
    collection::CollectionMember,
    log::{self, Log, LogError, Sourced},
};
use hivekeep_store::{Journal, StreamId};
use serde::{Deserialize, Serialize};

use super::{
    EndReason, Msg, SessionShared, SessionsArgs, SessionsHandle, handle::SessionTable, session,
    shared::About, supervisor::SessionMember,
};
use crate::Options;

/// Record of a session. Attaching and detaching are not written: after a restart of the
/// daemon every session is detached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Opened {
        door: Door,
        client: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Not written by daemons that knew no users.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<User>,
        /// Not written when nothing is bound.
        #[serde(default, skip_serializing_if = "SessionProfile::is_empty")]
        profile: SessionProfile,
        at: DateTime<Utc>,
    },
    /// Profile of the session from now on.
    Bound {
        profile: SessionProfile,
        at: DateTime<Utc>,
    },
    /// Families whose tools its clients are listed from now on.
    ToolsetsLoaded {
        toolsets: Vec<String>,
        at: DateTime<Utc>,
    },
    Ended {
        reason: EndReason,
        at: DateTime<Utc>,
    },
}

/// A session as its records tell it.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(super) about: About,
    pub(super) user: User,
    pub(super) toolsets: BTreeSet<String>,
    pub(super) profile: SessionProfile,
    pub(super) ended: Option<(DateTime<Utc>, EndReason)>,
}

/// The user of a session whose door did not write it down: the sockets let in the daemon's own user
/// and nobody else but root.
fn before_users(door: Door) -> User {
    match door {
        Door::McpHttp => User::Bearer,
        _ => User::Uid(rustix::process::geteuid().as_raw()),
    }
}

pub(crate) type SessionLog = Log<Recorded>;

impl Sourced for Recorded {
    const KIND: &'static str = "session";
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        let Record::Opened { door, client, name, user, profile, at } = record else {
            return Err(record);
        };
        let about = About { door, client, name, opened_at: at };
        let user = user.unwrap_or_else(|| before_users(door));
        Ok(Self { about, user, toolsets: BTreeSet::new(), profile, ended: None })
    }

    /// A daemon that crashed between the record of an end and its acknowledgement may have written
    /// the end twice; the first is the one that counted.
    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::ToolsetsLoaded { toolsets, .. } => self.toolsets.extend(toolsets),
            Record::Bound { profile, .. } => self.profile = profile,
            Record::Ended { reason, at } => drop(self.ended.get_or_insert((at, reason))),
            Record::Opened { .. } => return Err(record),
        }
        Ok(())
    }
}

pub(super) fn stream(id: SessionId) -> StreamId {
    log::stream::<Recorded>(id).expect("an id has only letters, digits and `_`")
}

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
    ) -> Result<(Self, SessionsArgs), LogError> {
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
        Ok((Self(table.clone()), SessionsArgs(table)))
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

#[cfg(test)]
mod tests {
    use hivekeep_runtime::log::LogRecord;

    use super::*;

    fn opened() -> Record {
        let user = Some(User::Uid(7));
        Record::Opened {
            door: Door::Cli,
            client: "me".to_owned(),
            name: None,
            user,
            profile: SessionProfile::default(),
            at: Utc::now(),
        }
    }

    fn ended(reason: EndReason) -> Record {
        Record::Ended { reason, at: Utc::now() }
    }

    #[test]
    fn a_record_from_before_there_were_users_is_read() {
        let old = |door: &str| {
            let record = format!(
                r#"{{"record":"opened","door":"{door}","client":"x","at":"2026-01-01T00:00:00Z"}}"#
            );
            let record = Record::decode(record.as_bytes()).expect("reads");
            Recorded::begin(record).expect("opened").user
        };
        assert_eq!(old("mcp_http"), User::Bearer);
        assert!(matches!(old("mcp_stdio"), User::Uid(_)));
        assert_eq!(Recorded::begin(opened()).expect("opened").user, User::Uid(7));
    }

    #[test]
    fn a_session_is_opened_once_and_ends_once() {
        let mut session = Recorded::begin(opened()).expect("opened");
        assert!(session.ended.is_none());
        session.apply(ended(EndReason::Told)).expect("ends");
        session.apply(ended(EndReason::GraceOver)).expect("written twice");
        assert_eq!(session.ended.expect("over").1, EndReason::Told);
        assert!(session.apply(opened()).is_err());
        assert!(Recorded::begin(ended(EndReason::Told)).is_err());
        for nonsense in [&b"{}"[..], b"\xff"] {
            assert!(Record::decode(nonsense).is_err());
        }
    }
}
