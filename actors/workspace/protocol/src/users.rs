//! User request: whom a name means in the guest.

use serde::{Deserialize, Serialize};

/// Finds a user in the guest's `/etc/passwd`. A number need not be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindUser {
    /// Name or number.
    pub user: String,
}

/// Answer to [`FindUser`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFound {
    /// User id.
    pub uid: u32,
    /// Id of the user's own group.
    pub gid: u32,
    /// Absolute path of the home; `/` where the guest names none.
    pub home: String,
}
