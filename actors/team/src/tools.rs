//! The tools of this crate.

pub mod team;

/// Every tool of this crate.
pub fn catalogue() -> Vec<&'static hivekeep_kernel::ToolInfo> {
    team::FAMILY.rows.iter().map(|row| &row.0).collect()
}
