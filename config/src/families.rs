//! The one list of families: a new one is a line here and a crate of its own.
//!
//! From it come the sections of the configuration and what is wrong with them, the catalogue, the
//! actors below the root and their order, the routes of calls, the findings of `hivekeep check` and
//! what clients are told first. Families are mounted in this order, and taken down in the opposite
//! one; whoever needs a port of another stands behind it. A family that the demo does without is
//! marked, and an optional dependency of the feature `full`, which is the default.

use hivekeep_kernel::{ErrorCode, ToolError, ToolInfo};
use hivekeep_registry::Catalogue;
use hivekeep_runtime::{Daemon, Family, Finding, Host, Mounted};

use crate::Config;

/// Hands the list to a macro: for each family the attributes, among them the comment of its section in
/// `config.toml`, the section's name and the type.
macro_rules! families {
    ($apply:ident) => {
        $apply! {
            /// The network of the workspaces: who may reach whom, port forwards, names.
            network: hivekeep_network::NetworkFamily,
            /// The git tools: who one is for which server.
            git: hivekeep_git::GitFamily,
            /// Volumes: how many a user may have, and of what size.
            volume: hivekeep_volume::VolumeFamily,
            /// Workspaces: machines, images, guests.
            workspace: hivekeep_workspace::WorkspaceFamily,
            /// The vault: notes that outlive workspaces and sessions.
            #[cfg(feature = "full")]
            vault: hivekeep_vault::VaultFamily,
            /// Teams: how many, how deep, and what their inboxes hold.
            #[cfg(feature = "full")]
            team: hivekeep_team::TeamFamily,
            /// Swarms: how many run, and how long their results are kept.
            #[cfg(feature = "full")]
            swarm: hivekeep_swarm::SwarmFamily,
            /// Language runtimes: which image a manifest gets for a language and a version.
            #[cfg(feature = "full")]
            runtimes: hivekeep_introspection::IntrospectionFamily,
            /// Where sessions work: folders of the host that the operator opens to them.
            session: hivekeep_files::FilesFamily,
            /// Commands and processes in the places of sessions: what may be run there.
            #[cfg(feature = "full")]
            command: hivekeep_command::CommandFamily,
            /// Scripts: what a user's library holds.
            #[cfg(feature = "full")]
            script: hivekeep_script::ScriptFamily,
            /// Repositories on volumes: which machines clone them, and how many a user may have.
            #[cfg(feature = "full")]
            repository: hivekeep_repository::RepositoryFamily,
            /// Discovery: tools about tools.
            #[cfg(feature = "full")]
            discovery: hivekeep_discovery::DiscoveryFamily,
            /// Conversations: questions to people, modes, documents.
            #[cfg(feature = "full")]
            conversation: hivekeep_conversation::ConversationFamily,
            /// The web: what sessions fetch from it through this host, and who answers searches.
            #[cfg(feature = "full")]
            web: hivekeep_web::WebFamily,
            /// Other MCP servers whose tools are offered beside the daemon's own.
            #[cfg(feature = "full")]
            source: hivekeep_source::SourceFamily,
            /// Language models: providers, aliases and budgets.
            #[cfg(feature = "full")]
            model: hivekeep_model::ModelFamily,
            /// Agents: how many manifests a user keeps, how many executions run, and their bounds.
            #[cfg(feature = "full")]
            agent: hivekeep_agent::AgentFamily,
            /// Workflows and DAGs: how many manifests a user keeps, how many runs there are at a time, and how long
            /// they are kept.
            #[cfg(feature = "full")]
            workflow: hivekeep_workflow::WorkflowFamily,
            /// Chats with agents, builds and the dashboard of an editor: what counts as a build.
            #[cfg(feature = "full")]
            assistant: hivekeep_assistant::AssistantFamily,
            /// Ingestions of folders into collections, and retrieval from them.
            #[cfg(feature = "full")]
            ingest: hivekeep_ingest::IngestFamily,
            /// Artifacts: results too large for their answers, and how long they are kept.
            artifact: hivekeep_artifact::ArtifactFamily,
            /// Metrics: what sessions record and count, how long it is kept, and where it is written to.
            metrics: hivekeep_metrics::MetricsFamily,
            /// The hub over WebSocket: where it listens, and for whom.
            #[cfg(feature = "full")]
            hub: hivekeep_hub::HubFamily,
            /// Browsers: a Chrome for each session that asks for one, and what its pages reach.
            #[cfg(feature = "full")]
            browser: hivekeep_browser::BrowserFamily,
        }
    };
}
pub(crate) use families;

macro_rules! functions {
    ($($(#[$attribute:meta])* $name:ident: $family:ty,)+) => {
        /// The declarations of all tools.
        #[allow(unused_doc_comments)]
        pub fn tools() -> Vec<&'static ToolInfo> {
            let mut tools = Vec::new();
            $($(#[$attribute])* tools.extend(<$family>::tools());)+
            tools
        }

        /// The error codes of all families.
        #[allow(unused_doc_comments)]
        pub fn codes() -> Vec<&'static ErrorCode> {
            let mut codes = Vec::new();
            $($(#[$attribute])* codes.extend(<$family>::codes());)+
            codes
        }

        /// Instructions of each family for clients, in the order of the list.
        #[allow(unused_doc_comments)]
        pub const INSTRUCTIONS: &[&str] =
            &[$($(#[$attribute])* <$family>::INSTRUCTIONS,)+];

        /// Mounts all, or says which one could not be.
        #[allow(unused_doc_comments)]
        pub async fn mount(
            daemon: &Daemon,
            config: &Config,
        ) -> Result<Vec<Mounted>, (&'static str, ToolError)> {
            let mut mounted = Vec::new();
            $($(#[$attribute])* {
                let family = <$family>::mount(daemon, config.$name.clone()).await;
                mounted.push(family.map_err(|error| (stringify!($name), error))?);
            })+
            Ok(mounted)
        }

        /// Checks of all families on this host.
        #[allow(unused_doc_comments)]
        pub async fn check(config: &Config, host: &Host) -> Vec<Finding> {
            let mut found = Vec::new();
            $($(#[$attribute])* found.extend(<$family>::check(&config.$name, host).await);)+
            found
        }
    };
}
families!(functions);

/// The catalogue of all tools. Needs no daemon.
pub fn catalogue() -> Catalogue {
    // A test makes the catalogue; a program with a broken one is never built.
    Catalogue::new(tools()).expect("the declarations of the tools are sound")
}
