//! Handlers of the control door's requests.

use std::{sync::Arc, sync::atomic::Ordering::Relaxed, time::Duration};

use chrono::Utc;
use hivekeep_artifact::{ArtifactAccess::Operator, Artifacts};
use hivekeep_door_server::{
    DaemonServices, codes, credentials::CredentialRow, result_form::announcement,
};
use hivekeep_kernel::{ActorRow, Door, Layer, Progress, ReceiptPad, ToolError};
use hivekeep_metrics::{MetricsReach::All, MetricsStore};
use hivekeep_ports::{WaitingMessages, Webhooks};
use hivekeep_registry::{ApprovalRoute, CallOutcome, CallRequest, OpenSession, ToolView, User};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    ControlMethod, CredentialMade, DaemonStatus, LogFolderSize, Outlet, backup, policy, stores,
};

/// States of an actor that a person should look at, by their first word. Any
/// other word is the actor's own and no trouble.
const TROUBLE: [&str; 4] = ["gave_up", "restarting", "crashed", "failed"];

/// The receipt is for whoever writes the answer, if it is one that wants one.
pub(super) async fn answer(
    core: &Arc<DaemonServices>,
    uid: u32,
    wanted: ControlMethod,
    outlet: &Outlet,
    receipt: &mut Option<ReceiptPad>,
) -> Result<Value, ToolError> {
    match wanted {
        ControlMethod::Status {} => status(core).await,
        ControlMethod::Ps {} => value(core.census.rows()),
        ControlMethod::Sessions {} => value(core.sessions.list().await),
        ControlMethod::EndSession { session } => {
            core.sessions.end(session).await?;
            Ok(Value::Null)
        }
        ControlMethod::CreateCredential { name, scope } => {
            let made = core.credentials.create(&name, scope, User::Uid(uid)).await?;
            value(CredentialMade { row: made.0, token: made.1.expose().to_owned() })
        }
        ControlMethod::CreateWebhook { name, dag } => {
            let target = core.ports.need::<dyn Webhooks>()?.target(&dag)?;
            let made = core.credentials.create_webhook(&name, target, User::Uid(uid)).await?;
            value(CredentialMade { row: made.0, token: made.1.expose().to_owned() })
        }
        ControlMethod::Credentials {} => value(core.credentials.list()),
        ControlMethod::RevokeCredential { name } => value(revoke(core, uid, &name).await?),
        ControlMethod::Call { tool, args, timeout_ms } => {
            let timeout = timeout_ms.map(Duration::from_millis);
            let outcome = call(core, uid, tool, args, timeout, outlet).await?;
            *receipt = outcome.receipt;
            outcome.result
        }
        #[cfg(feature = "full")]
        ControlMethod::Team { name, machines } => team(core, &name, machines).await,
        ControlMethod::Waiting { started_by } => value(waiting(core, &started_by)),
        ControlMethod::Policy(wanted) => policy::rules(core, uid, wanted).await,
        ControlMethod::Approvals(wanted) => policy::approvals(core, uid, wanted, outlet).await,
        ControlMethod::Backup { disks } => backup::make(core, disks, outlet).await,
        ControlMethod::Artifacts {} => value(core.ports.need::<Artifacts>()?.list(Operator)),
        ControlMethod::Artifact { artifact } => stores::send_artifact(core, artifact, outlet).await,
        ControlMethod::RemoveArtifact { artifact } => {
            value(core.ports.need::<Artifacts>()?.remove(artifact, Operator).await?)
        }
        ControlMethod::Metrics { since } => {
            value(core.ports.need::<MetricsStore>()?.count(since, All).await?)
        }
        ControlMethod::MetricsExport { since } => stores::export_metrics(core, since, outlet).await,
        ControlMethod::Events { from, follow } => {
            stores::tell_events(core, from, follow, outlet).await
        }
        // Done by the caller, once this answer is on its way.
        ControlMethod::Stop { workspaces } => {
            tracing::info!(uid, ?workspaces, "asked to stop");
            Ok(json!({ "stopping": true }))
        }
    }
}

/// Revokes a credential, and ends its sessions, which nobody can use any more.
async fn revoke(core: &DaemonServices, uid: u32, name: &str) -> Result<CredentialRow, ToolError> {
    let row = core.credentials.revoke(name, User::Uid(uid)).await?;
    let sessions = core.sessions.list().await.into_iter();
    for session in sessions.filter(|one| one.user == Some(row.user()) && one.ended_at.is_none()) {
        core.sessions.end(session.session).await?;
    }
    Ok(row)
}

#[cfg(feature = "full")]
async fn team(core: &DaemonServices, name: &str, machines: bool) -> Result<Value, ToolError> {
    let no_teams = || ToolError::new(Layer::Door, codes::NO_TEAMS, "this daemon has no teams");
    let teams = core.ports.find::<hivekeep_team::TeamsHandle>().ok_or_else(no_teams)?;
    let seq = core.journal.events().last().get();
    value(super::TeamSnapshot { seq, picture: teams.picture(name, machines).await? })
}

fn waiting(core: &DaemonServices, started_by: &[i32]) -> Vec<String> {
    let Some(waiting) = core.ports.find::<dyn WaitingMessages>() else { return Vec::new() };
    let sessions = core.parents.sessions(started_by).into_iter();
    sessions
        .filter_map(|session| waiting.of(session))
        .map(|it| announcement(&it, Utc::now()))
        .collect()
}

pub(super) fn value(data: impl Serialize) -> Result<Value, ToolError> {
    serde_json::to_value(data).map_err(|error| ToolError::internal(error.to_string()))
}

/// Calls a tool in the lasting session of a user: what one `hivekeep call`
/// makes, the next can use.
async fn call(
    core: &DaemonServices,
    uid: u32,
    tool: String,
    args: Map<String, Value>,
    timeout: Option<Duration>,
    outlet: &Outlet,
) -> Result<CallOutcome, ToolError> {
    let client = format!("hivekeep call (uid {uid})");
    let request = OpenSession {
        door: Door::Cli,
        client,
        user: User::Uid(uid),
        resume: None,
        profile: Default::default(),
    };
    let attachment = core.sessions.open_named(&format!("cli-{uid}"), request).await?;
    let (progress, mut updates) = Progress::channel(32);
    let call = core.dispatcher.call(CallRequest {
        session: attachment.session,
        door: Door::Cli,
        tool,
        args,
        progress,
        // Dropping the call, when the client leaves, cancels it.
        cancel: CancellationToken::new(),
        timeout,
        view: Arc::new(ToolView::operator()),
        trace: None,
        effect: None,
        approval: ApprovalRoute::waiting(),
    });
    let mut call = std::pin::pin!(call);
    loop {
        tokio::select! {
            biased;
            outcome = &mut call => return Ok(outcome),
            Some(update) = updates.recv() => {
                outlet.item(value(update)?).await;
            }
        }
    }
}

async fn status(core: &DaemonServices) -> Result<Value, ToolError> {
    let rows = core.census.rows();
    let word = |row: &'_ &ActorRow| {
        row.state.split(',').next().is_some_and(|word| TROUBLE.contains(&word))
    };
    let troubled = rows.iter().filter(word);
    let (journal, folders) = (core.journal.clone(), &core.folders);
    let folder = folders.logs.clone();
    let looked =
        tokio::task::spawn_blocking(move || (journal.stats(), folder_bytes(&folder))).await;
    let (journal, bytes) = looked.map_err(|error| ToolError::internal(error.to_string()))?;
    let daemon = &core.config.daemon;
    let most_bytes = (daemon.log_files_kept + 1).saturating_mul(daemon.log_file_mb << 20);
    value(DaemonStatus {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(core.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        rss_bytes: rss_bytes(),
        socket: folders.socket.display().to_string(),
        state_dir: folders.state.display().to_string(),
        log_file: folders.log_file().display().to_string(),
        mcp_http: core.mcp_http.get().cloned(),
        http_api: core.http_api.get().cloned(),
        e2b: core.e2b.get().cloned(),
        port_urls: core.port_urls.get().cloned(),
        tools: core.catalogue().entries().count(),
        connections: core.connections.load(Relaxed),
        actors: rows.len(),
        troubled: troubled.map(|row| format!("{} ({})", row.path, row.state)).collect(),
        journal: value(journal)?,
        logs: LogFolderSize { bytes, most_bytes },
    })
}

/// Bytes that the files of a folder take.
fn folder_bytes(folder: &std::path::Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
}

/// Resident memory of this process; 0 where the kernel does not say.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}
