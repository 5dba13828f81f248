//! Final step: fast-forwards the target's branch to what was built beside it.

use hivekeep_kernel::{Layer, ToolError, fault_point};

use super::{
    leftovers::{self, FROM, TO},
    repo::{Repo, failed},
    running::RunningMerge,
};
use crate::codes;

/// Fast-forwards the target from one commit to another; does nothing if they are the same. Git
/// checks first whether this would overwrite anything, including ignored files, and changes nothing
/// then.
///
/// # Errors
/// `target_moved`, `target_dirty`, `git_failed`: the target is unchanged then.
pub(super) async fn land_if_needed(
    target: &Repo<'_>,
    running: &RunningMerge,
    from: &str,
    to: &str,
) -> Result<(), ToolError> {
    if from == to {
        return Ok(());
    }
    if target.head().await? != from {
        let message = "something else was committed in the target meanwhile";
        return Err(ToolError::new(Layer::Guest, codes::TARGET_MOVED, message)
            .next("repeat the merge")
            .retryable());
    }
    // Intent record: from here on a daemon that is cut short leaves refs that say what it was about
    // to do.
    for (what, sha) in [(FROM, from), (TO, to)] {
        let name = leftovers::reference(&running.id, what);
        target.must(&["update-ref", "--no-deref", &name, sha]).await?;
    }
    fault_point!("workspace_merge.before_landing");
    let orig = target.resolve("ORIG_HEAD").await?;
    let args = [
        "merge",
        "--quiet",
        "--ff-only",
        "--no-overwrite-ignore",
        "--no-stat",
        "--no-autostash",
        "--no-verify",
        to,
    ];
    let merged = target.run(&args).await?;
    if merged.ok() && target.head().await? == to {
        fault_point!("workspace_merge.after_landing");
        return Ok(());
    }
    // Restored because git writes it before it checks.
    match orig {
        Some(orig) => target.run(&["update-ref", "--no-deref", "ORIG_HEAD", &orig]).await?,
        None => target.run(&["update-ref", "--no-deref", "-d", "ORIG_HEAD"]).await?,
    };
    let error = failed(&args, &merged);
    let files = leftovers::in_the_way(target, from, to).await?;
    let output = error.details.get("output").cloned().unwrap_or_default();
    if merged.exit_code == 1 && target.head().await? == from {
        let message = "the merge would overwrite work in the target that is not committed";
        return Err(ToolError::new(Layer::Guest, codes::TARGET_DIRTY, message)
            .next("commit or move away in the target what the output names, and repeat")
            .detail("files", files)
            .detail("output", output));
    }
    Err(error)
}
