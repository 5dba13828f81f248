//! The guest's git, run for the tools: always an argument vector, never a shell's line.

#[allow(dead_code, reason = "nothing calls it before the first tool does")]
pub(crate) mod run;
