//! `workspace_info` and `workspace_logs`.

use std::time::Duration;

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError};
use hivekeep_link::CallTerms;
use hivekeep_protocol::Usage;

use super::{Workspace, entry_point::entry_point, take_down, user::CommandUser};
use crate::{
    api::{
        diagnostics::{LogTexts, LogType, WorkspaceLogs},
        lifecycle::{MachineDetails, Size, WorkspaceDetails, WorkspaceInfo},
        network::NetworkState,
        snapshots::{ForkedFrom, SnapshotSummary},
    },
    codes,
    ledger::MachineFact,
    link_state::LinkState,
};

/// A guest that does not answer within this is described without its figures.
const GUEST_PATIENCE: Duration = Duration::from_secs(3);

/// `workspace_info`.
///
/// # Errors
/// None: it answers in every state.
pub(crate) fn describe(
    state: &mut Workspace,
    cx: &CallCx,
    _: WorkspaceInfo,
) -> Result<Reply<WorkspaceDetails>, ToolError> {
    let ledger = &state.ledger;
    let plan = ledger.plan.clone();
    let driver = state.handle.shared.driver(plan.spec.isolation).ok();
    let support = driver.as_ref().map(|driver| &driver.capabilities().several_users);
    let CommandUser { name: user, note: user_note } = CommandUser::of(ledger, support);
    let mut details = WorkspaceDetails {
        workspace_id: plan.id,
        name: plan.name.to_string(),
        state: state.status.phase,
        reason: state.status.explained(state.process()),
        process: state.process(),
        base_image: plan.spec.image.clone(),
        user,
        user_note,
        ip: None,
        resources: Size::of(&plan.spec),
        network: NetworkState::default(),
        volumes: plan.volumes.clone(),
        snapshots: ledger.snapshots.nodes().map(SnapshotSummary::of).collect(),
        forked_from: plan.fork.as_deref().map(ForkedFrom::of),
        created_at: plan.at,
        owner: ledger.owner,
        owned: ledger.owner == Some(cx.session),
        isolation: plan.spec.isolation,
        labels: plan.labels.clone(),
        ends_at: ledger.lifetime.map(|it| it.ends_at),
        at_end: ledger.lifetime.map(|it| it.at_end),
        end_delayed: state.ending.delayed(),
        parked_bytes: ledger.parked.as_ref().map(|parked| parked.bytes),
        idle_park_secs: state.parks_after_secs(),
        machine: None,
        env: ledger.env.clone(),
        running_jobs: ledger.jobs.iter().map(ToString::to_string).collect(),
        disk_used_bytes: None,
        disk_volsize_bytes: None,
        guest_error: None,
        entrypoint: entry_point(ledger).ok().map(|entry| entry.argv(Vec::new())),
        boot_time_ms: ledger.boot_time_ms,
    };
    let (link_state, workspace) = (state.link.now(), state.handle.clone());
    let (machine, id, isolation) = (ledger.machine.clone(), plan.id, plan.spec.isolation);
    Ok(Reply::later(async move {
        details.network = workspace.shared.network_state(id, isolation).await;
        let MachineFact::Launched { handle, limits, .. } = machine else {
            details.ip = workspace.shared.ip(id);
            return Ok(details);
        };
        match handle.nic {
            true => details.ip = workspace.shared.ip(id),
            false => details.network.cut_off(),
        }
        let driver = workspace.shared.driver(isolation)?;
        let usage = driver.usage(&handle).await.ok();
        details.machine = Some(MachineDetails {
            pid: handle.process.pid,
            accelerator: driver.facts().accelerator,
            carrier: driver.facts().carrier.as_str().to_owned(),
            link: link_state.word(),
            memory_bytes: usage.map(|usage| usage.rss_bytes),
            cpu_ms: usage.map(|usage| usage.cpu.as_millis().try_into().unwrap_or(u64::MAX)),
            limits,
            confinement: driver.facts().confinement.clone(),
        });
        if let LinkState::Up(link) = link_state {
            match link.ask(Usage, CallTerms::at_most(GUEST_PATIENCE)).await {
                Ok(usage) => {
                    details.disk_used_bytes = Some(usage.root_used_bytes);
                    details.disk_volsize_bytes = Some(usage.root_total_bytes);
                }
                Err(error) => details.guest_error = Some(error.to_string()),
            }
        }
        Ok(details)
    }))
}

/// `workspace_logs`, in every state.
///
/// # Errors
/// `invalid_input` for `max_lines`.
pub(crate) fn logs(
    state: &mut Workspace,
    _: &CallCx,
    input: WorkspaceLogs,
) -> Result<Reply<LogTexts>, ToolError> {
    let WorkspaceLogs { log_type: which, max_lines, .. } = input;
    if !(1..=10_000).contains(&max_lines) {
        return Err(ToolError::invalid("max_lines must be 1 to 10000"));
    }
    let (workspace, plan) = (state.handle.clone(), state.ledger.plan.clone());
    Ok(Reply::later(async move {
        let driver = workspace.shared.driver(plan.spec.isolation)?;
        let folders = take_down::folders(&workspace);
        let logs = driver.logs(&folders).await.map_err(|error| {
            ToolError::new(Layer::Machine, codes::LOGS_UNREADABLE, error.to_string())
        })?;
        let tail = |text: String| {
            let skip = text.lines().count().saturating_sub(max_lines);
            text.lines().skip(skip).collect::<Vec<_>>().join("\n")
        };
        Ok(LogTexts {
            console: (which != LogType::Stderr).then(|| tail(logs.console)),
            stderr: (which != LogType::Console).then(|| tail(logs.stderr)),
        })
    }))
}
