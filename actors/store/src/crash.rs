//! Crash points: named places where tests stop the program as a crash or a full disk would.

use crate::Error;

/// Passes, unless a test has set a fail point of this name.
#[allow(unused_variables, reason = "the macro is empty without the feature")]
pub(crate) fn point(name: &'static str) -> Result<(), Error> {
    fail::fail_point!(name, |_| Err(Error::Full { doing: name, cause: "injected".into() }));
    Ok(())
}
