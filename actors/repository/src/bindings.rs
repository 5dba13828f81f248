//! Judgments on all repositories together: which one is meant, which labels are free, how many more.

use std::collections::BTreeMap;

use hivekeep_kernel::{Layer, RepositoryId, ToolError, User};
use hivekeep_runtime::log::Log;

use crate::{binding::Binding, codes};

pub(crate) type RepositoryResult<T> = Result<T, ToolError>;
pub(crate) type BindingLogs = BTreeMap<RepositoryId, Log<Binding>>;

/// Repositories of a user with everything decided, oldest first.
pub(crate) fn owned(
    logs: &BindingLogs,
    owner: User,
) -> impl Iterator<Item = (RepositoryId, Binding)> {
    let decided = |log: &Log<Binding>| log.views(|decided, _| decided.cloned());
    let all = logs.iter().filter_map(move |(id, log)| Some((*id, decided(log)?)));
    all.filter(move |(_, binding)| binding.terms.owner == owner)
}

/// A user's repository, by id or label.
///
/// # Errors
/// `repository_not_found`.
pub(crate) fn find(
    logs: &BindingLogs,
    owner: User,
    asked: &str,
) -> RepositoryResult<(RepositoryId, Log<Binding>)> {
    let id = asked.parse().ok();
    let by_id = owned(logs, owner).find(|(found, _)| Some(*found) == id);
    let found =
        by_id.or_else(|| owned(logs, owner).find(|(_, binding)| binding.terms.label == asked));
    let found = found.and_then(|(id, _)| Some((id, logs.get(&id)?.clone())));
    found.ok_or_else(|| not_found(asked))
}

pub(crate) fn not_found(asked: &str) -> ToolError {
    ToolError::not_found(Layer::Resolve, codes::REPOSITORY_NOT_FOUND, "repository", asked)
        .next("aegis.git.list shows yours")
}

/// Refuses one repository more that the user may not have.
///
/// # Errors
/// `name_taken`, `repository_quota_exceeded`.
pub(crate) fn admit(
    logs: &BindingLogs,
    owner: User,
    label: &str,
    most: usize,
) -> RepositoryResult<()> {
    let own: Vec<_> = owned(logs, owner).collect();
    if own.iter().any(|(_, binding)| binding.terms.label == label) {
        let message = format!("you have a repository `{label}` already");
        return Err(ToolError::new(Layer::Actor, codes::NAME_TAKEN, message)
            .next("use it, or choose another label"));
    }
    if own.len() < most {
        return Ok(());
    }
    let message = format!("you have {} repositories, as many as may be", own.len());
    Err(ToolError::new(Layer::Quota, codes::REPOSITORY_QUOTA_EXCEEDED, message)
        .next("delete one with aegis.git.delete")
        .detail("repository_count", own.len())
        .detail("max_repositories", most))
}

/// Volume of a repository, as its label among the user's volumes.
pub(crate) fn volume_label(label: &str) -> String {
    format!("git-{label}")
}
