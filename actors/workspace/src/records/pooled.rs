//! Records of machines that are the pool's.

use serde::{Deserialize, Serialize};

/// What the records say of a workspace that is the pool's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooled {
    /// What it is there for.
    pub role: Role,
    /// What it was made from.
    pub made_of: MadeOf,
}

/// What a machine of the pool is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To be given away.
    Member,
    /// To be copied.
    Template,
}

/// A digest of everything besides its size that a machine of the pool was made from: the image's
/// content, the kernel, the guest daemon, the hypervisor, the kind of network, this program. Two
/// machines with one digest cannot be told apart by where they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOf(pub(crate) String);
