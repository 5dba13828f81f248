//! State of the manager of all workspaces.

use std::sync::Arc;

use hivekeep_git::merge::Merges;
use hivekeep_kernel::{Address, Children, Context};

use super::{messages::Msg, prepare::Preparing};
use crate::{pool, shared::Shared};

/// What an incarnation is made from.
pub type Seed = Arc<Shared>;

/// The manager.
pub struct Workspaces {
    pub(super) me: Context<Msg>,
    pub(super) shared: Arc<Shared>,
    pub(super) children: Children,
    pub(super) preparing: Preparing,
    pub(super) merges: Merges,
    pub(super) pool: Address<pool::Msg>,
}
