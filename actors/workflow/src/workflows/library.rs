//! Workflows as states find them that run another one.

use hivekeep_kernel::{User, WorkflowId};
use hivekeep_manifest::workflow::WorkflowManifest;
use hivekeep_manifest_registry::{ManifestRegistry, RegistryCaller};

use super::{DeployedWorkflow, parsed};
use crate::Workflows;

impl Workflows for ManifestRegistry<DeployedWorkflow> {
    fn find(
        &self,
        user: User,
        id_or_name: &str,
        version: Option<&str>,
    ) -> Option<(WorkflowId, WorkflowManifest)> {
        let caller = RegistryCaller { user, operator: false };
        let (id, _, kept) = Self::find(self, caller, id_or_name, version).ok()?;
        Some((id, parsed(&kept).ok()?))
    }
}
