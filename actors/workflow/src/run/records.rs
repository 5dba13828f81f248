//! Records of a run, in the order of its life; [`RunFold`](super::state::RunFold) is what they add up to.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, Utc};
use hivekeep_kernel::{CredentialId, RunId, SessionId, ToolError, User, WorkspaceId};
use hivekeep_manifest::dag::DagManifest;
use hivekeep_plan::{
    lower::StepWork,
    plan::RunPlan,
    progress::{NodeKey, ProgressRecord},
    resolve::{ItemScope, NamedTexts, RunBeginning, StepValues},
};
use hivekeep_ports::{OwnedSnapshot, SESSION_PLACE, TaskCapture};
use hivekeep_runtime::runs::RunQueue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    answers::{NodeWait, PersonAnswer},
    decisions::AgentDecision,
    delivery_record::DeliveryRecord,
};
use crate::machine::{MachineRecord, RunWorkflow};

/// Reason of a run's beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum RunTrigger {
    /// Somebody started it.
    Start,
    /// A time of its schedule came.
    Schedule {
        /// The time.
        time: DateTime<Utc>,
    },
    /// A stranger asked for it by a webhook.
    Webhook {
        /// Credential of the stranger.
        hook: CredentialId,
        /// Key that no other run of the webhook has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// A step of another run put it into a queue.
    Enqueue {
        /// The other run.
        run: RunId,
    },
    /// A step of another run runs it, or does it for one of its items.
    Parent {
        /// The other run.
        run: RunId,
        /// Try of the step.
        key: NodeKey,
        /// Place among the children of the try.
        child: u32,
    },
}

/// Place that the commands of a run are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "place", rename_all = "snake_case")]
pub enum RunPlace {
    /// Workspace of the run's own, made for it and gone with it.
    Own,
    /// Folder of the host or volume, in a sandbox that is the run's own.
    Folder(String),
    /// Volume that is made for the run, mounted by sandboxes that are the run's own; as `volume:LABEL`.
    Made(String),
    /// Workspace of the session that asked for the run.
    Workspace(String),
}

impl RunPlace {
    /// Volume that is made for a run.
    pub(crate) fn made(run: RunId) -> Self {
        Self::Made(format!("volume:{run}-work"))
    }

    /// Name, as tools take it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own => SESSION_PLACE,
            Self::Folder(place) | Self::Made(place) | Self::Workspace(place) => place,
        }
    }
}

/// Part of a run that the body of a loop in it sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoopBody {
    pub(crate) beginning: RunBeginning,
    /// Steps of the run that are before the loop.
    pub(crate) steps: BTreeMap<String, StepValues>,
    /// Items of this loop and of those around it, the innermost last.
    pub(crate) items: Vec<ItemScope>,
    /// Texts by name whose values the body leaves.
    pub(crate) collect: BTreeMap<String, String>,
}

/// Child of a try, decided on before any of them begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunChild {
    pub(crate) id: RunId,
    /// Name of the DAG that it runs; none for the body of a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dag: Option<String>,
    /// Parameters of a DAG, or the item of a loop.
    pub(crate) given: Value,
    /// Key of the item of a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// Times that its run was retried before, of one that is retried with the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    /// Queue of a run that waits for its place by itself, and is not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
}

/// First record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunBegun {
    pub(crate) id: RunId,
    pub(crate) user: User,
    /// Session that asked for it.
    pub(crate) session: SessionId,
    /// Name of the DAG or of the workflow.
    pub(crate) name: String,
    pub(crate) trigger: RunTrigger,
    /// Queue that it waits in for its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<RunQueue>,
    pub(crate) place: RunPlace,
    /// Folder of the guest for what its steps leave beside their results.
    pub(crate) folder: String,
    pub(crate) text: RunText,
    /// Number of runs above it.
    #[serde(default)]
    pub(crate) depth: u32,
    pub(crate) at: DateTime<Utc>,
}

/// Text of a run, with what its caller gave for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunText {
    Dag(Box<RunDag>),
    Workflow(Box<RunWorkflow>),
}

/// DAG of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunDag {
    /// DAG as its text has it.
    pub(crate) dag: Box<DagManifest>,
    /// Further documents of its text, which steps call by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) documents: BTreeMap<String, DagManifest>,
    /// Parameters as the caller gave them.
    pub(crate) given: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<Box<LoopBody>>,
}

/// DAG of the run; of a workflow, whose states are no steps, an empty one.
impl Deref for RunBegun {
    type Target = RunDag;

    fn deref(&self) -> &RunDag {
        static NONE: LazyLock<RunDag> = LazyLock::new(RunDag::default);
        match &self.text {
            RunText::Dag(text) => text,
            RunText::Workflow(_) => &NONE,
        }
    }
}

/// Values that all texts of a run read, and its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunResolved {
    pub(crate) beginning: RunBeginning,
    pub(crate) plan: Arc<RunPlan<StepWork>>,
}

/// Workspace of a run's commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunWorkspace {
    pub(crate) workspace: WorkspaceId,
    /// Folder of the guest that relative paths begin at.
    pub(crate) root: String,
    /// User of the guest that commands run as; the image's without one.
    pub(crate) user: Option<String>,
}

/// Values and files of a node that has ended, for whoever refers to it and for people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeLeft {
    /// Declared outputs.
    #[serde(skip_serializing_if = "NamedTexts::is_empty")]
    pub(crate) outputs: NamedTexts,
    /// Value of `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<Value>,
    /// Values that become outputs of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) published: Option<Value>,
    /// Variables for all steps behind it.
    #[serde(skip_serializing_if = "NamedTexts::is_empty")]
    pub(crate) variables: NamedTexts,
    /// Files of its streams in the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr_file: Option<String>,
    /// True of a child that succeeded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) succeeded: bool,
    /// Children of the try.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<RunChild>,
    /// Beginnings of its streams; in the log alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logs: Option<Box<TaskCapture>>,
    /// Steps that a router chose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) chosen: Vec<String>,
    /// Question, while the try waits for its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Box<NodeWait>>,
    /// Time at which the next try begins, of one that waits for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<DateTime<Utc>>,
    /// Answer of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<Box<PersonAnswer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Box<ToolError>>,
    /// Machine of a forked try that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Box<OwnedSnapshot>>,
    /// State of a workflow, of a run of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine: Option<Box<MachineRecord>>,
    /// Decision of an agent, of its step; in the log and with the run's decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Box<AgentDecision>>,
}

impl NodeLeft {
    pub(crate) fn of_machine(machine: MachineRecord) -> Self {
        Self { machine: Some(Box::new(machine)), ..Self::default() }
    }
}

/// Record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum RunRecord {
    /// The run begins.
    Begun(Box<RunBegun>),
    /// Its session is open.
    Opened {
        session: SessionId,
        /// True if the workspace of the attempt before is this session's now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inherits: bool,
        at: DateTime<Utc>,
    },
    /// Its parameters and its environment are resolved: once, whatever started it.
    Resolved {
        #[serde(flatten)]
        resolved: Box<RunResolved>,
        at: DateTime<Utc>,
    },
    /// The run cannot begin.
    Refused { error: Box<ToolError>, at: DateTime<Utc> },
    /// Its commands have a workspace.
    Placed { workspace: RunWorkspace, at: DateTime<Utc> },
    /// The run went on, and the node of the record has left this.
    Moved {
        progress: ProgressRecord,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<Box<NodeLeft>>,
    },
    /// An answer of a person waits for the state that takes it.
    Signalled { response: String, at: DateTime<Utc> },
    /// A container of a state or of a step has its workspace, and is about to run. `step` names it: of a step by its try.
    Contained { state: String, step: String, workspace: WorkspaceId, at: DateTime<Utc> },
    /// A receiver of its end is being told, or was.
    Delivered { about: Box<DeliveryRecord>, at: DateTime<Utc> },
    /// Its session is closed, or could not be.
    Closed {
        at: DateTime<Utc>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Box<ToolError>>,
    },
}

impl RunRecord {
    /// Progress that leaves nothing.
    pub(crate) fn moved(progress: ProgressRecord) -> Self {
        Self::Moved { progress, left: None }
    }

    /// Progress of a machine.
    pub(crate) fn machine(progress: ProgressRecord, machine: MachineRecord) -> Self {
        Self::Moved { progress, left: Some(Box::new(NodeLeft::of_machine(machine))) }
    }

    /// Time of the record.
    pub(crate) fn at(&self) -> DateTime<Utc> {
        match self {
            Self::Begun(begun) => begun.at,
            Self::Opened { at, .. }
            | Self::Resolved { at, .. }
            | Self::Refused { at, .. }
            | Self::Placed { at, .. }
            | Self::Signalled { at, .. }
            | Self::Contained { at, .. }
            | Self::Delivered { at, .. }
            | Self::Closed { at, .. } => *at,
            Self::Moved { progress, .. } => progress.at(),
        }
    }
}
