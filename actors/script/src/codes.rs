//! Error codes of scripts.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// There is no such script.
    SCRIPT_NOT_FOUND = "script_not_found" {
        cause: "The id or name is wrong, the script was deleted, or it is another user's.",
        next: "`aegis.script.list` shows yours.",
    }
    /// The script has no such version.
    SCRIPT_VERSION_NOT_FOUND = "script_version_not_found" {
        cause: "The version is below 1 or above the newest.",
        next: "`aegis.script.get` without `version` lists them.",
    }
    /// The user's library of scripts is full.
    SCRIPT_LIBRARY_FULL = "script_library_full" {
        cause: "`script.max_scripts`, `script.max_library_mb` or `scripts` of the user's tier is reached.",
        next: "Delete a script with `aegis.script.delete`, or raise the limit.",
    }
}
