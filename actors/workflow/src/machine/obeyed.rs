//! Fields of a workflow that no run obeys: it is refused before it begins, so that none is passed over in silence.

use hivekeep_manifest::{
    agent::RunIsolation,
    common::{ImagePullPolicy, OutputHandler},
    workflow::{ContainerStep, ContainerUser, WorkflowManifest, WorkflowState},
};

use super::text::containers;

/// Modes of a network that say nothing beside the daemon's configuration.
const NETWORKS: [&str; 3] = ["none", "bridge", "default"];

/// The first field that would be passed over, as it is named to people.
pub(super) fn not_obeyed(manifest: &WorkflowManifest) -> Option<String> {
    manifest.spec.states.iter().find_map(|(name, state)| {
        let of_containers = || containers(state).iter().find_map(of_container);
        let field = of_state(state).or_else(of_containers)?;
        Some(format!("`{field}` of the state `{name:.80}`"))
    })
}

fn of_state(state: &WorkflowState) -> Option<&'static str> {
    let (WorkflowState::Agent { output_handler, .. }
    | WorkflowState::ParallelAgents { output_handler, .. }
    | WorkflowState::ContainerRun { output_handler, .. }
    | WorkflowState::ParallelContainerRun { output_handler, .. }) = state
    else {
        return None;
    };
    let of_handler = match output_handler {
        None | Some(OutputHandler::Agent { .. }) => None,
        Some(OutputHandler::Container { .. }) => Some("output_handler: container"),
        Some(OutputHandler::McpTool { .. }) => Some("output_handler: mcp_tool"),
        Some(OutputHandler::Webhook { .. }) => Some("output_handler: webhook"),
    };
    match state {
        WorkflowState::Agent { isolation: Some(isolation), .. }
            if *isolation != RunIsolation::Inherit =>
        {
            Some("isolation")
        }
        _ => of_handler,
    }
}

fn of_container(step: &ContainerStep) -> Option<&'static str> {
    let is_root = match step.run_as_user.as_deref() {
        None | Some(ContainerUser::Id(0)) => true,
        Some(ContainerUser::Id(_)) => false,
        Some(ContainerUser::Ids(ids)) => {
            ids.split(':').next().is_none_or(|id| id.trim_start_matches('0').is_empty())
        }
    };
    let named = step.network_mode.as_deref().unwrap_or("default");
    let pulls = !matches!(step.image_pull_policy, None | Some(ImagePullPolicy::IfNotPresent));
    let fields = [
        ("image_pull_policy", pulls),
        ("network_mode", !NETWORKS.contains(&named)),
        // A user without rights cannot write to the root of an image; root could.
        ("read_only_root_filesystem", step.read_only_root_filesystem == Some(true) && is_root),
        ("registry_credentials", step.registry_credentials.is_some()),
    ];
    fields.into_iter().find(|(_, there)| *there).map(|(field, _)| field)
}
