//! Capability view: the tools that one attachment may call, and which of them it is listed.

use std::{borrow::Cow, collections::BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Tier, ToolSpec};

/// The form of dotted names in listings. Calls may use either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameStyle {
    /// Names as they are declared.
    #[default]
    AsDeclared,
    /// With dots, where the declaration has them.
    Dotted,
    /// Without dots, for clients that refuse them.
    Underscored,
}

/// A listing that begins small and grows by what the session loads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SmallListing {
    /// Names of the tools that it begins with.
    pub tools: Vec<&'static str>,
    /// Families that it begins with.
    pub toolsets: Vec<String>,
}

/// The tools that one attachment may call. Enforced at every call, not only in listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolView {
    /// Families that may be called; all when `None`. Case, spaces, `-` and `_` do not matter.
    pub toolsets: Option<Vec<String>>,
    /// The form of names in listings.
    pub names: NameStyle,
    /// True when listings have output schemas.
    pub output_schemas: bool,
    /// The highest tier that may be called.
    pub tier: Tier,
    /// Tools that listings begin with; every tool that may be called when `None`. A tool that is not
    /// listed can be called all the same.
    pub listing: Option<SmallListing>,
}

impl Default for ToolView {
    fn default() -> Self {
        Self {
            toolsets: None,
            names: NameStyle::AsDeclared,
            output_schemas: false,
            tier: Tier::User,
            listing: None,
        }
    }
}

impl ToolView {
    /// Everything there is.
    pub fn operator() -> Self {
        Self { tier: Tier::Operator, ..Self::default() }
    }

    /// True when the tool may be called.
    pub fn shows(&self, spec: &ToolSpec) -> bool {
        self.reaches(spec.tier) && self.has_family(spec.family)
    }

    /// True when the tool is listed to a session that has loaded these families.
    pub fn lists(&self, spec: &ToolSpec, loaded: &BTreeSet<String>) -> bool {
        let begins = |small: &SmallListing| {
            small.tools.contains(&spec.name)
                || small.toolsets.iter().any(|toolset| same_family(toolset, spec.family))
                || loaded.contains(spec.family)
        };
        self.shows(spec) && self.listing.as_ref().is_none_or(begins)
    }

    /// True when a tier is within the view's.
    pub fn reaches(&self, tier: Tier) -> bool {
        match tier {
            // The policy decides which users are of the system.
            Tier::User | Tier::System => true,
            Tier::Operator => self.tier == Tier::Operator,
        }
    }

    /// True when a family is within the view's toolsets.
    pub fn has_family(&self, family: &str) -> bool {
        match &self.toolsets {
            None => true,
            Some(toolsets) => toolsets.iter().any(|toolset| same_family(toolset, family)),
        }
    }

    /// The name a tool is listed by.
    pub fn name(&self, spec: &ToolSpec) -> Cow<'static, str> {
        match self.names {
            NameStyle::Underscored if spec.name.contains('.') => spec.name.replace('.', "_").into(),
            _ => spec.name.into(),
        }
    }
}

/// True when two texts name one family: case, spaces, `-` and `_` do not matter.
pub fn same_family(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> String {
        let text = text.trim().to_lowercase();
        text.chars().map(|c| if c == '-' || c == '_' { ' ' } else { c }).collect()
    };
    a == b || plain(a) == plain(b)
}
