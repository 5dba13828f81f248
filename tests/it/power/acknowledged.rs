//! A model of what clients were answered: the notes and sessions that have to be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use hivekeep_mcp_client::Error;
use serde_json::json;

use super::load::attach;
use crate::home::Home;

pub(crate) type Log = Arc<Mutex<Acknowledged>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged {
    pub(crate) notes: BTreeMap<String, Note>,
    pub(crate) sessions: BTreeSet<String>,
}

/// A note, whole, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Note {
    pub(crate) done: Option<String>,
    /// What was asked for since and not answered.
    pub(crate) going: Vec<Option<String>>,
}

impl Acknowledged {
    /// Fails unless a daemon has all of it.
    pub(crate) fn check(&self, home: &Home) {
        let rows = home.json(&["sessions", "--json"]);
        let rows = rows.as_array().expect("rows").iter();
        let listed: BTreeSet<_> = rows.filter_map(|row| row["session"].as_str()).collect();
        let missing: Vec<_> =
            self.sessions.iter().filter(|id| !listed.contains(id.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?} of {} sessions are gone", self.sessions.len());
        let client = attach(home).expect("it listens");
        for (path, note) in &self.notes {
            let read = json!({"action": "read", "path": path});
            let found = match client.call("vault", read) {
                Ok(read) => Some(read["content"].as_str().expect("a text").to_owned()),
                Err(Error::Refused { text, .. }) if text.contains("not_found") => None,
                Err(error) => panic!("{path}: {error}"),
            };
            let good = found == note.done || note.going.contains(&found);
            assert!(good, "{path} is {found:.80?} and not {note:.80?}");
        }
    }
}
