//! A test that cannot run where it is started: a line of the summary under a runner that lists it, and a
//! failure under any other, which would count it among those that passed.

use std::env;
use std::fmt::Display;

/// Set by a runner that takes a test whose output has a line of [`PREFIX`] for skipped.
pub const COUNTED: &str = "TEST_HIVEKEEP_COUNTS_SKIPS";

/// Stands before the reason.
pub const PREFIX: &str = "SKIPPED: ";

/// Says why a test cannot run here, or a part of it. Who calls this returns, or goes on with the rest.
///
/// # Panics
/// Where the runner counts no skips.
#[track_caller]
pub fn skip(reason: impl Display) {
    let package = env::var("CARGO_PKG_NAME");
    let chosen = match package.as_deref() {
        // Its unit tests run everywhere.
        Ok("hivekeep") => "it",
        other => other.unwrap_or("CRATE"),
    };
    match said(&reason, env::var_os(COUNTED).is_some(), chosen) {
        Ok(line) => eprintln!("{line}"),
        Err(failure) => panic!("{failure}"),
    }
}

fn said(reason: &dyn Display, counted: bool, chosen: &str) -> Result<String, String> {
    if counted {
        return Ok(format!("{PREFIX}{reason}"));
    }
    Err(format!(
        "not run: {reason}; `cargo xtask setup` installs what tests need, `cargo xtask t {chosen}` runs it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_line_where_it_is_counted_and_a_failure_elsewhere() {
        assert_eq!(said(&"no mkfs", true, "x"), Ok("SKIPPED: no mkfs".to_owned()));
        let failure =
            said(&"no mkfs", false, "hivekeep-volume").expect_err("it is counted nowhere");
        assert!(failure.starts_with("not run: no mkfs; "), "{failure}");
        assert!(failure.ends_with("`cargo xtask t hivekeep-volume` runs it"), "{failure}");
    }
}
