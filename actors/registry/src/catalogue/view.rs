//! View of the catalogue: the tools that one attachment is shown, and their names.

use std::borrow::Cow;

use hivekeep_kernel::{Layer, Tier, ToolError, ToolInfo};
use serde::{Deserialize, Serialize};

use super::{Catalogue, underscored};
use crate::codes;

/// The form of dotted names in listings. Calls may use either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameStyle {
    /// As declared.
    #[default]
    AsDeclared,
    /// With dots, where the declaration has them.
    Dotted,
    /// Without dots, for clients that refuse them.
    Underscored,
}

/// The tools that one attachment is shown. Enforced at every call, not only in listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolView {
    /// Families shown; all when `None`. Case, spaces, `-` and `_` do not matter.
    pub toolsets: Option<Vec<String>>,
    /// The form of names in listings.
    pub names: NameStyle,
    /// True when listings have output schemas.
    pub output_schemas: bool,
    /// The highest tier shown.
    pub tier: Tier,
}

impl Default for ToolView {
    fn default() -> Self {
        Self {
            toolsets: None,
            names: NameStyle::AsDeclared,
            output_schemas: false,
            tier: Tier::User,
        }
    }
}

impl ToolView {
    /// Everything there is.
    pub fn operator() -> Self {
        Self { tier: Tier::Operator, ..Self::default() }
    }

    /// True when the tool is listed.
    pub fn shows(&self, info: &ToolInfo) -> bool {
        self.reaches(info.spec.tier) && self.has_family(info.spec.family)
    }

    /// True when a tier is within the view's.
    pub fn reaches(&self, tier: Tier) -> bool {
        match tier {
            Tier::User => true,
            Tier::Operator => self.tier == Tier::Operator,
        }
    }

    /// True when a family is within the view's toolsets.
    pub fn has_family(&self, family: &str) -> bool {
        match &self.toolsets {
            None => true,
            Some(toolsets) => toolsets.iter().any(|toolset| same(toolset, family)),
        }
    }

    /// The name a tool is listed by.
    pub fn name(&self, info: &ToolInfo) -> Cow<'static, str> {
        match self.names {
            NameStyle::Underscored if info.spec.name.contains('.') => {
                underscored(info.spec.name).into()
            }
            _ => info.spec.name.into(),
        }
    }

    /// Refuses a view that names a family which does not exist.
    ///
    /// # Errors
    /// `unknown_toolset`, with the families there are.
    pub fn check(&self, catalogue: &Catalogue) -> Result<(), ToolError> {
        let families = catalogue.families();
        for toolset in self.toolsets.iter().flatten() {
            if !families.iter().any(|family| same(toolset, family)) {
                let message = format!("there is no toolset `{toolset}`");
                return Err(ToolError::new(Layer::Door, codes::UNKNOWN_TOOLSET, message)
                    .next(format!("use one of: {}", families.join(", ")))
                    .detail("toolsets", families));
            }
        }
        Ok(())
    }
}

fn same(a: &str, b: &str) -> bool {
    let plain = |text: &str| -> String {
        let text = text.trim().to_lowercase();
        text.chars().map(|c| if c == '-' || c == '_' { ' ' } else { c }).collect()
    };
    a == b || plain(a) == plain(b)
}
