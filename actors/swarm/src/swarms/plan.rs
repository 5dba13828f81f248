//! A planner: from a request to a plan. All that can be refused is refused here, before anything is
//! made.

use std::collections::{BTreeMap, BTreeSet};

use chrono::Utc;
use hivekeep_kernel::{CallCx, Layer, SwarmId, ToolError};
use hivekeep_runtime::{ListedWorkspace as Row, OnBehalfOf};

use super::contexts;
use crate::{
    codes,
    shared::SwarmShared,
    swarm::state::{ContextFile, MergePlan, SwarmPlan, TaskPlan},
    tools::{
        DEFAULT_PARALLEL, DEFAULT_TIMEOUT_SECS, SwarmMergeStrategy, SwarmRun, SwarmTask,
        SwarmVaultQuery,
    },
};

/// Longest command that a guest takes.
const LONGEST_COMMAND: usize = 256 * 1024;
/// Names and values of a task's environment. A guest takes twice as much, with the workspace's own.
const MOST_ENV_BYTES: usize = 256 * 1024;
const LONGEST_NAME: usize = 64;
const LONGEST_PATH: usize = 4096;
/// The part of a workspace's name that is the task's.
const LONGEST_PART: usize = 40;

/// A request that makes sense by itself.
pub(super) struct SwarmRequest {
    golden: String,
    snapshot: String,
    tasks: Vec<SwarmTask>,
    env: BTreeMap<String, String>,
    merge: Option<(SwarmMergeStrategy, String)>,
    max_parallel: usize,
    timeout_secs: u64,
    cleanup: bool,
    allow_internet: Option<bool>,
    vault: Vec<SwarmVaultQuery>,
    shared: Option<String>,
}

impl SwarmRequest {
    pub(super) fn of(input: SwarmRun) -> Result<Self, ToolError> {
        let max_parallel = input.max_parallel.unwrap_or(DEFAULT_PARALLEL) as usize;
        let timeout_secs = input.timeout_secs.unwrap_or(DEFAULT_TIMEOUT_SECS);
        let mut names = BTreeSet::new();
        for (at, task) in input.tasks.iter().enumerate() {
            sound(at, task)?;
            if !names.insert(&task.name) {
                let message = format!("tasks[{at}].name: `{}` is another task's, too", task.name);
                return Err(ToolError::invalid(message).next("give each task a name of its own"));
            }
            let all = || input.env_vars.iter().chain(&task.env);
            environment(&format!("tasks[{at}].env with env_vars"), all())?;
        }
        let merge = match (input.merge_strategy, input.merge_target) {
            (None, None) => None,
            (Some(strategy), target) => {
                Some((strategy, target.unwrap_or_else(|| input.golden_workspace.clone())))
            }
            (None, Some(_)) => {
                return Err(ToolError::invalid("merge_target without merge_strategy")
                    .next("name a merge_strategy, or leave merge_target out"));
            }
        };
        contexts::check(&input.vault_context, input.shared_context.as_deref())?;
        Ok(Self {
            golden: input.golden_workspace,
            snapshot: input.snapshot_name,
            tasks: input.tasks,
            env: input.env_vars,
            merge,
            max_parallel,
            timeout_secs,
            cleanup: input.cleanup.unwrap_or(true),
            allow_internet: input.allow_internet,
            vault: input.vault_context,
            shared: input.shared_context,
        })
    }

    /// Looks whether what it names is there, and gives names to the forks.
    pub(super) async fn plan(
        self,
        shared: &SwarmShared,
        id: SwarmId,
        cx: &CallCx,
    ) -> Result<SwarmPlan, ToolError> {
        let caller = OnBehalfOf::call(cx);
        let rows = shared.tools.workspaces(id, &caller).await?;
        let golden = own(&rows, &self.golden)?;
        let (golden_id, golden_name) = (golden.workspace_id, golden.name.clone());
        let snapshots = shared.tools.look(id, &caller, &golden_id.to_string()).await?.snapshots;
        if !snapshots.iter().any(|snapshot| snapshot.name == self.snapshot) {
            let names: Vec<_> = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
            let message = format!("`{golden_name}` has no snapshot `{}`", shown(&self.snapshot));
            return Err(ToolError::new(Layer::Actor, codes::SNAPSHOT_NOT_FOUND, message)
                .next("name one of its snapshots, or make one with snapshot")
                .detail("snapshots", names));
        }
        let merge = match self.merge {
            None => None,
            Some((strategy, target)) => {
                let row = own(&rows, &target)?;
                let target = row.workspace_id;
                let state = shared.tools.look(id, &caller, &target.to_string()).await?.state;
                if !matches!(state.as_str(), "running" | "parked") {
                    let message = format!("merge_target `{}` is {state}", row.name);
                    return Err(ToolError::new(Layer::Actor, codes::WORKSPACE_STATE, message)
                        .next("start it first: commits are merged into a running workspace"));
                }
                Some(MergePlan { strategy, target })
            }
        };
        let contexts: Vec<ContextFile> =
            contexts::gather(shared, id, &caller, self.vault, self.shared).await?;
        let mut env = self.env;
        env.extend(contexts.iter().filter_map(contexts::variable));
        let taken = rows.into_iter().map(|row| row.name).collect();
        Ok(SwarmPlan {
            id,
            owner: cx.session,
            at: Utc::now(),
            golden: golden_id,
            snapshot: self.snapshot,
            tasks: jobs(id, self.tasks, taken),
            env,
            contexts,
            max_parallel: self.max_parallel,
            timeout_secs: self.timeout_secs,
            cleanup: self.cleanup,
            allow_internet: self.allow_internet,
            merge,
        })
    }
}

fn sound(at: usize, task: &SwarmTask) -> Result<(), ToolError> {
    let wrong = |what: &str| Err(ToolError::invalid(format!("tasks[{at}].{what}")));
    let SwarmTask { name, command, workdir, .. } = task;
    if name.trim().is_empty()
        || name.chars().count() > LONGEST_NAME
        || name.chars().any(char::is_control)
    {
        return wrong("name: 1 to 64 characters that can be shown");
    }
    if command.trim().is_empty() || command.len() > LONGEST_COMMAND || command.contains('\0') {
        return wrong("command: a script of 1 to 262144 bytes");
    }
    let good = |dir: &String| {
        dir.starts_with('/') && dir.len() <= LONGEST_PATH && !dir.chars().any(char::is_control)
    };
    if !workdir.as_ref().is_none_or(good) {
        return wrong("workdir: an absolute path of at most 4096 bytes");
    }
    Ok(())
}

/// Checks variables like a workspace does, so that nothing is made for a task that would be refused.
fn environment<'v>(
    what: &str,
    vars: impl Iterator<Item = (&'v String, &'v String)>,
) -> Result<(), ToolError> {
    let mut bytes = 0;
    for (name, value) in vars {
        bytes += name.len() + value.len();
        let head =
            name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        let body = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !head || !body {
            return Err(ToolError::invalid(format!(
                "{what}: `{}` is not a valid variable",
                shown(name)
            ))
            .next("use letters, digits and _, not beginning with a digit"));
        }
        if matches!(name.as_str(), "PATH" | "IFS" | "ENV" | "BASH_ENV") || name.starts_with("LD_") {
            return Err(ToolError::invalid(format!("{what}: `{}` may not be set", shown(name)))
                .next("set it inside the command, for example `PATH=/opt/bin:$PATH make`"));
        }
        if value.contains('\0') {
            let message = format!("{what}: the value of `{}` holds a NUL byte", shown(name));
            return Err(ToolError::invalid(message));
        }
    }
    if bytes > MOST_ENV_BYTES {
        return Err(ToolError::invalid(format!("{what}: more than {MOST_ENV_BYTES} bytes")));
    }
    Ok(())
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The workspace of an id or a name, if it is the session's.
fn own<'r>(rows: &'r [Row], key: &str) -> Result<&'r Row, ToolError> {
    let by_name = rows.iter().find(|row| row.name == key);
    let found = by_name.or_else(|| rows.iter().find(|row| row.workspace_id.to_string() == key));
    let row = found.ok_or_else(|| {
        ToolError::not_found(Layer::Resolve, codes::WORKSPACE_NOT_FOUND, "workspace", key)
            .next("workspace_list shows the workspaces there are")
    })?;
    if row.owned {
        return Ok(row);
    }
    Err(ToolError::not_owner())
}

/// Names that no workspace has: `swarm-`, digits of the swarm's id, the task's name as far as it
/// fits a DNS label.
fn jobs(id: SwarmId, tasks: Vec<SwarmTask>, mut taken: BTreeSet<String>) -> Vec<TaskPlan> {
    let hex = id.uuid().simple().to_string();
    let digits = &hex[hex.len() - 8..];
    let named = tasks.into_iter().map(|task| {
        let stem = format!("swarm-{digits}-{}", part(&task.name));
        let numbered = (2_u32..).map(|number| format!("{stem}-{number}"));
        let workspace = std::iter::once(stem.clone())
            .chain(numbered)
            .find(|name| taken.insert(name.clone()))
            .expect("there are more numbers than workspaces");
        let SwarmTask { name, command, workdir, env } = task;
        TaskPlan { name, command, workdir, env, workspace }
    });
    named.collect()
}

/// A task's name as part of a workspace's.
fn part(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(letter).take(LONGEST_PART).collect();
    let text = text.trim_matches('-');
    if text.is_empty() { "task".to_owned() } else { text.to_owned() }
}
