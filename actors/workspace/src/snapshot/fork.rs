//! `workspace_fork` and `workspace_branch`: new workspaces that begin as another one was.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use hivekeep_kernel::{Address, CallCx, Reply, SessionId, ToolError, WorkspaceId};
use hivekeep_ports::{NetworkRequest, OwnedSnapshot, WorkspaceForks};

use crate::{
    claims::ForkSource,
    directory::DirectoryEntry,
    lifecycle::create::{self, make_one},
    lifetime::{AtEnd, LifetimeRequest, WorkspaceLabels, check_labels},
    manager::{Msg, Workspaces},
    messages::{SnapshotMsg, SnapshotRequest},
    name::WorkspaceName,
    network::reach::over,
    phase::Phase,
    records::WorkspaceSpec,
    shared::Shared,
    snapshot::api::{Forked, ForkedFrom, NotForked, Worker, WorkspaceBranch, WorkspaceFork},
    snapshots::files,
};

/// Time for the source's actor to say what it is forked from.
const SOURCE_PATIENCE: Duration = Duration::from_secs(10);

/// How the forks shall be.
struct ForkRequest {
    names: Names,
    with_memory: Option<bool>,
    /// Whether tasks in the memory go on.
    keeps_tasks: bool,
    vcpus: Option<u32>,
    memory_mb: Option<u64>,
    network: NetworkRequest,
    lifetime: Option<LifetimeRequest>,
    /// `None`: as the source.
    labels: Option<WorkspaceLabels>,
}

enum Names {
    /// One, whose failure is the call's.
    One(Option<String>),
    /// Several, each of which may fail on its own.
    Several { count: u32, prefix: String },
}

/// `workspace_fork`.
///
/// # Errors
/// When the source is not there or the request makes no sense.
pub(super) fn on_fork(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceFork,
) -> Result<Reply<Forked>, ToolError> {
    let source = state.shared.directory.card(&input.workspace_id)?;
    let wanted = ForkRequest {
        names: names(input.new_name, input.count, input.name_prefix)?,
        with_memory: input.with_memory,
        keeps_tasks: false,
        vcpus: input.vcpus,
        memory_mb: input.memory_mb,
        network: NetworkRequest {
            allow_internet: input.allow_internet,
            allow_inter_vm: input.allow_inter_vm,
            allowed_ports: None,
            egress_allow: input.egress_allow,
            group: None,
        },
        lifetime: LifetimeRequest::of(input.lifetime_secs, input.at_end)?,
        labels: input.labels,
    };
    wanted.labels.as_ref().map_or(Ok(()), check_labels)?;
    state.shared.may_end(source.spec.isolation, input.at_end)?;
    let (shared, manager, cx) = (state.shared.clone(), state.me.address.clone(), cx.clone());
    Ok(Reply::later(async move {
        let source = fork_source(&source, cx.session, input.snapshot_name).await?;
        fork(&shared, &manager, &cx, source, wanted).await
    }))
}

/// `workspace_branch`.
///
/// # Errors
/// When the source is not there or the request makes no sense.
pub(super) fn on_branch(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceBranch,
) -> Result<Reply<Forked>, ToolError> {
    let source = state.shared.directory.card(&input.workspace_id)?;
    let wanted = ForkRequest {
        names: names(input.new_name, input.count, input.name_prefix)?,
        with_memory: Some(true),
        keeps_tasks: false,
        vcpus: None,
        memory_mb: None,
        network: NetworkRequest::default(),
        lifetime: None,
        labels: None,
    };
    let name = input.snapshot_name.unwrap_or_else(|| {
        let hex = uuid::Uuid::new_v4().simple().to_string();
        format!("branch-{}", &hex[..8])
    });
    let (shared, manager, cx) = (state.shared.clone(), state.me.address.clone(), cx.clone());
    Ok(Reply::later(async move {
        let patience = cx.remaining();
        let (session, snapshot) = (cx.session, name.clone());
        // The call waits for the source's machine, and then for the forks.
        cx.slot.give_back();
        let making = |reply| {
            let request = SnapshotRequest { cx: cx.clone(), session, name: snapshot, reply };
            SnapshotMsg::Make(Box::new(request)).into()
        };
        let made = source.address.ask(patience, making).await??;
        let source = fork_source(&source, cx.session, name).await?;
        let forked = fork(&shared, &manager, &cx, source, wanted).await?;
        Ok(Forked { pause_ms: made.pause_ms, ..forked })
    }))
}

/// Forks as other families have them made.
pub(crate) struct WorkspaceForksHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) manager: Address<Msg>,
}

#[async_trait]
impl WorkspaceForks for WorkspaceForksHandle {
    async fn fork(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        name: &str,
        keeps_tasks: bool,
        secs: Option<u64>,
    ) -> Result<WorkspaceId, ToolError> {
        let with_memory = keeps_tasks.then_some(true);
        let lifetime = LifetimeRequest::of(secs, secs.map(|_| AtEnd::Destroy))?;
        let one = ForkRequest::one(Some(name.to_owned()));
        self.make(cx, source, ForkRequest { with_memory, keeps_tasks, lifetime, ..one }).await
    }

    async fn fork_to_read(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        secs: u64,
    ) -> Result<WorkspaceId, ToolError> {
        let network = NetworkRequest {
            allow_internet: Some(false),
            allow_inter_vm: Some(false),
            egress_allow: Some(Vec::new()),
            ..NetworkRequest::default()
        };
        let lifetime = LifetimeRequest::of(Some(secs), Some(AtEnd::Destroy))?;
        // Programs in the memory would go on, and change the files.
        let with_memory = Some(false);
        let wanted = ForkRequest { with_memory, network, lifetime, ..ForkRequest::one(None) };
        self.make(cx, source, wanted).await
    }
}

impl WorkspaceForksHandle {
    async fn make(
        &self,
        cx: &CallCx,
        source: &OwnedSnapshot,
        wanted: ForkRequest,
    ) -> Result<WorkspaceId, ToolError> {
        let OwnedSnapshot { workspace, owner, snapshot } = source;
        let card = self.shared.directory.card(&workspace.to_string())?;
        let source = fork_source(&card, *owner, snapshot.clone()).await?;
        let made = fork(&self.shared, &self.manager, cx, source, wanted).await?;
        made.workspace_id.ok_or_else(|| ToolError::internal("a fork without an id"))
    }
}

impl ForkRequest {
    /// Request for one fork that is as its source.
    fn one(name: Option<String>) -> Self {
        Self {
            names: Names::One(name),
            with_memory: None,
            keeps_tasks: false,
            vcpus: None,
            memory_mb: None,
            network: NetworkRequest::default(),
            lifetime: None,
            labels: None,
        }
    }
}

fn names(
    name: Option<String>,
    count: Option<u32>,
    prefix: Option<String>,
) -> Result<Names, ToolError> {
    match (count.unwrap_or(1), name) {
        (1, name) => Ok(Names::One(name)),
        (count, None) => {
            let prefix = prefix.unwrap_or_else(|| "worker".to_owned());
            Ok(Names::Several { count, prefix })
        }
        (_, Some(_)) => Err(ToolError::invalid("new_name names one fork")
            .next("leave new_name out and give name_prefix")),
    }
}

async fn fork_source(
    source: &DirectoryEntry,
    session: SessionId,
    snapshot: String,
) -> Result<ForkSource, ToolError> {
    source
        .address
        .ask(SOURCE_PATIENCE, |reply| SnapshotMsg::ForkSource { session, snapshot, reply }.into())
        .await?
}

async fn fork(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    cx: &CallCx,
    mut source: ForkSource,
    wanted: ForkRequest,
) -> Result<Forked, ToolError> {
    let with_memory = with_memory(&source, &wanted)?;
    files::whole(&shared.folders, &source.node, with_memory).await?;
    let spec = WorkspaceSpec {
        vcpus: wanted.vcpus.unwrap_or(source.spec.vcpus),
        memory_mb: wanted.memory_mb.unwrap_or(source.spec.memory_mb),
        ..source.spec.clone()
    };
    create::check_size(&shared.options, &spec)?;
    shared.check_network(spec.isolation, &wanted.network).await?;
    source.network = over(wanted.network, source.network);
    source.lifetime = wanted.lifetime;
    source.keeps_tasks = wanted.keeps_tasks;
    if let Some(labels) = wanted.labels {
        source.labels = labels;
    }
    let common = Forked {
        source_workspace_id: Some(source.workspace),
        snapshot_name: Some(source.node.name.clone()),
        with_memory: Some(with_memory),
        ..Forked::default()
    };
    // Each fork is counted before it is made; the call that wants them only waits.
    cx.slot.give_back();
    let forking = Forking { shared, manager, cx, source: &source, spec, with_memory };
    match wanted.names {
        Names::One(name) => forking.one(name, common).await,
        Names::Several { count, prefix } => forking.several(count, &prefix, common).await,
    }
}

/// Everything that the forks of one call have in common.
struct Forking<'c> {
    shared: &'c Arc<Shared>,
    manager: &'c Address<Msg>,
    cx: &'c CallCx,
    source: &'c ForkSource,
    spec: WorkspaceSpec,
    with_memory: bool,
}

impl Forking<'_> {
    async fn make(&self, id: WorkspaceId, name: WorkspaceName) -> Result<u64, ToolError> {
        let plan = self.source.plan(self.cx, id, name, self.spec.clone(), self.with_memory)?;
        make_one(self.shared, self.manager, self.cx, plan).await
    }

    async fn one(&self, name: Option<String>, common: Forked) -> Result<Forked, ToolError> {
        let id = WorkspaceId::new();
        let name = match name {
            Some(name) => name.parse()?,
            None => WorkspaceName::default_for(id),
        };
        self.make(id, name.clone()).await?;
        Ok(Forked {
            workspace_id: Some(id),
            name: Some(name.to_string()),
            state: Some(Phase::Running),
            ip: self.shared.ip(id),
            forked_from: Some(ForkedFrom {
                source_workspace_id: self.source.workspace,
                source_workspace_name: self.source.workspace_name.to_string(),
                snapshot_name: self.source.node.name.clone(),
            }),
            ..common
        })
    }

    async fn several(&self, count: u32, prefix: &str, common: Forked) -> Result<Forked, ToolError> {
        let done_so_far = AtomicU32::new(0);
        let forks = free_names(self.shared, prefix, count)?.into_iter().enumerate();
        let forks = forks.map(|(index, name)| {
            let done_so_far = &done_so_far;
            async move {
                let (begun, id) = (std::time::Instant::now(), WorkspaceId::new());
                let made = self.make(id, name.clone()).await;
                let done = done_so_far.fetch_add(1, Ordering::Relaxed) + 1;
                let outcome = if made.is_ok() { "runs" } else { "could not be made" };
                let told = format!("{name} {outcome}");
                self.cx.progress.report(done.into(), Some(count.into()), &told);
                let took = begun.elapsed().as_millis();
                match made {
                    Ok(_) => Ok(Worker {
                        workspace_id: id,
                        name: name.to_string(),
                        ip: self.shared.ip(id),
                        boot_time_ms: u64::try_from(took).unwrap_or(u64::MAX),
                    }),
                    Err(error) => Err(NotForked {
                        index,
                        name: name.to_string(),
                        code: error.code.to_string(),
                        error: error.to_text(),
                    }),
                }
            }
        });
        let at_once = self.shared.options.max_parallel_forks.max(1);
        let done = futures::stream::iter(forks).buffered(at_once).collect::<Vec<_>>().await;
        let (workers, failures): (Vec<_>, Vec<_>) = split(done);
        Ok(Forked {
            requested_count: Some(count as usize),
            success_count: Some(workers.len()),
            failure_count: Some(failures.len()),
            workers: Some(workers),
            failures: Some(failures),
            ..common
        })
    }
}

fn split<T, E>(outcomes: Vec<Result<T, E>>) -> (Vec<T>, Vec<E>) {
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(one) => made.push(one),
            Err(one) => failed.push(one),
        }
    }
    (made, failed)
}

fn with_memory(source: &ForkSource, wanted: &ForkRequest) -> Result<bool, ToolError> {
    let has = source.node.memory.is_some();
    let other_size = wanted.vcpus.is_some_and(|vcpus| vcpus != source.spec.vcpus)
        || wanted.memory_mb.is_some_and(|memory_mb| memory_mb != source.spec.memory_mb);
    match wanted.with_memory {
        Some(true) if !has => {
            Err(ToolError::invalid(format!("snapshot `{}` holds no memory", source.node.name))
                .next("leave with_memory out, or make a snapshot with include_memory"))
        }
        Some(true) if other_size => Err(ToolError::invalid(
            "a machine that goes on from memory keeps its vcpus and memory_mb",
        )
        .next("set with_memory to false, or leave the sizes out")),
        Some(wanted) => Ok(wanted),
        None => Ok(has && !other_size),
    }
}

/// The first numbers that no workspace has.
fn free_names(shared: &Shared, prefix: &str, count: u32) -> Result<Vec<WorkspaceName>, ToolError> {
    let name = |n: u32| {
        format!("{prefix}-{n}")
            .parse::<WorkspaceName>()
            .map_err(|error| ToolError::invalid(format!("name_prefix: {error}")))
    };
    let most = u32::try_from(shared.options.max_workspaces).unwrap_or(u32::MAX);
    let mut names = Vec::new();
    for n in 1..=most.saturating_add(count) {
        let name = name(n)?;
        if !shared.directory.is_taken(&name) {
            names.push(name);
        }
        if names.len() == count as usize {
            break;
        }
    }
    Ok(names)
}
