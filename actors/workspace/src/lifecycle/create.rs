//! `workspace_create`: checks, reserves, plans, then lets the new actor make it.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use hivekeep_kernel::{Address, CallCx, Reply, ToolError, WorkspaceId, fault_point};
use hivekeep_ports::{NetworkRequest, SizeBound, WorkspaceBounds};

use crate::{
    Options,
    claims::Claims,
    lifecycle::{
        api::{Size, WorkspaceCreate, WorkspaceCreated},
        reserve::{self, plan_and_join},
    },
    lifetime::{self, LifetimeRequest},
    machine::images::image_name,
    manager::{Msg, Workspaces},
    messages::{self, LifecycleMsg},
    name::WorkspaceName,
    phase::Phase,
    pool::{self, claim},
    records::{Planned, WorkspaceSpec},
    shared::Shared,
};

/// Time for the pool to give up a machine.
const EVICTION: Duration = Duration::from_secs(60);

/// Failed creations that are kept for their logs.
const MAX_FAILED: usize = 20;

/// `workspace_create`.
///
/// # Errors
/// When the request makes no sense on this host or the name is taken.
pub(crate) fn create(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceCreate,
) -> Result<Reply<WorkspaceCreated>, ToolError> {
    let spec = spec_of(state, &input)?;
    // Refused here, not after a minute of work.
    state.shared.driver(spec.isolation)?;
    let id = WorkspaceId::new();
    let name = match input.name {
        Some(name) => name.parse()?,
        None => WorkspaceName::default_for(id),
    };
    let network =
        NetworkRequest { allow_internet: input.allow_internet, ..NetworkRequest::default() };
    let lifetime = LifetimeRequest::of(input.lifetime_secs, input.at_end)?;
    let labels = input.labels.unwrap_or_default();
    lifetime::check_labels(&labels)?;
    state.shared.may_end(spec.isolation, input.at_end)?;
    let new = Planned::new(id, name, cx.session, spec)?;
    let plan = Planned { network, labels, lifetime, ..new };
    let mut claims = reserve::name(&state.shared, plan)?;
    let volumes = input.volumes.unwrap_or_default();
    reserve::volumes(&state.shared, &mut claims, cx, &volumes)?;
    prune_failed(state);
    Ok(make(state, cx.clone(), claims))
}

fn make(state: &Workspaces, cx: CallCx, mut claims: Claims) -> Reply<WorkspaceCreated> {
    let (shared, manager) = (state.shared.clone(), state.me.address.clone());
    Reply::later(async move {
        let begun = std::time::Instant::now();
        // From here, so that the pool does not make the next one beside a claim.
        let _passing = shared.traffic.pass();
        let Planned { name, spec, network, .. } = claims.plan().clone();
        shared.check_network(spec.isolation, &network).await?;
        may_use_image(&shared, &spec).await?;
        reserve::quota(&shared, &mut claims, &cx).await?;
        let (workspace_id, from_pool) = match claim::take(&shared, &manager, claims).await? {
            Ok(member) => (member, true),
            Err(claims) => (make_claimed(&shared, &manager, &cx, claims).await?.id, false),
        };
        Ok(WorkspaceCreated {
            workspace_id,
            name: name.to_string(),
            state: Phase::Running,
            ip: shared.ip(workspace_id),
            boot_time_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            from_pool,
            resources: Size::of(&spec),
            isolation: spec.isolation,
        })
    })
}

/// Failed creations are kept for their logs, the newest twenty of them.
fn prune_failed(state: &Workspaces) {
    let cards = state.shared.directory.cards();
    let failed: Vec<_> = cards.iter().filter(|card| card.phase == Phase::Failed).collect();
    let surplus = failed.len().saturating_sub(MAX_FAILED);
    for card in &failed[..surplus] {
        let _going_already = card.address.send(LifecycleMsg::Forget.into());
    }
}

pub(crate) fn spec_of(
    state: &Workspaces,
    input: &WorkspaceCreate,
) -> Result<WorkspaceSpec, ToolError> {
    let options = &state.shared.options;
    let image = input.base_image.clone().unwrap_or_else(|| options.default_image.clone());
    let spec = WorkspaceSpec {
        image: image_name(&image)?.to_string(),
        isolation: input.isolation.unwrap_or(options.isolation),
        vcpus: input.vcpus.unwrap_or(options.default_vcpus),
        memory_mb: input.memory_mb.unwrap_or(options.default_memory_mb),
        disk_gb: input.disk_gb.unwrap_or(options.default_disk_gb),
    };
    check_size(options, &spec)?;
    Ok(spec)
}

/// Refuses an image that is not here and may not be pulled, before anything is made.
pub(crate) async fn may_use_image(shared: &Shared, spec: &WorkspaceSpec) -> Result<(), ToolError> {
    Ok(shared.puller.may_use(&image_name(&spec.image)?).await?)
}

/// A workspace that was made.
struct Made {
    id: WorkspaceId,
    boot_time_ms: u64,
}

/// Claims, reserves, plans and makes a workspace; the answer is its boot time in ms.
///
/// # Errors
/// Whatever stands in the way; then nothing of it is left.
pub(crate) async fn make_one(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    cx: &CallCx,
    plan: Planned,
) -> Result<u64, ToolError> {
    let mut claims = reserve::name(shared, plan)?;
    reserve::quota(shared, &mut claims, cx).await?;
    Ok(make_claimed(shared, manager, cx, claims).await?.boot_time_ms)
}

async fn make_claimed(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    cx: &CallCx,
    claims: Claims,
) -> Result<Made, ToolError> {
    let _passing = claims.plan().pool.is_none().then(|| shared.traffic.pass());
    let (plan, address) = spawn_claimed(shared, manager, claims).await?;
    let boot_time_ms = ask_to_create(&address, cx).await?;
    tracing::debug!(workspace = %plan.id, boot_time_ms, "created");
    Ok(Made { id: plan.id, boot_time_ms })
}

/// Plans what was claimed and gives the plan its actor, which waits to be told to make it.
///
/// # Errors
/// Whatever stands in the way; then nothing of it is left.
pub(crate) async fn spawn_claimed(
    shared: &Arc<Shared>,
    manager: &Address<Msg>,
    mut claims: Claims,
) -> Result<(Planned, Address<messages::Msg>), ToolError> {
    // A fork's request was looked at before, without what it inherits.
    if claims.plan().fork.is_none() {
        shared.check_network(claims.plan().spec.isolation, &claims.plan().network).await?;
    }
    shared.may_start()?;
    reserve::slot(shared, &mut claims, || evicted(manager.clone()).boxed()).await?;
    let plan = claims.plan().clone();
    // From here on the workspace's own actor undoes what fails.
    plan_and_join(shared, &plan, || claims.keep()).await?;
    fault_point!("create.after_plan");
    let patience = Duration::from_secs(10);
    let address = manager
        .ask(patience, |reply| Msg::Spawn(Box::new(plan.clone()), reply))
        .await
        // Unanswered, the plan is taken back.
        .map_err(|error| shared.may_start().err().unwrap_or_else(|| error.into()))?
        .map_err(|fault| ToolError::internal(fault.to_string()))?;
    Ok((plan, address))
}

/// Has the pool give up a machine; whether it did.
async fn evicted(manager: Address<Msg>) -> bool {
    manager.ask(EVICTION, |reply| Msg::Pool(pool::Msg::Evict(reply))).await.unwrap_or(false)
}

/// Bounds of workspaces, and the kinds that there are.
pub(crate) fn bounds(options: &Options, isolations: Vec<&'static str>) -> WorkspaceBounds {
    let bound = |least, default, most| SizeBound { least, default, most };
    WorkspaceBounds {
        vcpus: bound(1, options.default_vcpus.into(), options.max_vcpus.into()),
        memory_mb: bound(64, options.default_memory_mb, options.max_memory_mb),
        disk_gb: bound(1, options.default_disk_gb, options.max_disk_gb),
        isolations,
    }
}

/// Refuses a size beyond what is configured.
pub(crate) fn check_size(options: &Options, spec: &WorkspaceSpec) -> Result<(), ToolError> {
    let WorkspaceBounds { vcpus, memory_mb, disk_gb, .. } = bounds(options, Vec::new());
    within("vcpus", spec.vcpus.into(), vcpus)?;
    within("memory_mb", spec.memory_mb, memory_mb)?;
    within("disk_gb", spec.disk_gb, disk_gb)
}

fn within(
    what: &str,
    value: u64,
    SizeBound { least, most, .. }: SizeBound,
) -> Result<(), ToolError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ToolError::invalid(format!("{what} must be {least} to {most}, not {value}"))
        .detail("least", least)
        .detail("most", most))
}

/// The new actor reads it once it has started.
async fn ask_to_create(address: &Address<messages::Msg>, cx: &CallCx) -> Result<u64, ToolError> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    address.send(LifecycleMsg::Create(Box::new(cx.clone()), reply).into())?;
    // The actor answers on every path, also after a cancellation.
    answer
        .await
        .map_err(|_| ToolError::internal("the new workspace's actor ended; it is being undone"))?
}
