//! Options of the registry.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use hivekeep_kernel::{Resources, User};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tiers::QuotaTier;

/// Tier of users that are given none. It limits nothing unless it is configured.
const DEFAULT_TIER: &str = "personal";

/// The way of a tool call: limits, sessions, redaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Tier of users that `user_tiers` does not name.
    pub default_tier: String,
    /// Tiers of users: `"uid:1000" = "free"`, and `bearer` for whoever has the token of the HTTP door.
    pub user_tiers: BTreeMap<User, String>,
    /// Limits of tiers, by the tier's name: `[registry.tiers.NAME]`, with `calls`, a list of
    /// `{ tools = ["fs.*"], per = "minute", most = 60 }`, and `holds`, as `{ scripts = 5 }`. The tier
    /// `personal` is there, and limits nothing unless it is set here.
    pub tiers: BTreeMap<String, QuotaTier>,
    /// Token buckets; each session has its own.
    pub rate: RateOptions,
    /// Resources that one session may hold at a time.
    pub quota: QuotaOptions,
    /// Allowance of all sessions of one user together.
    pub user: UserOptions,
    /// Share of this host that all workspaces together may take.
    pub host: HostOptions,
    /// How many calls one actor works on, and how many wait for it.
    pub admission: AdmissionOptions,
    /// How long sessions are kept.
    pub sessions: SessionOptions,
    /// Calls that outlive their client: tasks, to clients that take them.
    pub deferred: DeferredOptions,
    /// Credentials in error texts.
    pub redaction: RedactionOptions,
    /// Contents of the tool listings that clients get.
    pub listing: ListingOptions,
}

/// Contents of the tool listings that clients get.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListingOptions {
    /// List output schemas too: more than half of a listing, for clients that check results or make
    /// code of them. `hivekeep mcp --output-schemas` has them for one client, and
    /// `hivekeep tools --json` without a daemon.
    pub output_schemas: bool,
}

/// Token buckets; each session has its own. A bucket holds `burst` tokens and
/// gains `per_minute` tokens a minute. A call takes one token, or one for each
/// thing it makes or runs, all at once or none: a call for more than `burst`
/// can never pass and is told so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateOptions {
    /// Off: no call is ever refused for being too fast.
    pub enabled: bool,
    /// Tokens in the bucket for calls that make machines.
    pub create_burst: NonZeroU32,
    /// Tokens a minute for calls that make machines.
    pub create_per_minute: NonZeroU32,
    /// Tokens in the bucket for calls that run commands.
    pub exec_burst: NonZeroU32,
    /// Tokens a minute for calls that run commands.
    pub exec_per_minute: NonZeroU32,
    /// Tokens in the bucket for calls that read, search or change files: an agent's day has thousands.
    pub file_burst: NonZeroU32,
    /// Tokens a minute for calls that read, search or change files.
    pub file_per_minute: NonZeroU32,
    /// Tokens in the bucket for all other calls.
    pub default_burst: NonZeroU32,
    /// Tokens a minute for all other calls.
    pub default_per_minute: NonZeroU32,
}

/// Resources that one session may hold at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaOptions {
    /// Workspaces.
    pub max_workspaces: u64,
    /// Memory of its workspaces together, in MiB.
    pub max_memory_mb: u64,
    /// Disk of its workspaces together, in GiB.
    pub max_disk_gb: u64,
}

/// Allowance of all sessions of one user together, so that a new session adds nothing to it. A
/// user is one of this host, or whoever has the token of the HTTP door.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserOptions {
    /// A user's token buckets are so many times as large, and fill so many times as fast, as one
    /// session's.
    pub rate_factor: NonZeroU32,
    /// All sessions of a user together may hold so many times what one may.
    pub quota_factor: NonZeroU32,
}

/// Share of this host that all workspaces together may take. The sizes of workspaces are limits and
/// most use less, so that more than there is can be given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostOptions {
    /// Memory of all workspaces together, in percent of the host's without `memory_reserve_mb`.
    pub memory_percent: NonZeroU32,
    /// Memory that is not given out, in MiB: the host's own, and the daemon's.
    pub memory_reserve_mb: u64,
    /// Disks of all workspaces together, in percent of the file system of the state directory.
    pub disk_percent: NonZeroU32,
}

/// How many calls one actor works on, and how many wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionOptions {
    /// Calls that one actor works on at a time. Of an actor that sessions share, a session has at
    /// most half of them, and half of the places to wait.
    pub in_flight: NonZeroU32,
    /// Places of `in_flight` that commands and machine making cannot take, so that
    /// looking, killing and cancelling work while long commands run. Must be
    /// below `in_flight`.
    pub reserved: u32,
    /// Calls that wait for one actor. One more is told `busy`.
    pub queued: u32,
    /// How long a call waits before it is told `busy`, in seconds.
    pub queue_wait_secs: NonZeroU64,
    /// Calls of one session that have begun and only wait for something else, as for the end of a
    /// command: they are not among those that their actor works on. One more is.
    pub parked: u32,
}

/// How long sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SessionOptions {
    /// How long a session without a client can be resumed, in seconds. Then it
    /// ends: its workspaces go on running and can be adopted by others.
    pub grace_secs: u64,
    /// Sessions at a time, with or without a client; three quarters of them for one user at most.
    /// For one more, the idlest session that has no client and holds nothing is ended.
    pub max_sessions: NonZeroU32,
    /// Sessions of agents and of runs at a time, each below the one that began it; three quarters of
    /// them for one user at most. They take no places of the others.
    pub max_children: NonZeroU32,
    /// How long an ended session is still listed, in seconds. One that made room and in
    /// which nothing was called is not, and one that still owns something is until that is gone
    /// or taken over.
    pub ended_kept_secs: u64,
    /// Ended sessions that are still listed; the oldest of more are forgotten.
    pub max_ended: u32,
}

/// Calls that outlive their client. A call that may take long, of a client that takes tasks, becomes
/// one when it still runs after a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeferredOptions {
    /// How long a call runs before its client gets a task in place of the result, in milliseconds.
    pub after_ms: u64,
    /// How long the end of a task is kept, in seconds.
    pub kept_secs: u64,
    /// Tasks of one session, running or kept. Calls beyond that are ordinary ones; with 0 all are.
    pub max_per_session: usize,
    /// Tasks of all sessions of a user.
    pub max_per_user: usize,
}

/// Credentials in error texts. Results are never changed: a file that was asked
/// for arrives as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RedactionOptions {
    /// Replace what looks like a credential in errors, events and logs.
    pub enabled: bool,
    /// More shapes of credentials: regular expressions, each match replaced whole.
    pub extra_patterns: Vec<String>,
    /// More names of credentials. A field whose name has these words, in any spelling
    /// (`licence_key`, `licenceKey`), is replaced whole.
    pub extra_keys: Vec<String>,
    /// Names of fields that are none, though they have the words of one. The whole name counts.
    pub exempt_keys: Vec<String>,
}

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a literal above zero")
}

impl Default for Options {
    fn default() -> Self {
        Self {
            default_tier: DEFAULT_TIER.to_owned(),
            user_tiers: BTreeMap::new(),
            tiers: BTreeMap::new(),
            rate: RateOptions::default(),
            quota: QuotaOptions::default(),
            user: UserOptions::default(),
            host: HostOptions::default(),
            admission: AdmissionOptions::default(),
            sessions: SessionOptions::default(),
            deferred: DeferredOptions::default(),
            redaction: RedactionOptions::default(),
            listing: ListingOptions::default(),
        }
    }
}

impl Default for RateOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            create_burst: count(3),
            create_per_minute: count(5),
            exec_burst: count(10),
            exec_per_minute: count(60),
            file_burst: count(200),
            file_per_minute: count(6_000),
            default_burst: count(20),
            default_per_minute: count(120),
        }
    }
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self { max_workspaces: 10, max_memory_mb: 16_384, max_disk_gb: 100 }
    }
}

impl Default for UserOptions {
    fn default() -> Self {
        Self { rate_factor: count(16), quota_factor: count(4) }
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { memory_percent: count(400), memory_reserve_mb: 512, disk_percent: count(1_000) }
    }
}

impl Default for AdmissionOptions {
    fn default() -> Self {
        Self {
            in_flight: count(16),
            reserved: 2,
            queued: 64,
            queue_wait_secs: NonZeroU64::new(30).expect("a literal above zero"),
            parked: 128,
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            grace_secs: 3_600,
            max_sessions: count(256),
            max_children: count(16_384),
            ended_kept_secs: 86_400,
            max_ended: 1_000,
        }
    }
}

impl Default for DeferredOptions {
    fn default() -> Self {
        Self { after_ms: 1_000, kept_secs: 3_600, max_per_session: 32, max_per_user: 128 }
    }
}

impl Default for RedactionOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            extra_patterns: Vec::new(),
            extra_keys: Vec::new(),
            exempt_keys: Vec::new(),
        }
    }
}

impl Options {
    /// Everything that is wrong beyond what the types refuse: key and reason.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        if self.admission.reserved >= self.admission.in_flight.get() {
            let why = format!("must be below admission.in_flight ({})", self.admission.in_flight);
            problems.push(("admission.reserved".to_owned(), why));
        }
        let users = self.user_tiers.iter().map(|(user, tier)| (format!("user_tiers.{user}"), tier));
        let named = users.chain([("default_tier".to_owned(), &self.default_tier)]);
        let known = |tier: &String| tier == DEFAULT_TIER || self.tiers.contains_key(tier);
        for (key, tier) in named.filter(|(_, tier)| !known(tier)) {
            problems.push((key, format!("there is no tier `{tier}` in registry.tiers")));
        }
        for (name, tier) in &self.tiers {
            let wrong = tier.problems().into_iter();
            problems.extend(wrong.map(|(key, why)| (format!("tiers.{name}.{key}"), why)));
        }
        for (nth, pattern) in self.redaction.extra_patterns.iter().enumerate() {
            if let Err(error) = regex::Regex::new(pattern) {
                problems.push((format!("redaction.extra_patterns[{nth}]"), error.to_string()));
            }
        }
        let redaction = &self.redaction;
        for (key, names) in
            [("extra_keys", &redaction.extra_keys), ("exempt_keys", &redaction.exempt_keys)]
        {
            let bare = |name: &str| !name.contains(char::is_alphabetic);
            for (nth, _) in names.iter().enumerate().filter(|(_, name)| bare(name)) {
                let why = "has no word".to_owned();
                problems.push((format!("redaction.{key}[{nth}]"), why));
            }
        }
        problems
    }
}

impl Options {
    /// Tier of a user, with its name. One without limits when there is none of that name, which
    /// [`Self::problems`] tells.
    pub(crate) fn tier(&self, user: User) -> (&str, QuotaTier) {
        let name = self.user_tiers.get(&user).unwrap_or(&self.default_tier);
        (name, self.tiers.get(name).cloned().unwrap_or_default())
    }
}

impl QuotaOptions {
    pub(crate) fn limit(&self) -> Resources {
        Resources {
            workspaces: self.max_workspaces,
            memory_mb: self.max_memory_mb,
            disk_gb: self.max_disk_gb,
        }
    }
}

impl AdmissionOptions {
    pub(crate) fn queue_wait(&self) -> Duration {
        Duration::from_secs(self.queue_wait_secs.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_and_zeros_are_refused() {
        assert!(serde_json::from_str::<Options>(r#"{"rates": {}}"#).is_err());
        assert!(serde_json::from_str::<Options>(r#"{"rate": {"exec_burst": 0}}"#).is_err());
        let set: Options = serde_json::from_str(r#"{"rate": {"exec_burst": 7}}"#).expect("reads");
        assert_eq!((set.rate.exec_burst.get(), set.rate.exec_per_minute.get()), (7, 60));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut options = Options::default();
        assert_eq!(options.problems(), []);
        options.admission.reserved = 16;
        options.redaction.extra_patterns = vec!["fine".to_owned(), "(".to_owned()];
        options.redaction.extra_keys = vec!["pin".to_owned(), "1".to_owned()];
        options.redaction.exempt_keys = vec!["__".to_owned()];
        let tier = |tier: &str| tier.to_owned();
        options.user_tiers =
            [(User::Uid(7), tier("gone")), (User::Bearer, tier("personal"))].into();
        options.default_tier = tier("none");
        let keys: Vec<_> = options.problems().into_iter().map(|(key, _)| key).collect();
        let wrong = [
            "admission.reserved",
            "user_tiers.uid:7",
            "default_tier",
            "redaction.extra_patterns[1]",
            "redaction.extra_keys[1]",
            "redaction.exempt_keys[0]",
        ];
        assert_eq!(keys, wrong);
        options.admission.reserved = 15;
        assert_ne!(options.problems()[0].0, "admission.reserved");
    }

    #[test]
    fn a_user_has_its_tier_or_that_of_everybody() {
        let holds = [("workspaces".to_owned(), 3)].into();
        let large = QuotaTier { holds, ..QuotaTier::default() };
        let tiers = [("large".to_owned(), large.clone())].into();
        let user_tiers = [(User::Uid(7), "large".to_owned())].into();
        let options = Options { tiers, user_tiers, ..Options::default() };
        assert_eq!(options.tier(User::Uid(7)), ("large", large));
        assert_eq!(options.tier(User::Uid(8)), ("personal", QuotaTier::default()));
        let limit = Resources { workspaces: 10, memory_mb: 16_384, disk_gb: 100 };
        assert_eq!(options.quota.limit(), limit);
        assert_eq!(options.admission.queue_wait(), Duration::from_secs(30));
    }
}
