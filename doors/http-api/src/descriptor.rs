//! Descriptors, from the declarations of tools.

use std::sync::LazyLock;

use hivekeep_kernel::{Addressing, Effect, RateClass, Tier, ToolSpec};
use hivekeep_registry::{NameStyle, ToolEntry, ToolView, mcp_tool};

use super::{
    error::ApiError,
    published::{
        BackendKind, SourceKind, ToolBackend, ToolDescriptor, ToolReason, ToolRisk, ToolSource,
        ToolVisibility,
    },
};

/// Owner of the tools that are the daemon's own.
pub(super) const OWNER: &str = "hivekeep";

/// Characters of an id.
const ID_CHARS: usize = 64;

/// The view by whose names the registry knows the tools.
pub(super) fn registry_view() -> &'static ToolView {
    static VIEW: LazyLock<ToolView> = LazyLock::new(|| ToolView {
        names: NameStyle::Underscored,
        output_schemas: true,
        ..ToolView::operator()
    });
    &VIEW
}

/// The id of a tool: its name with underscores.
pub(super) fn tool_id(spec: &ToolSpec) -> String {
    spec.name.replace('.', "_")
}

/// The id of a toolset: the name of a family, in the characters of ids.
pub(super) fn toolset_id(family: &str) -> String {
    let plain = family.to_ascii_lowercase();
    let words = plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// Checks an id: segments joined by `__`, each a letter and then letters, digits and `_`.
pub(super) fn check_id(id: &str) -> Result<(), ApiError> {
    let refused = |reason, why: &str| {
        let shown: String = id.chars().take(80).collect();
        Err(ApiError::invalid(reason, format!("`{shown}` is not a valid tool id: {why}")))
    };
    if id.is_empty() {
        return refused(ToolReason::IdEmpty, "it is empty");
    }
    if id.len() > ID_CHARS {
        return refused(ToolReason::IdTooLong, "it has more than 64 characters");
    }
    let segments: Vec<_> = id.split("__").collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return refused(ToolReason::IdEmptySegment, "a segment between `__` is empty");
    }
    let good = |segment: &&str| {
        let inside = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        segment.starts_with(|c: char| c.is_ascii_lowercase())
            && segment.bytes().all(inside)
            && !segment.ends_with('_')
    };
    match segments.iter().all(good) {
        true => Ok(()),
        false => {
            let why = "it should be of a-z, 0-9 and `_`, and dots of a name are underscores in it";
            refused(ToolReason::IdInvalidFormat, why)
        }
    }
}

pub(super) fn read_only(spec: &ToolSpec) -> bool {
    spec.effect == Effect::Read && !spec.open_world
}

pub(super) fn risk(spec: &ToolSpec) -> ToolRisk {
    match (spec.effect, spec.open_world) {
        (Effect::Destroy, _) => ToolRisk::Destructive,
        (_, true) => ToolRisk::OpenWorld,
        (Effect::Read, false) => ToolRisk::Read,
        (Effect::Write | Effect::Idempotent, false) => ToolRisk::Mutating,
    }
}

fn backend(entry: &ToolEntry) -> ToolBackend {
    let spec = entry.spec;
    let origin = entry.origin.as_ref();
    let in_guest = matches!(spec.addressing, Addressing::Field { kind: "workspace", .. })
        && matches!(spec.rate, RateClass::Exec | RateClass::File);
    ToolBackend {
        kind: match origin {
            Some(_) => BackendKind::Mcp,
            None if in_guest => BackendKind::Guest,
            None => BackendKind::Native,
        },
        native_name: spec.name,
        mcp_server: origin.map(|origin| origin.source.server().to_owned()),
        mcp_tool: origin.map(|origin| origin.raw_name.clone()),
    }
}

fn source(entry: &ToolEntry) -> ToolSource {
    let origin = entry.origin.as_ref();
    ToolSource {
        kind: if origin.is_some() { SourceKind::Mcp } else { SourceKind::Builtin },
        owner: entry.spec.source.unwrap_or(OWNER),
        raw_server_name: origin.map(|origin| origin.source.server().to_owned()),
        raw_tool_name: origin.map(|origin| origin.raw_name.clone()),
    }
}

pub(super) fn describe(entry: &ToolEntry) -> ToolDescriptor {
    let (spec, mut listed) = (entry.spec, mcp_tool(entry, registry_view()));
    let description = listed["description"].as_str().unwrap_or_default().to_owned();
    ToolDescriptor {
        tool_id: tool_id(spec),
        backend: backend(entry),
        display_title: spec.title,
        description,
        input_schema: listed["inputSchema"].take(),
        output_schema: listed["outputSchema"].take(),
        source: source(entry),
        visibility: match spec.tier {
            Tier::User => ToolVisibility::Model,
            Tier::System => ToolVisibility::Session,
            Tier::Operator => ToolVisibility::Operator,
        },
        risk: risk(spec),
        read_only: read_only(spec),
        destructive: spec.effect == Effect::Destroy,
        open_world: spec.open_world,
        requires_interaction: false,
        concurrency_safe: spec.concurrency_safe,
        max_result_bytes: spec.result_budget_bytes,
        toolsets: vec![toolset_id(spec.family)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_and_toolset_has_an_id_of_the_grammar() {
        let catalogue = hivekeep_config::families::catalogue();
        for entry in catalogue.visible(registry_view()) {
            let told = describe(entry);
            check_id(&told.tool_id).unwrap_or_else(|error| panic!("{}: {error:?}", told.tool_id));
            assert_eq!(catalogue.find(&told.tool_id).map(|it| it.name()), Some(entry.name()));
            assert!(!(told.read_only && (told.destructive || told.open_world)), "{}", told.tool_id);
        }
        for family in catalogue.families() {
            assert!(check_id(&toolset_id(family)).is_ok(), "{family}");
        }
    }

    #[test]
    fn an_id_that_is_none_is_told_why() {
        let reason = |id: &str| match check_id(id) {
            Err(ApiError::Tool(_, error)) => Some(error.reason_codes[0]),
            Ok(()) => None,
            Err(other) => panic!("{other:?}"),
        };
        for good in ["exec", "fs_read", "mcp__one__two_3", "a1"] {
            assert_eq!(reason(good), None, "{good}");
        }
        for (bad, why) in [
            ("", ToolReason::IdEmpty),
            ("__a", ToolReason::IdEmptySegment),
            ("a__", ToolReason::IdEmptySegment),
            ("a___b", ToolReason::IdInvalidFormat),
            ("a_", ToolReason::IdInvalidFormat),
            ("1a", ToolReason::IdInvalidFormat),
            ("fs.read", ToolReason::IdInvalidFormat),
            ("../etc/passwd", ToolReason::IdInvalidFormat),
            ("größe", ToolReason::IdInvalidFormat),
            ("a\0", ToolReason::IdInvalidFormat),
        ] {
            assert_eq!(reason(bad), Some(why), "{bad}");
        }
        assert_eq!(reason(&"a".repeat(65)), Some(ToolReason::IdTooLong));
    }
}
