//! Taking over workspaces that nobody holds.

use hivekeep_kernel::tools;

use crate::{
    api::session::{Adoption, WorkspaceAdopt},
    workspaces::Workspaces,
};

tools! { pub FAMILY: "session management" for Workspaces, singleton workspaces;
    workspace_adopt: WorkspaceAdopt => Adoption = Workspaces::adopt {
        title: "Adopt workspaces", effect: Idempotent, risk: Risk::High,
    };
}
