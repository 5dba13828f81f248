//! `workspace_create`: checks, reserves, plans, then lets the new actor make it.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{
    Address, CallCx, Layer, Reply, ToolError, WorkspaceId, fault_point, ports::NetworkWish,
};

use super::{Msg, Workspaces, network::plan_and_join};
use crate::{
    Options,
    image::ImageName,
    link::LinkToken,
    name::Name,
    phase::Phase,
    records::{Planned, Spec},
    shared::Shared,
    tools::lifecycle::{Size, WorkspaceCreate, WorkspaceCreated},
    workspace,
};

/// Failed creations that are kept for their logs.
const MAX_FAILED: usize = 20;

impl Workspaces {
    /// `workspace_create`.
    ///
    /// # Errors
    /// When the request makes no sense on this host or the name is taken.
    pub(crate) fn create(
        &mut self,
        cx: &CallCx,
        input: WorkspaceCreate,
    ) -> Result<Reply<WorkspaceCreated>, ToolError> {
        let spec = self.spec(&input)?;
        // Refused here, not after a minute of work.
        self.shared.driver(spec.isolation)?;
        let id = WorkspaceId::new();
        let name = match input.name {
            Some(name) => {
                name.parse::<Name>().map_err(|error| ToolError::invalid(error.to_string()))?
            }
            None => Name::default_for(id),
        };
        let token =
            LinkToken::generate().map_err(|error| ToolError::internal(error.to_string()))?;
        let mut plan = Planned {
            id,
            name,
            owner: cx.session,
            spec,
            slot: u32::MAX,
            uuid: uuid::Uuid::new_v4(),
            at: Utc::now(),
            token,
            fork: None,
            network: NetworkWish { allow_internet: input.allow_internet, ..Default::default() },
            recipe: None,
        };
        plan.slot = claim(&self.shared, &plan)?;
        self.prune_failed();
        Ok(self.make(cx.clone(), plan))
    }

    fn make(&self, cx: CallCx, plan: Planned) -> Reply<WorkspaceCreated> {
        let (shared, keeper) = (self.shared.clone(), self.me.address.clone());
        Reply::later(async move {
            let begun = std::time::Instant::now();
            make_claimed(&shared, &keeper, &cx, &plan).await?;
            Ok(WorkspaceCreated {
                workspace_id: plan.id,
                name: plan.name.to_string(),
                state: Phase::Running,
                ip: shared.ip(plan.id),
                boot_time_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                from_pool: false,
                resources: Size::of(&plan.spec),
                isolation: plan.spec.isolation,
            })
        })
    }

    /// Failed creations are kept for their logs, the newest twenty of them.
    fn prune_failed(&self) {
        let cards = self.shared.directory.cards();
        let failed: Vec<_> = cards.iter().filter(|card| card.phase == Phase::Failed).collect();
        let surplus = failed.len().saturating_sub(MAX_FAILED);
        for card in &failed[..surplus] {
            let _going_already = card.address.send(workspace::Msg::Forget);
        }
    }

    pub(super) fn spec(&self, input: &WorkspaceCreate) -> Result<Spec, ToolError> {
        let options = &self.shared.options;
        let image = input.base_image.clone().unwrap_or_else(|| options.default_image.clone());
        image.parse::<ImageName>().map_err(|_| workspace::unknown_image(&image))?;
        let spec = Spec {
            image,
            isolation: input.isolation.unwrap_or(options.isolation),
            vcpus: input.vcpus.unwrap_or(options.default_vcpus),
            memory_mb: input.memory_mb.unwrap_or(options.default_memory_mb),
            disk_gb: input.disk_gb.unwrap_or(options.default_disk_gb),
        };
        check_size(options, &spec)?;
        Ok(spec)
    }
}

/// A name and a slot, or a refusal that holds neither.
pub(super) fn claim(shared: &Shared, plan: &Planned) -> Result<u32, ToolError> {
    let directory = &shared.directory;
    directory.claim(&plan.name, plan.id)?;
    directory.take_slot(plan.id, shared.options.max_workspaces).ok_or_else(|| {
        directory.release(plan);
        let most = shared.options.max_workspaces;
        ToolError::new(
            Layer::Quota,
            "too_many_workspaces",
            format!("the daemon holds its {most} workspaces"),
        )
        .next("destroy workspaces that are not needed, or raise workspace.max_workspaces")
        .detail("max_workspaces", most)
        .retryable()
    })
}

/// Claims, reserves, plans and makes a workspace; the answer is its boot time in ms.
///
/// # Errors
/// Whatever stands in the way; then nothing of it is left.
pub(super) async fn make_one(
    shared: &Arc<Shared>,
    keeper: &Address<Msg>,
    cx: &CallCx,
    mut plan: Planned,
) -> Result<u64, ToolError> {
    plan.slot = claim(shared, &plan)?;
    make_claimed(shared, keeper, cx, &plan).await
}

async fn make_claimed(
    shared: &Arc<Shared>,
    keeper: &Address<Msg>,
    cx: &CallCx,
    plan: &Planned,
) -> Result<u64, ToolError> {
    let address = hatch_claimed(shared, keeper, cx, plan).await?;
    let boot_time_ms = ask_to_create(&address, cx).await?;
    tracing::debug!(workspace = %plan.id, boot_time_ms, "created");
    Ok(boot_time_ms)
}

/// Reserves, plans and gives the plan its actor, which waits to be told to make it.
///
/// # Errors
/// Whatever stands in the way; then nothing of it is left.
pub(super) async fn hatch_claimed(
    shared: &Arc<Shared>,
    keeper: &Address<Msg>,
    cx: &CallCx,
    plan: &Planned,
) -> Result<Address<workspace::Msg>, ToolError> {
    let guard = Unclaim { shared: shared.clone(), plan: Some(plan.clone()) };
    // A fork's wish was looked at before, without what it inherits.
    if plan.fork.is_none() {
        shared.may_wish(plan.spec.isolation, &plan.network).await?;
    }
    shared.sessions.reserve(cx.session, plan.spec.resources()).await?;
    // From here on the workspace's own actor undoes what fails.
    let guard = guard.holding_quota();
    plan_and_join(shared, plan, || guard.disarm()).await?;
    fault_point!("create.after_plan");
    let patience = Duration::from_secs(10);
    keeper
        .ask(patience, |reply| Msg::Hatch(Box::new(plan.clone()), reply))
        .await?
        .map_err(|fault| ToolError::internal(fault.to_string()))
}

/// Refuses a size beyond what is configured.
pub(super) fn check_size(options: &Options, spec: &Spec) -> Result<(), ToolError> {
    within("vcpus", spec.vcpus.into(), 1, options.max_vcpus.into())?;
    within("memory_mb", spec.memory_mb, 64, options.max_memory_mb)?;
    within("disk_gb", spec.disk_gb, 1, options.max_disk_gb)
}

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<(), ToolError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ToolError::invalid(format!("{what} must be {least} to {most}, not {value}"))
        .detail("least", least)
        .detail("most", most))
}

/// The new actor reads it once it has started.
async fn ask_to_create(
    address: &hivekeep_kernel::Address<workspace::Msg>,
    cx: &CallCx,
) -> Result<u64, ToolError> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    address.send(workspace::Msg::Create(cx.clone(), reply))?;
    // The actor answers on every path, also after a cancellation.
    answer
        .await
        .map_err(|_| ToolError::internal("the new workspace's actor ended; it is being undone"))?
}

/// Gives back what was claimed when the call ends before the plan is durable.
struct Unclaim {
    shared: std::sync::Arc<crate::shared::Shared>,
    plan: Option<Planned>,
}

impl Unclaim {
    fn holding_quota(mut self) -> UnclaimAll {
        UnclaimAll(Self { shared: self.shared.clone(), plan: self.plan.take() })
    }
}

impl Drop for Unclaim {
    fn drop(&mut self) {
        if let Some(plan) = &self.plan {
            self.shared.directory.release(plan);
        }
    }
}

/// The same with the session's quota.
struct UnclaimAll(Unclaim);

impl UnclaimAll {
    fn disarm(mut self) {
        self.0.plan = None;
    }
}

impl Drop for UnclaimAll {
    fn drop(&mut self) {
        if let Some(plan) = &self.0.plan {
            self.0.shared.sessions.release(plan.owner, plan.spec.resources());
        }
    }
}
