//! Error codes of the git tools and of merges.

pub(crate) use hivekeep_kernel::codes::*;
pub(crate) use hivekeep_link::codes::*;

hivekeep_kernel::codes! {
    /// The image has no git.
    GIT_MISSING = "git_missing" {
        cause: "The workspace was made from an image without it.",
        next: "Install git in the workspace, or use an image that has it.",
    }
    /// Git did not end in time and was killed.
    GIT_TIMED_OUT = "git_timed_out" {
        cause: "The repository is large, or a server does not answer.",
        next: "Look at what it left with `git_status`, then repeat with a larger `timeout_secs`.",
    }
    /// A git command failed.
    GIT_FAILED = "git_failed" {
        cause: "Git refused a step of a merge.",
        next: "`details.output` says why.",
    }
    /// The repository could not be cloned.
    GIT_CLONE_FAILED = "git_clone_failed" {
        cause: "The address is wrong, or the network policy or the server does not let the workspace through.",
        next: "`details.output` says why; `network_policy` and `git.ca_file` are the usual remedies.",
    }
    /// The status could not be read.
    GIT_STATUS_FAILED = "git_status_failed" {
        cause: "Git failed in the repository.",
        next: "`details.output` says why.",
    }
    /// Nothing could be staged or committed.
    GIT_COMMIT_FAILED = "git_commit_failed" {
        cause: "A path does not exist, or the repository is locked or damaged.",
        next: "`details.output` says why; what was staged is still staged.",
    }
    /// The differences could not be read.
    GIT_DIFF_FAILED = "git_diff_failed" {
        cause: "A revision or path does not exist in the repository.",
        next: "`details.output` says why.",
    }
    /// The branch could not be pushed.
    GIT_PUSH_FAILED = "git_push_failed" {
        cause: "The address, the workspace's network policy, the server or its certificate.",
        next: "`details.output` says why.",
    }
    /// Git printed something that cannot be read.
    GIT_OUTPUT_UNREADABLE = "git_output_unreadable" {
        cause: "The workspace's git is older than version 2.11, or was replaced.",
        next: "Look at `git --version` by `exec`.",
    }
    /// The path is in no git work tree.
    NOT_A_REPOSITORY = "not_a_repository" {
        cause: "`path` is wrong, or nothing was cloned there.",
        next: "Name the folder of a repository as `path`, or clone one with `git_clone`.",
    }
    /// The repository belongs to several users of the guest.
    UNSAFE_REPOSITORY = "unsafe_repository" {
        cause: "Git runs as the owner of `.git`, and does not trust a work tree of another user.",
        next: "Change the owner by `exec` as `root` with `chown -R`, or allow it by `exec` as the owner of `.git` with `git config --global --add safe.directory PATH`.",
    }
    /// The repository has no work tree.
    BARE_REPOSITORY = "bare_repository" {
        cause: "`path` is in a bare repository, or in a `.git` folder.",
        next: "Name the work tree of a repository.",
    }
    /// The destination of a clone is not empty.
    DESTINATION_NOT_EMPTY = "destination_not_empty" {
        cause: "A file or a folder with files is there.",
        next: "Give another `path`, or remove what is there.",
    }
    /// Nothing could be fetched.
    GIT_FETCH_FAILED = "git_fetch_failed" {
        cause: "The address, the network policy of the workspace, the server, its certificate, or a commit that the server does not give out.",
        next: "`details.output` has git's own words.",
    }
    /// There is no such branch.
    BRANCH_NOT_FOUND = "branch_not_found" {
        cause: "The name is wrong, or the branch has no commit yet.",
        next: "`git branch` by `exec` lists the branches.",
    }
    /// There is no such remote.
    REMOTE_NOT_FOUND = "remote_not_found" {
        cause: "The repository was not cloned, or its remote has another name.",
        next: "Add it by `exec` with `git remote add NAME URL`.",
    }
    /// A commit is checked out, not a branch.
    DETACHED_HEAD = "detached_head" {
        cause: "A tag or a commit was checked out.",
        next: "Give `branch`, or make one by `exec` with `git switch -c NAME`.",
    }
    /// Git does not know who commits.
    IDENTITY_MISSING = "identity_missing" {
        cause: "Neither the call nor git's configuration names an author.",
        next: "Give `author_name` and `author_email`, or set `user.name` and `user.email` by `exec`.",
    }
    /// A hook of the repository refused the commit.
    COMMIT_REFUSED = "commit_refused" {
        cause: "A `pre-commit` or `commit-msg` hook is not satisfied.",
        next: "`details.output` says what the hook wants; what was staged is still staged.",
    }
    /// Files have conflicts that are not resolved.
    CONFLICTS_UNRESOLVED = "conflicts_unresolved" {
        cause: "A merge or rebase in the work tree stopped at them.",
        next: "Edit the files in `details.files`, stage each with `git add`, then commit.",
    }
    /// The server has commits that the local branch lacks.
    NON_FAST_FORWARD = "non_fast_forward" {
        cause: "Somebody else pushed to the branch.",
        next: "Fetch and merge or rebase by `exec`, then push again; `force` discards those commits.",
    }
    /// The server refused the branch.
    PUSH_REFUSED = "push_refused" {
        cause: "A rule or hook of the server, such as a protected branch.",
        next: "Push another branch, or ask the owner of the repository.",
    }
    /// The server did not accept the credential.
    AUTHENTICATION_FAILED = "authentication_failed" {
        cause: "The token is wrong, has expired or lacks a right.",
        next: "Check the token and what it may do with the repository.",
    }
    /// The server wants a credential, and there is none for it.
    AUTHENTICATION_REQUIRED = "authentication_required" {
        cause: "The repository is private or does not exist.",
        next: "Give `credential` with the call, or have the operator add one to `git.credentials`.",
    }
    /// The credential is for another server than the repository's.
    CREDENTIAL_FOR_ANOTHER_SERVER = "credential_for_another_server" {
        cause: "The remote's address was changed, or `credential.host` is wrong.",
        next: "Look at the address with `git remote -v` by `exec` before anything else.",
    }
    /// A configured credential cannot be read.
    CREDENTIAL_UNAVAILABLE = "credential_unavailable" {
        cause: "Its file or environment variable is missing or empty.",
        next: "Correct `git.credentials` on the host, or give `credential` with the call.",
    }
    /// The configured certificates cannot be used.
    CA_FILE_UNAVAILABLE = "ca_file_unavailable" {
        cause: "The file in `git.ca_file` is missing, unreadable or not in PEM format.",
        next: "Correct `git.ca_file` on the host.",
    }
    /// A merge needs a commit, and the repository has none.
    NO_COMMITS = "no_commits" {
        cause: "The repository was initialised and never committed to.",
        next: "Commit something there first.",
    }
    /// Source and target share no commit.
    NO_COMMON_HISTORY = "no_common_history" {
        cause: "They are different repositories.",
        next: "Merge only what was cloned or forked from the same repository.",
    }
    /// A merge, rebase or similar is in progress in the repository.
    OPERATION_IN_PROGRESS = "operation_in_progress" {
        cause: "Somebody began it there and did not conclude it.",
        next: "Conclude it, or end it with `git OPERATION --abort`.",
    }
    /// An earlier merge was cut short while it wrote the target's files.
    MERGE_INTERRUPTED = "merge_interrupted" {
        cause: "The daemon or the machine ended in the middle of it.",
        next: "Put the files in `details.files` back as the message says, then repeat the merge.",
    }
    /// The source's history cannot be replayed in one line.
    MERGE_NOT_LINEAR = "merge_not_linear" {
        cause: "Merge commits in it contain content of their own.",
        next: "Use the strategy `cherry-pick` or `branch-per-source`.",
    }
    /// The source has too many commits to replay.
    TOO_MANY_COMMITS = "too_many_commits" {
        cause: "Its history is longer than a merge replays.",
        next: "Use the strategy `branch-per-source`, which replays none.",
    }
    /// Something else was committed in the target during the merge.
    TARGET_MOVED = "target_moved" {
        cause: "Somebody works in the target.",
        next: "Repeat the merge.",
    }
    /// The merge would overwrite work in the target that is not committed.
    TARGET_DIRTY = "target_dirty" {
        cause: "Files that the merge changes have changes of their own there.",
        next: "Commit or move away the files in `details.files`, then repeat the merge.",
    }
    /// The target's branch for the source has other commits.
    BRANCH_DIVERGED = "branch_diverged" {
        cause: "Somebody committed to the branch in the target.",
        next: "Rename or delete the branch in the target, or use another strategy.",
    }
    /// The target's branch for the source is checked out.
    BRANCH_CHECKED_OUT = "branch_checked_out" {
        cause: "A work tree of the target uses the branch.",
        next: "Switch to another branch in the target, or use another strategy.",
    }
    /// Commits of the source and the target change the same lines; a row of a merge's result says so.
    CONFLICT = "conflict" {
        cause: "Both sides changed the same part of a file.",
        next: "Bring the target's commits into the source, resolve the conflict there, commit, and repeat the merge.",
    }
    /// The source's commits cannot be brought to the target.
    BUNDLE_REFUSED = "bundle_refused" {
        cause: "The source's repository is damaged.",
        next: "Look at the source with `git fsck`.",
    }
    /// The source's commits are too large to be brought over.
    BUNDLE_TOO_LARGE = "bundle_too_large" {
        cause: "Large files were committed.",
        next: "Push them to a common repository, and fetch them in the target.",
    }
    /// The source's clone is shallow and ends before what the target has.
    SOURCE_SHALLOW = "source_shallow" {
        cause: "It was cloned with a `depth`.",
        next: "Fetch more history in the source with `git fetch --unshallow`.",
    }
}
