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

/// A DAG cannot be run as it is written.
pub const DAG_INVALID: &ErrorCode = &ErrorCode {
    name: "dag_invalid",
    meaning: "The DAG cannot be run.",
    cause: "Its text has problems, or a parameter of the run does not fit what it declares.",
    next_step: "Mend what the message names; `hivekeep dag validate` checks a file.",
};

/// All of them.
pub const ALL: &[&ErrorCode] = &[RUN_NOT_FOUND, STEP_FAILED, DAG_INVALID];
