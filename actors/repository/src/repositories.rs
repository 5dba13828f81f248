//! Repositories of all users: a service over one log for each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hivekeep_kernel::{
    CallCx, Layer, RepositoryId, Service, ServiceActor, SessionId, ToolError, ToolGroup, User,
    ports::{GitCredentials, SessionQuotas, Volumes},
};
use hivekeep_runtime::{
    Daemon, ToolClient,
    log::{self, Log},
};
use hivekeep_store::Journal;
use tokio_util::sync::CancellationToken;

use crate::{
    HELD, Options,
    binding::Binding,
    bindings::{BindingLogs, RepositoryResult, find, not_found, owned},
    codes,
    tools::{self, BindingRow, BindingsListed, RepositoryList, RepositoryStatus},
};

/// Repositories of a page where the call names no number.
const PAGE: u64 = 20;

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

impl Service for Repositories {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = tools::FAMILIES;
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
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn steps(&self) -> MutexGuard<'_, BTreeMap<RepositoryId, &'static str>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn owner(&self, session: SessionId) -> RepositoryResult<User> {
        self.sessions.user(session).ok_or_else(|| {
            let message = format!("the session {session} is over");
            ToolError::new(Layer::Session, codes::REPOSITORY_USER_UNKNOWN, message)
                .next("open a session and repeat the call")
        })
    }

    /// Most repositories of a user: those of the configuration, and of its tier.
    pub(crate) fn most(&self, owner: User) -> usize {
        let tier = self.sessions.allowance(owner, HELD).map(usize::try_from);
        let tier = tier.map_or(usize::MAX, |most| most.unwrap_or(usize::MAX));
        tier.min(self.options.max_repositories)
    }

    /// A repository as it is now.
    pub(crate) fn row(&self, id: RepositoryId, binding: &Binding) -> BindingRow {
        BindingRow::new(id, binding, self.steps().get(&id).copied())
    }

    pub(crate) async fn status(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryStatus,
    ) -> RepositoryResult<BindingRow> {
        let owner = self.owner(cx.session)?;
        let (id, log) = find(&self.logs(), owner, &input.binding_id)?;
        let state = log.state().ok_or_else(|| not_found(&input.binding_id))?;
        Ok(self.row(id, &state))
    }

    pub(crate) async fn list(
        self: Arc<Self>,
        cx: CallCx,
        input: RepositoryList,
    ) -> RepositoryResult<BindingsListed> {
        let owner = self.owner(cx.session)?;
        let (page, limit) = (input.page.unwrap_or(1), input.limit.unwrap_or(PAGE));
        let all: Vec<_> = owned(&self.logs(), owner).map(|(id, _)| id).collect();
        let total = all.len() as u64;
        let first = usize::try_from((page - 1).saturating_mul(limit)).unwrap_or(usize::MAX);
        let shown = all.into_iter().skip(first).take(usize::try_from(limit).unwrap_or(usize::MAX));
        let durable: Vec<_> = {
            let logs = self.logs();
            shown.filter_map(|id| Some((id, logs.get(&id)?.state()?))).collect()
        };
        let bindings: Vec<_> = durable.iter().map(|(id, state)| self.row(*id, state)).collect();
        Ok(BindingsListed { bindings, total, page, limit })
    }
}
