//! Error codes of introspection.

hivekeep_kernel::codes! {
    /// There is no schema of this key.
    UNKNOWN_SCHEMA = "unknown_schema" {
        cause: "The key is wrong, or names a tool that this daemon does not have.",
        next: "Use one of `details.supported_keys`; `tool/NAME/input` and `tool/NAME/output` are those of a tool.",
    }
    /// The schema has no such path.
    UNKNOWN_SCHEMA_PATH = "unknown_schema_path" {
        cause: "A part of the path is not a key of the value that it is looked for in.",
        next: "Use one of `details.supported_keys` there.",
    }
    /// There is no manifest of this kind.
    UNKNOWN_MANIFEST_KIND = "unknown_manifest_kind" {
        cause: "The kind is wrong.",
        next: "Use one of `details.supported_kinds`.",
    }
}
