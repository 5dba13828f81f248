//! The persistent environment.

use std::collections::BTreeMap;

use hivekeep_kernel::{CallCx, Reply, ToolError, TraceContext};

use crate::{
    commands::api::{EnvSet, SetEnv},
    ledger::Ledger,
    records::Record,
    state::Workspace,
};

/// Most bytes of names and values together; they travel with every command.
const MAX_ENV_BYTES: usize = 256 * 1024;

/// `set_env`. Allowed in every state: the environment is the workspace's, not the machine's.
///
/// # Errors
/// `invalid_input` for a refused name; then nothing is set.
pub(crate) fn set_env(
    state: &mut Workspace,
    _: &CallCx,
    input: SetEnv,
) -> Result<Reply<EnvSet>, ToolError> {
    let vars = input.vars;
    vars.iter().try_for_each(|(name, value)| check(name, value.as_deref()))?;
    let mut after = state.ledger.env.clone();
    for (name, value) in &vars {
        match value {
            Some(value) => after.insert(name.clone(), value.clone()),
            None => after.remove(name),
        };
    }
    let bytes: usize = after.iter().map(|(name, value)| name.len() + value.len()).sum();
    let too_many = after.len() > hivekeep_protocol::limits::MAX_ENV_VARS / 2;
    if bytes > MAX_ENV_BYTES || too_many {
        return Err(ToolError::invalid("the environment would exceed 256 KiB or 512 variables"));
    }
    let (workspace, count, total) = (state.handle.clone(), vars.len(), after.len());
    Ok(Reply::later(async move {
        workspace.note(Record::EnvSet { vars }).await?;
        Ok(EnvSet { count, status: "set".to_owned(), total })
    }))
}

/// Environment of one command: the image's, overridden by the persistent one, by the call's
/// trace and by the command's own.
///
/// # Errors
/// `invalid_input` for an invalid variable name.
pub(crate) fn environment(
    ledger: &Ledger,
    trace: Option<&TraceContext>,
    own: BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, ToolError> {
    joined(ledger, |_| true, trace, own)
}

/// Working directory of one command: the call's, or else the image's.
pub(super) fn working_dir(ledger: &Ledger, asked: Option<String>) -> Option<String> {
    asked.or_else(|| ledger.defaults.as_ref()?.working_dir.clone())
}

/// Variables of one command: the image's, overridden by the inherited ones of the workspace, by the
/// call's trace and by the command's own.
///
/// # Errors
/// `invalid_input` for an invalid variable name.
pub(crate) fn joined(
    ledger: &Ledger,
    inherits: impl Fn(&str) -> bool,
    trace: Option<&TraceContext>,
    own: BTreeMap<String, String>,
) -> Result<Vec<(String, String)>, ToolError> {
    own.iter().try_for_each(|(name, value)| check(name, Some(value)))?;
    let image = ledger.defaults.as_ref();
    let mut env = image.map(|image| image.env.clone()).unwrap_or_default();
    let inherited = ledger.env.iter().filter(|(name, _)| inherits(name));
    env.extend(inherited.map(|(name, value)| (name.clone(), value.clone())));
    if let Some(trace) = trace.filter(|_| !own.contains_key("TRACEPARENT")) {
        // A trace state belongs to its parent; that of another parent is dropped.
        env.remove("TRACESTATE");
        env.extend(trace.variables().map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    env.extend(own);
    Ok(env.into_iter().collect())
}

/// Checks a variable. Callers may not set names that decide which code a command loads.
fn check(name: &str, value: Option<&str>) -> Result<(), ToolError> {
    let shown: String = name.chars().take(80).collect();
    let head = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !head || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(ToolError::invalid(format!("`{shown}` is not a variable name"))
            .next("use letters, digits and _, not beginning with a digit"));
    }
    if matches!(name, "PATH" | "IFS" | "ENV" | "BASH_ENV") || name.starts_with("LD_") {
        return Err(ToolError::invalid(format!("`{shown}` may not be set"))
            .next("set it inside the command, for example `PATH=/opt/bin:$PATH make`"));
    }
    if value.is_some_and(|value| value.contains('\0')) {
        return Err(ToolError::invalid(format!("the value of `{shown}` holds a NUL byte")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn names_that_load_code_are_refused() {
        for name in
            ["PATH", "IFS", "ENV", "BASH_ENV", "LD_PRELOAD", "LD_", "", "1A", "A-B", "A B", "Ä"]
        {
            assert!(check(name, Some("x")).is_err(), "{name}");
        }
        for name in ["A", "_", "a1", "MY_PATH", "LDX"] {
            assert!(check(name, None).is_ok(), "{name}");
        }
        assert!(check("A", Some("x\0y")).is_err());
    }
}
