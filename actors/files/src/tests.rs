//! The file tools over folders of the host, and over workspaces whose guests are the test's.

mod changes;
mod contents;
mod differential;
mod escapes;
mod everywhere;
mod machines;
mod patches;
mod stage;
mod swaps;
mod workspaces;
