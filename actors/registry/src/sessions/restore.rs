//! Sessions from before a restart of the daemon.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{Address, Census, Resources, RestartPolicy, SessionId};
use hivekeep_store::{Journal, StreamId};

use super::{
    EndReason, Msg, SessionShared, SessionsHandle, SessionsSeed, User,
    handle::SessionTable,
    records::{KIND, Record},
    session,
    shared::About,
};
use crate::Options;

/// Why the sessions cannot be restored. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] hivekeep_store::Error),
    /// A stream that this version does not understand.
    #[error("the session stream {stream} is unreadable: {what}")]
    Unreadable {
        /// The stream.
        stream: StreamId,
        /// What was found.
        what: String,
    },
}

/// What a session's stream says.
struct Told {
    about: About,
    user: User,
    ended: Option<(DateTime<Utc>, EndReason)>,
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
    ) -> Result<(Self, SessionsSeed), SessionsError> {
        let events = journal.events();
        let house =
            Arc::new(SessionTable::new(options, room, (journal, events), census, supervisor));
        let SessionTable { journal, census, supervisor, faces, .. } = &*house;
        for stream in journal.streams(&format!("{KIND}/"))? {
            let unreadable =
                |what: String| SessionsError::Unreadable { stream: stream.clone(), what };
            let id: SessionId =
                stream.id().parse().map_err(|error| unreadable(format!("{error}")))?;
            let replay = journal.replay(&stream)?;
            // Empty: nothing of it was acknowledged.
            let Some(told) =
                read(replay.records.into_iter().map(|(_, bytes)| bytes)).map_err(unreadable)?
            else {
                continue;
            };
            let address = address(census, supervisor.probe().path(), id);
            let face =
                SessionShared::new(id, told.about, house.account(told.user), options, address);
            face.tell_attached(false);
            // What it did is not written.
            face.mark_used();
            if let Some((at, reason)) = told.ended {
                face.end(at, reason);
            }
            faces.insert(id, Arc::new(face));
        }
        Ok((Self(house.clone()), SessionsSeed(house)))
    }
}

/// Where a session's actor lives, whether it runs or not.
pub(super) fn address(census: &Census, parent: &str, id: SessionId) -> Address<session::Msg> {
    Address::vacant(census.probe(&format!("{parent}/{id}"), "session", RestartPolicy::ENTITY))
}

fn read(records: impl Iterator<Item = Vec<u8>>) -> Result<Option<Told>, String> {
    let mut told: Option<Told> = None;
    for bytes in records {
        let record = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        match (record, &mut told) {
            (Record::Opened { door, client, name, user, at }, None) => {
                let about = About { door, client, name, opened_at: at };
                let user = user.unwrap_or_else(|| User::before_users(door));
                told = Some(Told { about, user, ended: None });
            }
            (Record::Ended { reason, at }, Some(told)) => {
                // A crash between the record and its acknowledgement may have
                // written it twice; the first is the one that counted.
                told.ended.get_or_insert((at, reason));
            }
            (Record::Opened { .. }, Some(_)) => return Err("it is opened twice".to_owned()),
            (Record::Ended { .. }, None) => return Err("it ends before it is opened".to_owned()),
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::Door;

    use super::*;

    fn opened() -> Vec<u8> {
        let (door, client) = (Door::Cli, "me".to_owned());
        let user = Some(User::Uid(7));
        Record::Opened { door, client, name: None, user, at: Utc::now() }.encode()
    }

    fn ended(reason: EndReason) -> Vec<u8> {
        Record::Ended { reason, at: Utc::now() }.encode()
    }

    #[test]
    fn a_record_from_before_there_were_users_is_read() {
        let old = |door: &str| {
            let record = format!(
                r#"{{"record":"opened","door":"{door}","client":"x","at":"2026-01-01T00:00:00Z"}}"#
            );
            read([record.into_bytes()].into_iter()).expect("reads").expect("opened").user
        };
        assert_eq!(old("mcp_http"), User::Bearer);
        assert!(matches!(old("mcp_stdio"), User::Uid(_)));
        let new = read([opened()].into_iter()).expect("reads").expect("opened");
        assert_eq!(new.user, User::Uid(7));
    }

    #[test]
    fn a_stream_is_read_or_refused_never_guessed() {
        let open = read([opened()].into_iter()).expect("reads").expect("opened");
        assert!(open.ended.is_none());
        let twice = [opened(), ended(EndReason::Told), ended(EndReason::GraceOver)];
        let over = read(twice.into_iter()).expect("reads").expect("opened").ended.expect("over");
        assert_eq!(over.1, EndReason::Told);
        assert!(read([].into_iter()).expect("reads").is_none());
        for bad in [
            vec![opened(), opened()],
            vec![ended(EndReason::Told)],
            vec![opened(), b"{}".to_vec()],
            vec![b"\xff".to_vec()],
        ] {
            assert!(read(bad.into_iter()).is_err());
        }
    }
}
