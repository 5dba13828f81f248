//! Tools that the requests of a program become.

/// Tool that a request for permission is.
pub(crate) const PERMIT: &str = "agent_permit";
pub(crate) const READ: &str = "fs.read";
pub(crate) const WRITE: &str = "fs.write";
/// Tools that terminals are.
pub(crate) const TERMINALS: [&str; 3] = ["process_start", "process_output", "process_kill"];
pub(crate) const ALL: [&str; 6] = [PERMIT, READ, WRITE, TERMINALS[0], TERMINALS[1], TERMINALS[2]];
