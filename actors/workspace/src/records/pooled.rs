//! Records of the pool's machines.

use serde::{Deserialize, Serialize};

/// Role and origin of a machine of the pool, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooled {
    /// Role of the machine.
    pub role: Role,
    /// Digest of what the machine was made from.
    pub made_of: MadeOf,
}

/// Role of a machine of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// To be given away.
    Member,
    /// To be copied.
    Template,
}

/// A digest of everything besides its size that a machine of the pool was made from: the image's
/// content, the kernel, the guest daemon, the hypervisor, the kind of network, this program. Machines
/// with the same digest are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOf(pub(crate) String);
