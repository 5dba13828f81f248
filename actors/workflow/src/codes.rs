//! Error codes of workflows and DAGs.

use hivekeep_kernel::ErrorCode;

/// The run does not exist, or is another user's.
pub const RUN_NOT_FOUND: &ErrorCode = &ErrorCode {
    name: "run_not_found",
    meaning: "The run does not exist, or is not yours.",
    cause: "The id is wrong, or the run was removed: by its user, or by age.",
    next_step: "List your runs with `dag_runs`.",
};

/// A step of a run did not come to its end.
pub const STEP_FAILED: &ErrorCode = &ErrorCode {
    name: "step_failed",
    meaning: "A step of a run failed.",
    cause: "Its command ended with another status than 0, ran out of its time, or wrote an output in another form.",
    next_step: "Read the step's logs, mend the cause, and retry the run from the step.",
};

/// A run of a workflow found no way on.
pub const NO_TRANSITION: &ErrorCode = &ErrorCode {
    name: "no_transition",
    meaning: "A state of a workflow has ended, and none of its transitions holds.",
    cause: "Its conditions leave out what came of it, such as a failure or an output without a score.",
    next_step: "Add a transition for that to the state, and run the workflow again.",
};

/// A run of a workflow failed.
pub const WORKFLOW_FAILED: &ErrorCode = &ErrorCode {
    name: "workflow_failed",
    meaning: "A run of a workflow failed.",
    cause: "Its last state failed, a text could not be rendered, or a bound was reached: `details.failure`.",
    next_step: "Read its logs, mend what the message names, and run it again.",
};

/// A workflow cannot be run as it is written, or not so.
pub const WORKFLOW_INVALID: &ErrorCode = &ErrorCode {
    name: "workflow_invalid",
    meaning: "The workflow cannot be run.",
    cause: "Its manifest has a field that no run obeys, or the input or the blackboard does not fit.",
    next_step: "Mend what the message names, and run it again.",
};

/// A DAG cannot be run as it is written.
pub const DAG_INVALID: &ErrorCode = &ErrorCode {
    name: "dag_invalid",
    meaning: "The DAG cannot be run.",
    cause: "Its text has problems, or a parameter of the run does not fit what it declares.",
    next_step: "Mend what the message names; `hivekeep dag validate` checks a file.",
};

/// A secret of a run cannot be read.
pub const SECRET_UNREADABLE: &ErrorCode = &ErrorCode {
    name: "secret_unreadable",
    meaning: "A secret that the DAG names cannot be read.",
    cause: "The operator has none of the name, or not for you, or its file is not there.",
    next_step: "Have the operator put it under `workflow.secrets`, with you among its `users`.",
};

/// The output of a step is not as its schema says.
pub const OUTPUT_INVALID: &ErrorCode = &ErrorCode {
    name: "output_invalid",
    meaning: "The output of a step does not fit its `output_schema`.",
    cause: "Its standard output is not JSON, or another JSON than the schema takes: `details.problems`.",
    next_step: "Have the command write what the schema says, and all else to its standard error.",
};

/// Sessions may write where DAGs begin by themselves.
pub const FOLDER_WRITABLE: &ErrorCode = &ErrorCode {
    name: "dag_folder_writable",
    meaning: "A place whose DAGs begin by themselves may be written by every session.",
    cause: "`workflow.folders` names a place with `read_only = false`: a file there is run as its owner.",
    next_step: "Open the folder read-only, and write its files from outside.",
};

/// The workflow does not exist, or is another user's.
pub const WORKFLOW_NOT_FOUND: &ErrorCode = &ErrorCode {
    name: "workflow_not_found",
    meaning: "The workflow does not exist, or is not yours.",
    cause: "The id or the name is wrong, or the workflow was deleted.",
    next_step: "List the workflows with `aegis.workflow.list`.",
};

/// The judges of a manifest were not content.
pub const WORKFLOW_REJECTED: &ErrorCode = &ErrorCode {
    name: "workflow_rejected",
    meaning: "The workflow's judges were not content with its manifest, or gave no judgment.",
    cause: "Their score or their confidence is below what was asked for.",
    next_step: "Mend what `details.judgment` says, or ask for less by `min_score` and `min_confidence`.",
};

/// There is no machine for programs of the language.
pub const RUNTIME_MISSING: &ErrorCode = &ErrorCode {
    name: "runtime_missing",
    meaning: "No runtime of the language is there.",
    cause: "The table `runtimes.images` has none that is in use.",
    next_step: "Have the operator add one, or use another language.",
};

/// A step that somebody answers does not wait for an answer.
pub const STEP_NOT_WAITING: &ErrorCode = &ErrorCode {
    name: "step_not_waiting",
    meaning: "The step does not wait for a person.",
    cause: "It has not come that far, was stopped, asks nobody, or its name is another.",
    next_step: "Look at the run with `dag_runs`: it shows the steps that wait, with their questions.",
};

/// A step has another answer already.
pub const ANSWERED_OTHERWISE: &ErrorCode = &ErrorCode {
    name: "answered_otherwise",
    meaning: "The step was answered differently before.",
    cause: "Somebody else answered first, here or in the approvals; the first answer counts.",
    next_step: "Look at the run with `dag_runs`; retry it from the step if the answer was wrong.",
};

/// An agent answers what a person is asked.
pub const ANSWER_DENIED: &ErrorCode = &ErrorCode {
    name: "answer_denied",
    meaning: "An agent cannot answer what a person is asked.",
    cause: "A step or state that asks a person was answered by an agent of the daemon, or by a step of a run.",
    next_step: "Have the run's owner answer: `hivekeep dag approve RUN STEP`, or `hivekeep approvals`.",
};

/// All of them.
pub const ALL: &[&ErrorCode] = &[
    RUN_NOT_FOUND,
    STEP_FAILED,
    SECRET_UNREADABLE,
    OUTPUT_INVALID,
    DAG_INVALID,
    FOLDER_WRITABLE,
    STEP_NOT_WAITING,
    ANSWERED_OTHERWISE,
    ANSWER_DENIED,
    WORKFLOW_NOT_FOUND,
    WORKFLOW_REJECTED,
    RUNTIME_MISSING,
    NO_TRANSITION,
    WORKFLOW_FAILED,
    WORKFLOW_INVALID,
];
