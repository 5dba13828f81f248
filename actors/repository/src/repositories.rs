//! Repositories of all users: a service over one log for each, and judgments on all together: which one is
//! meant, which labels are free, how many more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use hivekeep_kernel::{Layer, RepositoryId, ToolError, User, lock};
use hivekeep_ports::{GitCredentials, SessionQuotas, Volumes};
use hivekeep_runtime::{
    Daemon, ToolClient,
    log::{self, Log},
};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

use crate::{Options, binding::Binding, codes};

/// Kind of repositories, for tiers.
pub(crate) const HELD: &str = "repositories";

/// Repositories of all users.
pub(crate) struct Repositories {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) sessions: Arc<dyn SessionQuotas>,
    pub(crate) tools: ToolClient<RepositoryId>,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) credentials: Arc<dyn GitCredentials>,
    /// Fires when an ordered stop begins.
    pub(crate) closing: CancellationToken,
    /// Locked while something is decided, so that labels and numbers are judged on what was decided
    /// before; never across an await.
    logs: Mutex<BindingLogs>,
    /// Present step of each operation under way, by repository.
    steps: Mutex<BTreeMap<RepositoryId, &'static str>>,
}

impl Repositories {
    pub(crate) async fn open(daemon: &Daemon, options: Options) -> RepositoryResult<Self> {
        let journal = daemon.journal.clone();
        let mut logs = BindingLogs::new();
        for (stream, loaded) in log::read_all::<Binding>(&journal).await?.loaded {
            let id = stream.id().parse().map_err(|error| {
                ToolError::new(Layer::Actor, codes::STATE_UNREADABLE, format!("{stream}: {error}"))
            })?;
            logs.insert(id, Log::of(journal.clone(), stream, Some(loaded)));
        }
        Ok(Self {
            options,
            journal,
            sessions: daemon.sessions.clone(),
            tools: ToolClient::new(daemon.tools.clone()),
            volumes: daemon.ports.need::<dyn Volumes>()?,
            credentials: daemon.ports.need::<dyn GitCredentials>()?,
            closing: daemon.closing.clone(),
            logs: Mutex::new(logs),
            steps: Mutex::default(),
        })
    }

    pub(crate) fn logs(&self) -> MutexGuard<'_, BindingLogs> {
        lock(&self.logs)
    }

    pub(crate) fn steps(&self) -> MutexGuard<'_, BTreeMap<RepositoryId, &'static str>> {
        lock(&self.steps)
    }

    /// Most repositories of a user: those of the configuration, and of its tier.
    pub(crate) fn most(&self, owner: User) -> usize {
        let tier = self.sessions.allowance(owner, HELD).map(usize::try_from);
        let tier = tier.map_or(usize::MAX, |most| most.unwrap_or(usize::MAX));
        tier.min(self.options.max_repositories)
    }
}

pub(crate) type RepositoryResult<T> = Result<T, ToolError>;
type BindingLogs = BTreeMap<RepositoryId, Log<Binding>>;

/// Repositories of a user with everything decided, oldest first.
pub(crate) fn owned(
    logs: &BindingLogs,
    owner: User,
) -> impl Iterator<Item = (RepositoryId, Binding)> {
    let decided = |log: &Log<Binding>| log.views(|decided, _| decided.cloned());
    let all = logs.iter().filter_map(move |(id, log)| Some((*id, decided(log)?)));
    all.filter(move |(_, binding)| binding.terms.owner == owner)
}

/// A user's repository, by id or label.
///
/// # Errors
/// `repository_not_found`.
pub(crate) fn find(
    logs: &BindingLogs,
    owner: User,
    asked: &str,
) -> RepositoryResult<(RepositoryId, Log<Binding>)> {
    let id = asked.parse().ok();
    let by_id = owned(logs, owner).find(|(found, _)| Some(*found) == id);
    let found =
        by_id.or_else(|| owned(logs, owner).find(|(_, binding)| binding.terms.label == asked));
    let found = found.and_then(|(id, _)| Some((id, logs.get(&id)?.clone())));
    found.ok_or_else(|| not_found(asked))
}

pub(crate) fn not_found(asked: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::REPOSITORY_NOT_FOUND, "repository", asked)
        .next("aegis.git.list shows yours")
}

/// Refuses one repository more that the user may not have.
///
/// # Errors
/// `name_taken`, `repository_quota_exceeded`.
pub(crate) fn admit(
    logs: &BindingLogs,
    owner: User,
    label: &str,
    most: usize,
) -> RepositoryResult<()> {
    let own: Vec<_> = owned(logs, owner).collect();
    if own.iter().any(|(_, binding)| binding.terms.label == label) {
        let message = format!("you have a repository `{label}` already");
        return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
            .next("use it, or choose another label"));
    }
    if own.len() < most {
        return Ok(());
    }
    let message = format!("you have {} repositories, as many as may be", own.len());
    Err(ToolError::new(Layer::Quota, codes::REPOSITORY_QUOTA_EXCEEDED, message)
        .next("delete one with aegis.git.delete")
        .detail("repository_count", own.len())
        .detail("max_repositories", most))
}

/// Volume of a repository, as its label among the user's volumes.
pub(crate) fn volume_label(label: &str) -> String {
    format!("git-{label}")
}
