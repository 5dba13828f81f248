//! Errors that callers get when something is refused or fails.

use std::time::Duration;

use hivekeep_kernel::{Layer, TeamId, ToolError};
use hivekeep_runtime::{collection, log::LogError};

use crate::{codes, directory::LimitReached, inbox::Full};

pub(crate) fn unavailable(why: &LogError) -> ToolError {
    ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, format!("it cannot be read: {why}"))
        .next("restore the state directory from a backup; `hivekeep logs` says more")
        .retry_after(Duration::from_millis(500))
}

pub(crate) fn inbox_full(member: &str, full: Full) -> ToolError {
    let message = format!("the inbox of `{member}` is full: {full}");
    ToolError::new(Layer::Actor, codes::INBOX_FULL, message)
        .next("have it receive; nothing was put in")
        .retryable()
        .detail("messages", full.messages)
        .detail("bytes", full.bytes)
}

pub(crate) fn too_many_tasks(member: &str, tasks: usize, bytes: usize) -> ToolError {
    let message = format!("`{member}` has {tasks} tasks, of {bytes} bytes, already");
    ToolError::new(Layer::Actor, codes::INBOX_FULL, message)
        .next("receive its results, or wait for them; the task was not taken")
        .retryable()
        .detail("tasks", tasks)
        .detail("bytes", bytes)
}

pub(crate) fn task_differs(member: &str, task_id: &str) -> ToolError {
    let message = format!("`{member}` has been given another task `{task_id}` before");
    ToolError::new(Layer::Actor, codes::TASK_DIFFERS, message)
        .next("an id is for one task: choose another; nothing was assigned")
        .detail("task_id", task_id)
}

pub(crate) fn too_many_receivers(member: &str, waiting: usize) -> ToolError {
    let message = format!("{waiting} calls wait for messages of `{member}` already");
    ToolError::new(Layer::Actor, codes::TOO_MANY_RECEIVERS, message).retryable()
}

pub(crate) fn too_many_removers(waiting: usize) -> ToolError {
    let message = format!("{waiting} calls wait for the removal of this team already");
    ToolError::new(Layer::Actor, codes::TOO_MANY_WAITING, message)
        .next("team with action `status` shows what is left")
        .retryable()
}

pub(crate) fn kept_by(below: &str) -> ToolError {
    let message = format!("the team `{below}`, which is below it, is not gone");
    ToolError::new(Layer::Actor, codes::TEAM_STATE, message)
        .next("it is removed when nothing is below it any more")
        .retryable()
}

pub(crate) fn destroying(name: &str) -> ToolError {
    let message = format!("`{name}` is being destroyed");
    ToolError::new(Layer::Actor, codes::TEAM_STATE, message)
        .next("team with action `destroy` goes on with it; `status` shows what is left")
}

pub(crate) fn creating(name: &str) -> ToolError {
    let message = format!("`{name}` is still being made");
    ToolError::new(Layer::Actor, codes::TEAM_STATE, message)
        .next("wait until its creation has answered")
        .retryable()
}

pub(crate) fn given_up(name: &str, reason: &str) -> ToolError {
    let message = format!("the actor of `{name}` is down: {reason}");
    ToolError::new(Layer::Actor, codes::ACTOR_UNAVAILABLE, message)
        .next("the daemon's next start tries again; `hivekeep logs` says more")
}

pub(crate) fn no_team(name: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::TEAM_NOT_FOUND, "team", name)
        .next("team with action `list` shows the teams")
}

pub(crate) fn no_member(team: &str, agent: &str, members: Vec<String>) -> ToolError {
    let shown: String = agent.chars().take(80).collect();
    let message = format!("`{shown}` is not a member of `{team}`");
    ToolError::new(Layer::Actor, codes::MEMBER_NOT_FOUND, message)
        .next(format!("its members are {}", members.join(", ")))
        .detail("members", members)
}

pub(crate) fn alone(team: &str, agent: &str) -> ToolError {
    let message = format!("`{agent}` is the only member of `{team}`: there is nobody else");
    ToolError::new(Layer::Actor, codes::NO_RECIPIENTS, message)
        .next("name the member it is for; a member may write to itself")
}

pub(crate) fn not_owner(team: &str) -> ToolError {
    let message = format!("the team `{team}` belongs to another session");
    ToolError::new(Layer::Policy, codes::NOT_OWNER, message).next(
        "once that session is gone, workspace_adopt takes over the members' workspaces; whoever \
         owns all of them operates the team",
    )
}

pub(crate) fn plan(refused: LimitReached) -> ToolError {
    let message = refused.to_string();
    match refused {
        LimitReached::ParentGone => ToolError::new(Layer::Resolve, codes::TEAM_NOT_FOUND, message)
            .next("team with action `list` shows the teams"),
        LimitReached::ParentClosing(_) => ToolError::new(Layer::Actor, codes::TEAM_STATE, message),
        LimitReached::TooDeep { limit, .. } => {
            ToolError::new(Layer::Actor, codes::NESTING_TOO_DEEP, message).detail("limit", limit)
        }
        LimitReached::Budget { team, max_vms, used, wanted } => {
            ToolError::new(Layer::Actor, codes::TEAM_BUDGET_EXCEEDED, message)
                .next("name fewer roles, or destroy a team below it")
                .detail("team", team)
                .detail("max_vms", max_vms)
                .detail("used", used)
                .detail("wanted", wanted)
        }
        LimitReached::TooManyRoles { .. } | LimitReached::Total { .. } => limit(message),
    }
}

fn limit(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::TEAM_LIMIT, message)
        .next("destroy a team that is not needed any more, or name fewer roles")
}

pub(crate) fn team(name: &str, refused: collection::NotAdmitted<TeamId>) -> ToolError {
    match refused {
        collection::NotAdmitted::NameTaken(_) => {
            let message = format!("there is a team `{name}` already");
            ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
                .next("choose another name; team with action `list` shows those in use")
        }
        collection::NotAdmitted::Full(teams) => {
            limit(format!("there are {teams} teams, as many as `team.max_teams` allows"))
        }
    }
}
