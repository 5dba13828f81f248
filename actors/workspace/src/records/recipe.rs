//! Origin of a workspace, as its plan records it: a recipe, or the pool.

use serde::{Deserialize, Serialize};

use crate::records::WorkspaceSpec;

/// Steps between a workspace's first boot and its snapshot `golden`. The image and the size are in its
/// [`WorkspaceSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Repository that is cloned to `/workspace`, without credentials: another token is the same recipe.
    pub git_url: Option<String>,
    /// Commands that are run after the clone, in this order.
    pub setup_commands: Vec<String>,
    /// Whether `golden` keeps the memory.
    pub include_memory: bool,
}

/// Names of the fields in which two recipes differ, as the tool's input has them.
pub(crate) fn differences(
    one: (&WorkspaceSpec, &Recipe),
    other: (&WorkspaceSpec, &Recipe),
) -> Vec<&'static str> {
    let ((spec, recipe), (other_spec, other_recipe)) = (one, other);
    [
        ("base_image", spec.image != other_spec.image),
        ("git_url", recipe.git_url != other_recipe.git_url),
        ("setup_commands", recipe.setup_commands != other_recipe.setup_commands),
        ("include_memory", recipe.include_memory != other_recipe.include_memory),
        ("isolation", spec.isolation != other_spec.isolation),
        ("vcpus", spec.vcpus != other_spec.vcpus),
        ("memory_mb", spec.memory_mb != other_spec.memory_mb),
        ("disk_gb", spec.disk_gb != other_spec.disk_gb),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use hivekeep_machine::Isolation;

    #[test]
    fn each_field_that_differs_is_named() {
        let spec = WorkspaceSpec {
            image: "base".to_owned(),
            isolation: Isolation::Vm,
            vcpus: 1,
            memory_mb: 256,
            disk_gb: 1,
        };
        let recipe = Recipe {
            git_url: None,
            setup_commands: vec!["a".to_owned(), "b".to_owned()],
            include_memory: true,
        };
        assert!(differences((&spec, &recipe), (&spec, &recipe)).is_empty());
        let other_spec = WorkspaceSpec { image: "debian".to_owned(), disk_gb: 2, ..spec.clone() };
        let turned = Recipe {
            git_url: Some("https://example.org/r".to_owned()),
            setup_commands: vec!["b".to_owned(), "a".to_owned()],
            include_memory: false,
        };
        assert_eq!(
            differences((&spec, &recipe), (&other_spec, &turned)),
            ["base_image", "git_url", "setup_commands", "include_memory", "disk_gb"]
        );
    }
}
