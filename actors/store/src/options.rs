//! Options of the journal.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Maximum size of a value: it has at most 65,536 pieces of 4 KiB; this stays clear of that.
const MAX_VALUE_KB: usize = 128 * 1024;

/// How the journal is kept. Every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The state directory. It holds `STORE`, `HEAD`, `LOCK` and `journal/`,
    /// and belongs to one process at a time. Not a key: the daemon chooses it.
    #[serde(skip)]
    pub dir: PathBuf,
    /// The database's page cache. Its own default of 1 GiB is too much for a
    /// daemon that shares its machine with VMs.
    pub cache_mb: u64,
    /// The most requests one commit takes. More make a commit longer, fewer
    /// share each fsync among fewer callers.
    pub commit_max_records: usize,
    /// The most requests that wait for the writer; callers beyond it wait.
    pub queue_records: usize,
    /// The most memory that waiting requests hold; callers beyond it wait.
    pub queue_mb: usize,
    /// The largest record or event.
    pub max_record_kb: usize,
    /// The largest snapshot of a stream. Cannot exceed `queue_mb`.
    pub max_snapshot_kb: usize,
    /// How many events are kept; older ones are trimmed a few at a time.
    pub events_kept: u64,
    /// How far the slowest live subscriber may fall behind before it is told
    /// that it missed a range.
    pub events_buffered: usize,
    /// The journal is compacted, while it runs too, once it takes more on disk than
    /// twice what lives in it plus this. So it stays below three times what lives in it
    /// plus this plus 32 MiB; for as long as it is compacted, a copy of about twice what
    /// lives in it lies beside it.
    pub compact_at_mb: u64,
    /// Disk space that the journal keeps for itself, for the day on which others fill
    /// the disk: a quarter behind the end of its log, for commits, the rest in a file
    /// that is given up by a start without room. 0 keeps none.
    pub reserve_mb: u64,
    /// How long a caller waits for room and for the disk, together.
    pub append_timeout_secs: u64,
    /// How long the check of the database at start-up may take.
    pub probe_timeout_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            dir: PathBuf::from("/var/lib/hivekeep/state"),
            cache_mb: 64,
            commit_max_records: 512,
            queue_records: 4096,
            queue_mb: 64,
            max_record_kb: 1024,
            max_snapshot_kb: 16 * 1024,
            events_kept: 100_000,
            events_buffered: 1024,
            compact_at_mb: 64,
            reserve_mb: 32,
            append_timeout_secs: 30,
            probe_timeout_secs: 300,
        }
    }
}

impl Options {
    /// Defaults, in this directory.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Options { dir: dir.into(), ..Options::default() }
    }

    /// Refuses values with which the journal cannot work.
    pub fn check(&self) -> Result<(), Error> {
        let positive = [
            ("cache_mb", self.cache_mb),
            ("commit_max_records", self.commit_max_records as u64),
            ("queue_records", self.queue_records as u64),
            ("queue_mb", self.queue_mb as u64),
            ("max_record_kb", self.max_record_kb as u64),
            ("max_snapshot_kb", self.max_snapshot_kb as u64),
            ("events_kept", self.events_kept),
            ("events_buffered", self.events_buffered as u64),
            ("append_timeout_secs", self.append_timeout_secs),
            ("probe_timeout_secs", self.probe_timeout_secs),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::invalid(format!("option {name} must be above 0")));
        }
        if self.queue_mb > 4096 {
            return Err(Error::invalid("option queue_mb must be at most 4096"));
        }
        let largest_kb = self.max_record_kb.max(self.max_snapshot_kb);
        if largest_kb > (self.queue_mb * 1024).min(MAX_VALUE_KB) {
            return Err(Error::invalid(format!(
                "options max_record_kb and max_snapshot_kb must fit in queue_mb and {MAX_VALUE_KB}"
            )));
        }
        Ok(())
    }

    pub(crate) fn max_record_bytes(&self) -> usize {
        self.max_record_kb * 1024
    }

    pub(crate) fn max_snapshot_bytes(&self) -> usize {
        self.max_snapshot_kb * 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_total_and_strict() {
        let given: Options = serde_json::from_str(r#"{"events_kept": 5}"#).unwrap();
        assert_eq!(given, Options { events_kept: 5, ..Options::default() });
        given.check().unwrap();
        assert!(serde_json::from_str::<Options>(r#"{"event_kept": 5}"#).is_err());
        let zero = |name: &str| {
            let mut all = serde_json::to_value(Options::default()).unwrap();
            all[name] = 0.into();
            serde_json::from_value::<Options>(all).unwrap().check()
        };
        let all = serde_json::to_value(Options::default()).unwrap();
        for name in all.as_object().unwrap().keys() {
            let may_be = ["compact_at_mb", "reserve_mb"].contains(&name.as_str());
            assert_eq!(zero(name).is_ok(), may_be, "{name}");
        }
        let sized = |queue_mb, max_record_kb, max_snapshot_kb| {
            Options { queue_mb, max_record_kb, max_snapshot_kb, ..Options::default() }
                .check()
                .is_ok()
        };
        assert!(
            sized(4096, 1, 128 * 1024) && !sized(4097, 1, 1) && !sized(4096, 1, 128 * 1024 + 1)
        );
        assert!(sized(2, 2048, 1) && !sized(2, 2049, 1) && sized(2, 1, 2048) && !sized(2, 1, 2049));
        let kilobytes = Options { max_record_kb: 3, max_snapshot_kb: 5, ..Options::default() };
        assert_eq!((kilobytes.max_record_bytes(), kilobytes.max_snapshot_bytes()), (3072, 5120));
        assert!(Options { queue_records: 0, ..Options::default() }.check().is_err());
        assert!(Options { queue_mb: 1, ..Options::default() }.check().is_err());
    }
}
