//! Error codes of repositories.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such repository.
    REPOSITORY_NOT_FOUND = "repository_not_found" {
        cause: "The id or label is wrong, the repository was deleted, or it is another user's.",
        next: "`aegis.git.list` shows yours.",
    }
    /// Another operation works on the repository.
    REPOSITORY_BUSY = "repository_busy" {
        cause: "One operation at a time works on a repository; `aegis.git.status` says which one.",
        next: "Repeat the call when it has ended.",
    }
    /// The repository was never cloned whole.
    REPOSITORY_NOT_READY = "repository_not_ready" {
        cause: "Its clone goes on, or failed as `error` of `aegis.git.status` says.",
        next: "Wait until its status is `ready`; after a failure `aegis.git.refresh` clones again.",
    }
    /// Workspaces have the repository's volume.
    REPOSITORY_IN_USE = "repository_in_use" {
        cause: "Workspaces have its volume in their `volumes`, whether they run or not.",
        next: "Destroy the workspaces that the message names, or start them with other `volumes`.",
    }
    /// The user would have more repositories than are allowed.
    REPOSITORY_QUOTA_EXCEEDED = "repository_quota_exceeded" {
        cause: "`repository.max_repositories` or the user's tier is reached.",
        next: "Delete a repository with `aegis.git.delete`, or raise the limit.",
    }
    /// The repository has commits, or a branch, that a refresh would take away.
    REPOSITORY_DIVERGED = "repository_diverged" {
        cause: "Commits were not pushed, or something else than the bound branch, tag or commit is checked out.",
        next: "Push with `aegis.git.push`, or refresh with `discard`, which gives these commits up.",
    }
    /// The new tree could not be checked out; the old one is as it was.
    REFRESH_NOT_APPLIED = "refresh_not_applied" {
        cause: "Uncommitted changes are in the way, or the volume has no room for the new files.",
        next: "`details.output` has git's own words: commit or remove what is in the way, or refresh with `discard`.",
    }
    /// Nothing is changed, so there is nothing to commit.
    NOTHING_TO_COMMIT = "nothing_to_commit" {
        cause: "The work tree is as its last commit.",
        next: "Change files first, by `aegis.file.write` or in a workspace that has the volume.",
    }
    /// This kind of remote cannot be used.
    REMOTE_UNSUPPORTED = "remote_unsupported" {
        cause: "Remotes over ssh need a key, and the daemon keeps none; files of the host cannot be remotes.",
        next: "Give an https:// address, with a token where the server wants one, or volume://LABEL/PATH.",
    }
    /// The operator has no such credential for the remote.
    CREDENTIAL_UNKNOWN = "credential_unknown" {
        cause: "`credential_binding_id` is not a `host` of `git.credentials`, or another one is used for the remote.",
        next: "Leave it out, or have the operator add the server to `git.credentials`.",
    }
    /// Repositories are not refreshed by themselves.
    AUTO_REFRESH_UNSUPPORTED = "auto_refresh_unsupported" {
        cause: "The daemon takes no webhooks.",
        next: "Leave `auto_refresh` out, and call `aegis.git.refresh` when it is needed.",
    }
    /// The volume of the repository could not be changed on the host.
    REPOSITORY_FAILED = "repository_failed" {
        cause: "A system call failed on the host, or a command in the repository's workspace, as the message says.",
        next: "Run `hivekeep check` on the host and look at `hivekeep logs`.",
    }
}
