//! The tools of this crate.

pub mod swarm;
pub mod team;

/// Every tool of this crate.
pub fn catalogue() -> Vec<&'static hivekeep_kernel::ToolInfo> {
    let swarms = swarm::FAMILY.rows.iter().map(|row| &row.0);
    team::FAMILY.rows.iter().map(|row| &row.0).chain(swarms).collect()
}
