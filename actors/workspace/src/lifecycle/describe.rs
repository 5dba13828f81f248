//! `workspace_info`, `workspace_list` and `workspace_logs`.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, tools};
use hivekeep_link::CallTerms;
use hivekeep_protocol::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    codes,
    commands::user::{CommandUser, entry_point},
    ledger::MachineFact,
    lifecycle::api::{
        MachineDetails, Size, WorkspaceDetails, WorkspaceInfo, WorkspaceList, WorkspaceListed,
        WorkspaceRow,
    },
    link_state::LinkState,
    machine::take_down,
    manager::Workspaces,
    network::api::NetworkState,
    snapshot::api::{ForkedFrom, SnapshotSummary},
    state::Workspace,
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

/// `workspace_list`.
///
/// # Errors
/// None.
pub(crate) fn list(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspaceList,
) -> Result<Reply<WorkspaceListed>, ToolError> {
    let wanted = input.labels.unwrap_or_default();
    let cards = state.shared.directory.cards().into_iter();
    let workspaces: Vec<_> = cards
        .filter(|card| state.shared.is_shown(cx, card))
        .filter(|card| input.state_filter.is_none_or(|state| card.phase == state))
        .filter(|card| wanted.iter().all(|(name, value)| card.labels.get(name) == Some(value)))
        .map(|card| WorkspaceRow {
            workspace_id: card.id,
            name: card.name.to_string(),
            state: card.phase,
            process: card.process,
            ip: state.shared.ip(card.id),
            owned: card.owner == Some(cx.session),
            orphaned: card.owner.is_none(),
            resources: Size::of(&card.spec),
            isolation: card.spec.isolation,
            created_at: card.created_at,
            labels: Arc::unwrap_or_clone(card.labels),
            ends_at: card.lifetime.map(|it| it.ends_at),
            at_end: card.lifetime.map(|it| it.at_end),
        })
        .collect();
    Ok(Reply::Now(WorkspaceListed { count: workspaces.len(), workspaces }))
}

tools! { pub FAMILY: "diagnostics" for Workspace, addressed workspace by workspace_id;
    workspace_logs: WorkspaceLogs => LogTexts = logs {
        title: "Read a workspace's logs", effect: Read,
    };
}

/// Read the console and the hypervisor's messages of a workspace, also after it
/// stopped, crashed or could not be made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkspaceLogs {
    /// Id or name of the workspace.
    pub workspace_id: String,
    /// Logs to show.
    #[serde(default)]
    pub log_type: LogType,
    /// Most lines of each, from the end; 1 to 10000.
    #[serde(default = "default_lines")]
    pub max_lines: usize,
}

fn default_lines() -> usize {
    100
}

/// Logs of a workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogType {
    /// Output of the guest's console.
    Console,
    /// Messages of the hypervisor or sandbox.
    Stderr,
    /// Both logs.
    #[default]
    All,
}

/// Ends of the logs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogTexts {
    /// The guest's console; null when not asked for.
    pub console: Option<String>,
    /// The hypervisor's messages; null when not asked for.
    pub stderr: Option<String>,
}
