//! Section `[command]`.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest grace period between the two signals of a stop.
pub(crate) const MAX_GRACE_SECS: u64 = 300;

/// What sessions may run in their places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Commands that may be run, by their first words: "cargo test" allows that with any arguments
    /// behind it, "python3" every use of python3. A program that takes commands from files or from its
    /// arguments runs those, too. Empty allows all. Programs are compared as written,
    /// so that "rm" is not "/bin/rm". "script:NAME" allows a script of that name, whatever its user writes
    /// into it. It binds the tools of this section, and not `exec`.
    pub allow: Vec<String>,
    /// Whether `cmd.run` may use a shell for a line. With an allow list every command of the line is
    /// judged, and a line that cannot be judged is refused; `bash` needs this too then.
    pub shell: bool,
    /// Variables that calls may give to the commands of `allow`, themselves or by `set_env`: names, or
    /// beginnings that end with `*`. Many a program runs what a variable says. Without `allow` calls may
    /// give any.
    pub allow_variables: Vec<String>,
    /// Variables of `set_env` that commands get without `allow`: names, or beginnings that end with `*`.
    pub workspace_variables: Vec<String>,
    /// Seconds between SIGTERM and SIGKILL in `process_stop`.
    #[schemars(range(max = MAX_GRACE_SECS))]
    pub stop_grace_secs: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            shell: false,
            allow_variables: Vec::new(),
            workspace_variables: vec!["*".to_owned()],
            stop_grace_secs: 10,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for rule in &self.allow {
            let program = rule.split_ascii_whitespace().next().unwrap_or_default();
            if program.is_empty() || program.contains('/') && !program.starts_with('/') {
                let why = format!("{rule:?} begins with no program by its name or absolute path");
                problems.push(("allow", why));
            }
        }
        problems
    }
}
