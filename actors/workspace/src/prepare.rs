//! `workspace_prepare`: answers with the golden workspace that is there, or has one made.

pub(crate) mod api;
pub(crate) mod setup;
pub(crate) mod steps;

use std::time::Duration;

use hivekeep_git::GitUrl;
use hivekeep_kernel::{CallCx, Layer, Reply, ToolError, WorkspaceId, tools};
use hivekeep_machine::{CapabilitySupport, Isolation};

use self::{
    api::{DEFAULT_TIMEOUT_SECS, Prepared, WorkspacePrepare},
    setup::{GOLDEN, not_prepared},
};
use crate::{
    codes,
    directory::{DirectoryEntry, name_taken},
    lifecycle::{api::WorkspaceCreate, create, reserve},
    manager::Workspaces,
    messages::{PrepareMsg, PrepareRequest, Setup},
    name::WorkspaceName,
    ownership,
    phase::Phase,
    records::{Planned, Recipe, WorkspaceSpec, differences},
    shared::Shared,
};

/// Most time for the start, the snapshot, and undoing both.
const AROUND_SECS: u64 = 600;
/// Most bytes of all of them together; they are kept with the workspace.
const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// Time for the actor of a workspace to say what it is.
const PATIENCE: Duration = Duration::from_secs(10);
tools! { pub FAMILY: "orchestration" for Workspaces, singleton workspaces;
    workspace_prepare: WorkspacePrepare => Prepared = prepare {
        title: "Prepare a workspace to be forked", effect: Idempotent, rate: RateClass::Create,
        risk: Risk::Medium, open_world: true, timeout_secs: 900, limit_secs: time_of_all_steps,
        told_by: Some("workspace_list"),
    };
}

/// `timeout_secs` is the limit of one step, not of the call.
fn time_of_all_steps(input: &serde_json::Value) -> Option<u64> {
    let commands = input.get("setup_commands").and_then(|list| list.as_array()).map_or(0, Vec::len);
    let clones = usize::from(input.get("git_url").is_some_and(|url| !url.is_null()));
    let each = input.get("timeout_secs").and_then(serde_json::Value::as_u64);
    let steps = u64::try_from(commands + clones).ok()?;
    Some(each.unwrap_or(DEFAULT_TIMEOUT_SECS).saturating_mul(steps).saturating_add(AROUND_SECS))
}

/// A recipe, checked.
struct CheckedPrepare {
    name: WorkspaceName,
    spec: WorkspaceSpec,
    recipe: Recipe,
    setup: Setup,
}

/// `workspace_prepare`.
///
/// # Errors
/// When the recipe makes no sense on this host, or the name is another workspace's.
pub(crate) fn prepare(
    state: &mut Workspaces,
    cx: &CallCx,
    input: WorkspacePrepare,
) -> Result<Reply<Prepared>, ToolError> {
    let wanted = checked(state, input)?;
    let entered = state.preparing.enter(&wanted.name)?;
    let (shared, manager, cx) = (state.shared.clone(), state.me.address.clone(), cx.clone());
    if let Ok(card) = state.shared.directory.card(wanted.name.as_str()) {
        return Ok(Reply::later(async move {
            let _entered = entered;
            reuse(&shared, &cx, &card, &wanted).await
        }));
    }
    let CheckedPrepare { name, spec, recipe, setup } = wanted;
    let has_memory = recipe.include_memory;
    let plan = Planned {
        recipe: Some(Box::new(recipe)),
        ..Planned::new(WorkspaceId::new(), name, cx.session, spec)?
    };
    let mut claims = reserve::name(&state.shared, plan)?;
    Ok(Reply::later(async move {
        let _entered = entered;
        steps::check(&*shared.network, setup.allow_internet).await?;
        create::may_use_image(&shared, &claims.plan().spec).await?;
        reserve::quota(&shared, &mut claims, &cx).await?;
        let (plan, address) = create::spawn_claimed(&shared, &manager, claims).await?;
        // Planned and counted: from here on it only waits for the new workspace.
        cx.slot.give_back();
        let (reply, answer) = tokio::sync::oneshot::channel();
        let request = PrepareRequest { cx, setup, reply };
        address.send(PrepareMsg::Make(Box::new(request)).into())?;
        // The actor answers on every path, also after a cancellation.
        let golden = answer.await.map_err(|_| {
            ToolError::internal("the new workspace's actor ended; it is being undone")
        })??;
        Ok(Prepared {
            workspace_id: plan.id,
            name: plan.name.to_string(),
            snapshot_name: GOLDEN.to_owned(),
            snapshot_id: golden.snapshot,
            ip: shared.ip(plan.id),
            reused_existing: false,
            has_memory,
            steps: golden.steps,
            boot_time_ms: Some(golden.boot_time_ms),
            internet: Some(golden.internet),
            internet_reason: golden.internet_reason,
        })
    }))
}

fn checked(state: &Workspaces, input: WorkspacePrepare) -> Result<CheckedPrepare, ToolError> {
    let name: WorkspaceName = input.name.parse()?;
    let git_url = input.git_url.as_deref().map(GitUrl::parse).transpose()?;
    let login = match &git_url {
        Some(url) => state.shared.git.login_for(url, None)?,
        None => None,
    };
    let commands = input.setup_commands.unwrap_or_default();
    check_commands(&commands)?;
    let timeout_secs = input.timeout_secs.unwrap_or(DEFAULT_TIMEOUT_SECS);
    let spec = create::spec_of(
        state,
        &WorkspaceCreate {
            base_image: input.base_image,
            vcpus: input.vcpus,
            memory_mb: input.memory_mb,
            disk_gb: input.disk_gb,
            isolation: input.isolation,
            ..WorkspaceCreate::default()
        },
    )?;
    let recipe = Recipe {
        git_url: git_url.as_ref().map(|url| url.plain().to_owned()),
        setup_commands: commands.clone(),
        include_memory: keeps_memory(state, spec.isolation, input.include_memory)?,
    };
    Ok(CheckedPrepare {
        name,
        spec,
        recipe,
        setup: Setup {
            git_url,
            login,
            ca_file: state.shared.git.ca_file.clone(),
            commands,
            timeout_secs,
            allow_internet: input.allow_internet,
        },
    })
}

/// Whether the snapshot will have memory. Refused here, not after the setup.
fn keeps_memory(
    state: &Workspaces,
    isolation: Isolation,
    asked: Option<bool>,
) -> Result<bool, ToolError> {
    let driver = state.shared.driver(isolation)?;
    let refused = |why: &str| {
        ToolError::new(Layer::Machine, codes::SNAPSHOT_UNSUPPORTED, why)
            .next("call it with isolation `vm`")
    };
    if driver.snapshots().is_none() {
        let why = "a sandbox's disk is a folder of the host, which cannot be frozen";
        return Err(refused(why));
    }
    match (&driver.capabilities().memory_snapshots, asked) {
        (_, Some(false)) => Ok(false),
        (CapabilitySupport::Yes, _) => Ok(true),
        (CapabilitySupport::No { .. }, None) => Ok(false),
        (CapabilitySupport::No { why }, Some(true)) => {
            Err(refused(why).next("leave include_memory out"))
        }
    }
}

fn check_commands(commands: &[String]) -> Result<(), ToolError> {
    let bytes: usize = commands.iter().map(String::len).sum();
    if bytes > MAX_COMMAND_BYTES {
        return Err(ToolError::invalid("setup_commands may have 256 KiB together")
            .next("put what is longer into the repository"));
    }
    if let Some(index) = commands.iter().position(|command| command.trim().is_empty()) {
        return Err(ToolError::invalid(format!("setup_commands[{index}] is empty")));
    }
    Ok(())
}

/// Answers with a workspace that is there, if it is what was asked for. Takes it over if its
/// session is gone.
async fn reuse(
    shared: &Shared,
    cx: &CallCx,
    card: &DirectoryEntry,
    wanted: &CheckedPrepare,
) -> Result<Prepared, ToolError> {
    // An operator too prepares, and so takes over, what is of the operator's own user alone.
    if !shared.daemon.sessions.is_of_user(cx.session, card.user, card.owner) {
        return Err(name_taken(&wanted.name, card.id));
    }
    let standing = |reply| PrepareMsg::PreparedState(reply).into();
    let is = card.address.ask(PATIENCE, standing).await?;
    if let Phase::Creating | Phase::Destroying = is.phase {
        return Err(is.phase.busy());
    }
    let Some(recipe) = is.recipe else {
        return Err(not_prepared(wanted.name.as_str(), "workspace_prepare did not make it"));
    };
    let differ = differences((&is.spec, &recipe), (&wanted.spec, &wanted.recipe));
    if !differ.is_empty() {
        let message =
            format!("`{}` was prepared with another {}", wanted.name, differ.join(", another "));
        return Err(ToolError::new(Layer::Actor, codes::RECIPE_DIFFERS, message)
            .next("choose another name, or call workspace_destroy first")
            .detail("fields", differ));
    }
    let Some(snapshot_id) = is.golden else {
        return Err(not_prepared(wanted.name.as_str(), "its snapshot `golden` was deleted"));
    };
    if is.owner != Some(cx.session) {
        ownership::take(card, cx, false).await?;
        tracing::debug!(workspace = %card.id, "taken over by a preparation");
    }
    Ok(Prepared {
        workspace_id: card.id,
        name: card.name.to_string(),
        snapshot_name: GOLDEN.to_owned(),
        snapshot_id,
        ip: shared.ip(card.id),
        reused_existing: true,
        has_memory: recipe.include_memory,
        steps: Vec::new(),
        boot_time_ms: None,
        internet: None,
        internet_reason: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_may_take_as_long_as_all_its_steps() {
        let limit = |input| time_of_all_steps(&input).unwrap();
        assert_eq!(limit(json!({ "name": "g" })), 600);
        let input = json!({ "git_url": "file:///r", "setup_commands": ["a", "b"] });
        assert_eq!(limit(input), 600 + 3 * 300);
        let input = json!({ "git_url": null, "setup_commands": ["a"], "timeout_secs": 7 });
        assert_eq!(limit(input), 607);
        let input = json!({ "setup_commands": ["a", "b"], "timeout_secs": u64::MAX });
        assert_eq!(limit(input), u64::MAX);
    }
}
