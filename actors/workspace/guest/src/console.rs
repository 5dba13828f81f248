//! Messages of the daemon for people: lines on stderr, which is the machine's console in a VM and the
//! sandbox's log outside one.

use std::fmt;
use std::io::Write;

/// Writes one line; a console that cannot take it is not an error.
pub fn say(line: fmt::Arguments<'_>) {
    let text = format!("hivekeep-guest: {line}\n");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Like `eprintln`, but never panics and names its origin.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::console::say(format_args!($($part)*)) };
}
