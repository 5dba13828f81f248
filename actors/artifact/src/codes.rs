//! Error codes of artifacts.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such artifact.
    ARTIFACT_NOT_FOUND = "artifact_not_found" {
        cause: "The URI is wrong, it has expired or was deleted, or it is another user's.",
        next: "`artifact_list` shows yours; else repeat the call that made it.",
    }
    /// There is no room for another artifact.
    ARTIFACTS_FULL = "artifacts_full" {
        cause: "`artifact.max_user_mb`, `artifact.max_total_mb`, `artifact.max_per_user` or `artifacts` of the user's tier is reached.",
        next: "Delete some with `artifact_delete`, wait until they expire, or raise the limit.",
    }
    /// An artifact cannot be written or read.
    ARTIFACT_FAILED = "artifact_failed" {
        cause: "The disk of the state folder fails, or the file was changed by another program.",
        next: "Look at `hivekeep logs`.",
    }
}
