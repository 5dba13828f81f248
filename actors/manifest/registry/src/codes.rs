//! Error codes of registries of manifests.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The manifest is not valid.
    MANIFEST_INVALID = "manifest_invalid" {
        cause: "It is not YAML, its schema or a rule is broken, or it names a tool that the caller does not have.",
        next: "Mend what `details.problems` names with line and column; `aegis.schema.validate` checks without deploying.",
    }
    /// The name has this version already.
    VERSION_EXISTS = "version_exists" {
        cause: "A version never changes, and this one was deployed before.",
        next: "Increment `metadata.version`, or replace it with `force`.",
    }
    /// The name has no such version.
    MANIFEST_VERSION_NOT_FOUND = "manifest_version_not_found" {
        cause: "It was never deployed.",
        next: "Use one of `details.versions`, or leave the version out for the latest.",
    }
    /// The registry takes no more for this caller.
    MANIFEST_REGISTRY_FULL = "manifest_registry_full" {
        cause: "Its names or its bytes are as many as the configuration or the user's tier allows.",
        next: "Delete one, or have the operator raise the limit.",
    }
    /// The name cannot be moved to the scope.
    SCOPE_UNFIT = "scope_unfit" {
        cause: "Operators alone move names between scopes; a promotion goes up, from a user to the tenant to all, and a demotion down.",
        next: "Have an operator do it, or name a scope on the other side of the one that the name is in.",
    }
    /// The scope has the name already.
    SCOPE_NAME_TAKEN = "scope_name_taken" {
        cause: "A name has one id in each scope, and another one has it there.",
        next: "Delete or move what `details.id` names, or deploy this one by another name.",
    }
    /// There is no such tenant.
    TENANT_NOT_FOUND = "tenant_not_found" {
        cause: "A daemon is one tenant, `local`, and another was named.",
        next: "Leave `tenant_id` out.",
    }
}
