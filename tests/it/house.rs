//! The house keeps its own rules: who may use whom, how long things are, what
//! may not be written, where things are found. Each rule reports everything
//! that breaks it at once.

mod catalogue;
mod circles;
mod codes;
mod comments;
mod counts;
mod dependencies;
mod kinds;
mod layout;
mod links;
mod markers;
mod names;
mod nights;
mod size;
mod skips;
mod sources;
mod trees;

/// Fails with every finding, a line each.
#[track_caller]
fn assert_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}
