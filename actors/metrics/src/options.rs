//! Section `[metrics]`.

use std::path::PathBuf;

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::segment::PIECE_BYTES;

/// Metrics: what is kept of them, and where they are written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Days (UTC) that are kept. A query reaches back 365 days at most.
    #[schemars(range(min = 1, max = 3660))]
    pub keep_days: u32,
    /// The most records of one day, of all users together; of one user at most half of them.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_records_per_day: u64,
    /// The most that the records of one day may take, as JSON, and of one user half of it; on disk it is a
    /// fraction of that.
    #[schemars(range(min = 1, max = 4096))]
    pub max_mb_per_day: u64,
    /// The largest `data` of a record.
    #[schemars(range(min = 1, max = 64))]
    pub max_data_kb: usize,
    /// Whether the daemon's own events (calls that finished, workspaces, tasks) are counted too, where only
    /// operators see them. Each takes some bytes of disk for as long as days are kept.
    pub daemon_events: bool,
    /// A database that everything is written to as well.
    pub influx: InfluxOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_days: 366,
            max_records_per_day: 100_000,
            max_mb_per_day: 32,
            max_data_kb: 8,
            daemon_events: false,
            influx: InfluxOptions::default(),
        }
    }
}

/// InfluxDB: of 1.x a `database`, of 2.x an `org` and a `bucket`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InfluxOptions {
    /// URL of the server, as `http://127.0.0.1:8086`. Unset: nothing is written.
    pub url: Option<String>,
    /// Organisation, of 2.x.
    pub org: Option<String>,
    /// Bucket, of 2.x.
    pub bucket: Option<String>,
    /// File with the token, of 2.x. Read at each write.
    pub token_file: Option<PathBuf>,
    /// Database, of 1.x. It must exist.
    pub database: Option<String>,
    /// User, of 1.x with authentication.
    pub user: Option<String>,
    /// File with the user's password, of 1.x. Read at each write.
    pub password_file: Option<PathBuf>,
    /// File with certificates (PEM) of authorities that are trusted beside the host's.
    pub ca_file: Option<PathBuf>,
    /// Name of the measurement.
    pub measurement: String,
    /// The most points in one write.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch_points: usize,
    /// How long a write may take.
    #[schemars(range(min = 1, max = 600))]
    pub timeout_secs: u64,
}

impl Default for InfluxOptions {
    fn default() -> Self {
        Self {
            url: None,
            org: None,
            bucket: None,
            token_file: None,
            database: None,
            user: None,
            password_file: None,
            ca_file: None,
            measurement: "hivekeep".to_owned(),
            batch_points: 500,
            timeout_secs: 10,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        self.influx.problems()
    }

    fn store_problems(&self, store: &hivekeep_store::Options) -> Vec<(&'static str, String)> {
        let most = PIECE_BYTES / 1024 + 1;
        match store.max_record_kb < most {
            true => vec![("max_record_kb", format!("must be at least {most} for metrics"))],
            false => Vec::new(),
        }
    }
}

impl InfluxOptions {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let Some(url) = &self.url else { return Vec::new() };
        let mut wrong = Vec::new();
        let mut add = |key, why: &str| wrong.push((key, why.to_owned()));
        match Url::parse(url) {
            Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
                add("influx.url", "must be an http or https URL");
            }
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                add("influx.url", "must not carry a credential: use `user` and `password_file`");
            }
            Ok(_) => {}
            Err(_) => add("influx.url", "is not a valid URL"),
        }
        match (&self.database, &self.org, &self.bucket) {
            (Some(_), None, None) | (None, Some(_), Some(_)) => {}
            _ => add("influx.url", "needs `database` (1.x), or `org` and `bucket` (2.x)"),
        }
        if self.database.is_some() && self.token_file.is_some() {
            add("influx.token_file", "is of 2.x; 1.x has `user` and `password_file`");
        }
        if self.user.is_some() != self.password_file.is_some() {
            add("influx.user", "goes together with `password_file`");
        }
        let files = [&self.token_file, &self.password_file, &self.ca_file];
        if files.into_iter().flatten().any(|file| !file.is_absolute()) {
            add("influx.url", "files must have absolute paths");
        }
        if self.measurement.is_empty() || self.measurement.chars().any(char::is_control) {
            add("influx.measurement", "must be a name");
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_of_one_version_and_all_problems_are_told() {
        let with = |change: fn(&mut InfluxOptions)| {
            let mut options = Options::default();
            options.influx.url = Some("http://127.0.0.1:8086".to_owned());
            change(&mut options.influx);
            options.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(with(|it| it.database = Some("d".to_owned())), [""; 0]);
        assert_eq!(with(|_| ()), ["influx.url"]);
        assert_eq!(
            with(|it| (it.org, it.bucket) = (Some("o".to_owned()), Some("b".to_owned()))),
            [""; 0]
        );
        assert_eq!(with(|it| it.org = Some("o".to_owned())), ["influx.url"]);
        let credential = |it: &mut InfluxOptions| {
            it.database = Some("d".to_owned());
            it.url = Some("http://me:pw@127.0.0.1:8086".to_owned());
        };
        assert_eq!(with(credential), ["influx.url"]);
        assert_eq!(Options::default().problems(), []);
    }
}
