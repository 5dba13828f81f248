//! States of a workflow by their kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Transition;
use crate::agent::{Consensus, RunIsolation};
use crate::common::{
    AttemptLimit, ImagePullPolicy, Labels, OutputHandler, ResourceLimits, Share, TimeSpan,
};

/// Declares the kinds of states, each with the fields that all have: a body denies unknown fields,
/// which serde cannot do for one that is flattened.
macro_rules! states {
    ($($(#[$doc:meta])* $kind:ident {
        $($(#[$attribute:meta])* $field:ident: $type:ty,)*
    })+) => {
        /// State of a workflow, by `kind`.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "kind", deny_unknown_fields)]
        pub enum WorkflowState {
            $($(#[$doc])* $kind {
                $($(#[$attribute])* $field: $type,)*
                /// Ways out, of which the first whose condition holds is taken; none ends the
                /// workflow here.
                transitions: Vec<Transition>,
                /// Longest stay.
                timeout: Option<TimeSpan>,
                /// Most visits in one run. Default: 5.
                #[schemars(range(min = 1, max = 20))]
                max_state_visits: Option<u64>,
            },)+
        }

        impl WorkflowState {
            /// Kind, as manifests name it.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$kind { .. } => stringify!($kind),)+ }
            }

            /// Longest stay.
            pub fn timeout(&self) -> Option<&TimeSpan> {
                match self { $(Self::$kind { timeout, .. } => timeout.as_ref(),)+ }
            }

            /// Ways out, in the order in which they are tried.
            pub fn transitions(&self) -> &[Transition] {
                match self { $(Self::$kind { transitions, .. } => transitions,)+ }
            }

            /// Most visits in one run.
            pub fn max_state_visits(&self) -> u64 {
                let most = match self {
                    $(Self::$kind { max_state_visits, .. } => max_state_visits,)+
                };
                most.unwrap_or(5)
            }
        }
    };
}

states! {
    /// Runs an agent until its judges are content.
    Agent {
        /// Name of the agent; a template is resolved when the state is entered.
        #[schemars(length(min = 1))]
        agent: String,
        /// Template of its input.
        input: String,
        /// Template of its intent.
        intent: Option<String>,
        /// Isolation.
        isolation: Option<RunIsolation>,
        /// Agents that judge its output.
        judges: Option<Vec<PanelJudge>>,
        /// Most iterations. Default: 10.
        #[schemars(range(min = 1, max = 100))]
        max_iterations: Option<u64>,
        /// Name of an agent that judges the input first.
        pre_execution_validator: Option<String>,
        /// Receiver of the result.
        output_handler: Option<OutputHandler>,
    }
    /// Runs a command.
    System {
        /// Template of the command.
        #[schemars(length(min = 1))]
        command: String,
        /// Environment.
        env: Option<Labels>,
        /// Folder that it runs in.
        workdir: Option<String>,
    }
    /// Waits for a person.
    Human {
        /// Template of the question.
        #[schemars(length(min = 1))]
        prompt: String,
        /// Answer when the time is over; without one that is a failure.
        default_response: Option<String>,
    }
    /// Runs several agents, whose scores become one.
    ParallelAgents {
        /// The agents.
        #[schemars(length(min = 1, max = 100))]
        agents: Vec<ParallelAgent>,
        /// How their scores become one.
        consensus: ParallelConsensus,
        /// Agents that judge them.
        judges_for_parallel: Option<Vec<PanelJudge>>,
        /// Receiver of the result.
        output_handler: Option<OutputHandler>,
    }
    /// Runs a container.
    ContainerRun {
        /// Name of the step.
        #[schemars(length(min = 1))]
        name: String,
        /// Reference of the image.
        #[schemars(length(min = 1))]
        image: String,
        /// When the image is fetched.
        image_pull_policy: Option<ImagePullPolicy>,
        /// Program and arguments.
        #[schemars(length(min = 1))]
        command: Vec<String>,
        /// Environment.
        env: Option<Labels>,
        /// Folder that it runs in.
        workdir: Option<String>,
        /// Volumes.
        volumes: Option<Vec<ContainerVolume>>,
        /// Limits.
        resources: Option<ResourceLimits>,
        /// Name of the credentials of the image's registry.
        registry_credentials: Option<String>,
        /// Attempts after a failure.
        retry: Option<AttemptLimit>,
        /// True if the command goes through a shell.
        shell: Option<bool>,
        /// True if its root cannot be written.
        read_only_root_filesystem: Option<bool>,
        /// User that it runs as.
        run_as_user: Option<Box<ContainerUser>>,
        /// Mode of its network.
        network_mode: Option<String>,
        /// Receiver of the result.
        output_handler: Option<OutputHandler>,
    }
    /// Runs several containers.
    ParallelContainerRun {
        /// The containers.
        #[schemars(length(min = 1, max = 100))]
        steps: Vec<ContainerStep>,
        /// Containers that have to succeed for the state to succeed.
        completion: Option<NodeCompletion>,
        /// Receiver of the result.
        output_handler: Option<OutputHandler>,
    }
    /// Runs another workflow.
    Subworkflow {
        /// Name or id of the workflow.
        #[schemars(length(min = 1))]
        workflow_id: String,
        /// Whether its end is waited for. Default: `blocking`.
        mode: Option<SubworkflowMode>,
        /// Key of the blackboard for its result; if and only if its end is waited for.
        result_key: Option<String>,
        /// Template of its input.
        input: Option<String>,
    }
}

/// Judge of an agent's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PanelJudge {
    /// Name of the agent.
    #[schemars(length(min = 1))]
    pub agent_id: String,
    /// Template of its input.
    pub input_template: Option<String>,
    /// Weight. Default: 1.
    #[schemars(range(min = 0.0))]
    pub weight: Option<f64>,
}

/// Agent beside others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelAgent {
    /// Name of the agent.
    #[schemars(length(min = 1))]
    pub agent: String,
    /// Template of its input.
    pub input: String,
    /// Weight. Default: 1.
    #[schemars(range(min = 0.0))]
    pub weight: Option<f64>,
    /// Longest run in seconds. Default: 60.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u64>,
    /// Pause between two looks in milliseconds. Default: 500.
    #[schemars(range(min = 1))]
    pub poll_interval_ms: Option<u64>,
}

/// How the scores of several agents become one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParallelConsensus {
    /// The rule.
    pub strategy: Consensus,
    /// Score that counts as a yes. Default: 0.7.
    pub threshold: Option<Share>,
    /// Least agreement.
    pub min_agreement_confidence: Option<Share>,
    /// How many of the best count.
    #[schemars(range(min = 1))]
    pub n: Option<u64>,
    /// Judges that have to answer. Default: 1.
    #[schemars(range(min = 1))]
    pub min_judges_required: Option<u64>,
    /// Shares of agreement and of the judges' own confidence.
    pub confidence_weighting: Option<ConfidenceWeighting>,
}

/// Shares of a confidence; their sum is 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfidenceWeighting {
    /// Share of the judges' agreement. Default: 0.7.
    pub agreement_factor: Share,
    /// Share of the judges' own confidence. Default: 0.3.
    pub self_confidence_factor: Share,
}

/// Container beside others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerStep {
    /// Name, which no other step has.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Reference of the image.
    #[schemars(length(min = 1))]
    pub image: String,
    /// When the image is fetched.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Program and arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Environment.
    pub env: Option<Labels>,
    /// Folder that it runs in.
    pub workdir: Option<String>,
    /// Volumes.
    pub volumes: Option<Vec<ContainerVolume>>,
    /// Limits.
    pub resources: Option<ResourceLimits>,
    /// Name of the credentials of the image's registry.
    pub registry_credentials: Option<String>,
    /// Attempts after a failure.
    pub retry: Option<AttemptLimit>,
    /// True if the command goes through a shell.
    pub shell: Option<bool>,
    /// True if its root cannot be written.
    pub read_only_root_filesystem: Option<bool>,
    /// User that it runs as.
    pub run_as_user: Option<Box<ContainerUser>>,
    /// Mode of its network.
    pub network_mode: Option<String>,
}

/// User that a container runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ContainerUser {
    /// Id of the user, whose group has the same.
    Id(u32),
    /// Ids of user and group, as `65534:65534`; a user's alone, as `65534`.
    Ids(#[schemars(regex(pattern = "^[0-9]{1,9}(:[0-9]{1,9})?$"))] String),
}

/// Volume of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContainerVolume {
    /// Name of the volume.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Absolute path that it appears at.
    #[schemars(regex(pattern = r"^/[^\x00]*$"))]
    pub mount_path: String,
    /// True if it cannot be written.
    pub read_only: Option<bool>,
}

/// Containers that have to succeed for a state that runs several to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeCompletion {
    /// Every container.
    AllSucceed,
    /// At least one container.
    AnySucceed,
    /// No container: the state succeeds in any case.
    BestEffort,
}

/// Whether the end of a workflow is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubworkflowMode {
    /// Yes.
    Blocking,
    /// No.
    FireAndForget,
}
