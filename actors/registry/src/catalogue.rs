//! Catalogue of tools: every declaration with its schemas, found by each of its names.
//!
//! Names are looked up in the whole catalogue. Whether the caller may use what was found is for the
//! policies to say, so that a refusal can name its reason; only suggestions are taken from what the
//! caller is shown.

mod actions;
mod declaration;
mod docs;
mod listing;
mod sources;
mod spelling;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use hivekeep_kernel::{Addressing, Layer, ToolError, ToolInfo, ToolSpec, view::same_family};
use hivekeep_runtime::json_schema::{Validator, validator};
use serde_json::Value;

use crate::{codes, stats::ToolStats};

pub use docs::docs;
pub use hivekeep_kernel::view::{NameStyle, SmallListing, ToolView};
pub use hivekeep_runtime::schema_kinds::kind;
pub use listing::{mcp_listing, mcp_tool};
pub use sources::{SharedCatalogue, ToolOrigin};

/// The reason why a set of tools is not a catalogue. Found at start, never by a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Two declarations answer to one name.
    #[error("two tools answer to `{0}`")]
    TwiceNamed(String),
    /// Clients refuse such a name.
    #[error("`{0}` is not a valid tool name: 3 to 64 of a-z, 0-9, `_` and `.`")]
    BadName(String),
    /// A schema that clients refuse.
    #[error("`{tool}`: the {side} schema {what}")]
    BadSchema {
        /// The tool.
        tool: &'static str,
        /// `input` or `output`.
        side: &'static str,
        /// The fault.
        what: String,
    },
    /// The declaration lacks a text.
    #[error("`{tool}` has no {what}")]
    Undescribed {
        /// The tool.
        tool: &'static str,
        /// The text that is missing.
        what: String,
    },
}

/// A tool, ready to be listed and called.
#[derive(Debug)]
pub struct ToolEntry {
    /// The declaration.
    pub spec: &'static ToolSpec,
    /// Description for people and models.
    pub description: String,
    /// JSON Schema 2020-12 of the input, an object at the root.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of a success, an object at the root. Only a tool of a source may have none.
    pub output_schema: Option<Value>,
    /// Origin of the tool; `None` for the daemon's own.
    pub origin: Option<ToolOrigin>,
    /// Compiled at the first call: most tools are never called in a daemon's life.
    validator: OnceLock<Option<Validator>>,
    /// Required properties of each action.
    pub(crate) actions: Option<actions::Actions>,
    /// Counts and times of its calls.
    pub(crate) stats: Arc<ToolStats>,
}

impl ToolEntry {
    /// The name that the tool is declared by.
    pub fn name(&self) -> &'static str {
        self.spec.name
    }

    fn new(info: &'static ToolInfo) -> Result<Self, CatalogueError> {
        let tool = info.spec.name;
        let bad = |side, what: String| CatalogueError::BadSchema { tool, side, what };
        let description = info.description();
        let (input_schema, actions) =
            declaration::input((info.input)()).map_err(|what| bad("input", what))?;
        let output_schema =
            declaration::output((info.output)()).map_err(|what| bad("output", what))?;
        declaration::check_texts(info, &description, &input_schema)?;
        Ok(Self {
            spec: &info.spec,
            description,
            input_schema,
            output_schema: Some(output_schema),
            origin: None,
            validator: OnceLock::new(),
            actions,
            stats: Arc::default(),
        })
    }

    /// Whether a call is for a single actor that serves every session.
    pub(crate) fn serves_all(&self) -> bool {
        matches!(self.spec.addressing, Addressing::Singleton(_))
    }

    /// The compiled input schema; `None` if it is not a valid schema.
    pub fn validator(&self) -> Option<&Validator> {
        self.validator.get_or_init(|| validator(&self.input_schema).ok()).as_ref()
    }
}

/// Every tool at one moment: the daemon's own in the order of declaration, then those of sources. Never
/// changes; what a source publishes makes another one ([`SharedCatalogue`]).
#[derive(Debug, Default, Clone)]
pub struct Catalogue {
    entries: Vec<Arc<ToolEntry>>,
    /// Declared names and their underscore forms.
    names: HashMap<String, usize>,
    /// Number of publications before this catalogue.
    generation: u64,
}

impl Catalogue {
    /// Compiles the declarations. A declared name goes before the underscore form of another one in its
    /// family: `a.tool` and `a_tool` of one family are the same thing by two names.
    ///
    /// # Errors
    /// A defect of a declaration.
    pub fn new(tools: impl IntoIterator<Item = &'static ToolInfo>) -> Result<Self, CatalogueError> {
        let mut catalogue = Self::default();
        for (index, info) in tools.into_iter().enumerate() {
            let name = info.spec.name;
            declaration::check_name(name)?;
            if catalogue.names.insert(name.to_owned(), index).is_some() {
                return Err(CatalogueError::TwiceNamed(name.to_owned()));
            }
            catalogue.entries.push(Arc::new(ToolEntry::new(info)?));
        }
        let dotted = |(_, entry): &(usize, &Arc<ToolEntry>)| entry.name().contains('.');
        for (index, entry) in catalogue.entries.iter().enumerate().filter(dotted) {
            let form = underscored(entry.name());
            let Some(other) = catalogue.names.get(&form).map(|index| &catalogue.entries[*index])
            else {
                catalogue.names.insert(form, index);
                continue;
            };
            if other.name() != form || other.spec.family != entry.spec.family {
                return Err(CatalogueError::TwiceNamed(form));
            }
        }
        Ok(catalogue)
    }

    /// The tool of a name, dotted or underscored.
    pub fn find(&self, name: &str) -> Option<&Arc<ToolEntry>> {
        self.names.get(name).map(|index| &self.entries[*index])
    }

    /// All tools, in their order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<ToolEntry>> {
        self.entries.iter()
    }

    /// The tools that an attachment is shown. Of two that a view would call the same, the one that is
    /// declared by that name.
    pub fn visible<'a>(&'a self, view: &'a ToolView) -> impl Iterator<Item = &'a Arc<ToolEntry>> {
        let is_called = |entry: &Arc<ToolEntry>| {
            self.find(&view.name(entry.spec)).is_some_and(|found| Arc::ptr_eq(found, entry))
        };
        self.entries.iter().filter(move |entry| view.shows(entry.spec) && is_called(entry))
    }

    /// Number of publications before this catalogue: another number means other tools.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Families, in the order of their tools.
    pub fn families(&self) -> Vec<&'static str> {
        let mut families = Vec::new();
        for entry in &self.entries {
            if !families.contains(&entry.spec.family) {
                families.push(entry.spec.family);
            }
        }
        families
    }

    /// Names in the view closest to one that is not there, best first.
    pub fn nearest(&self, name: &str, view: &ToolView) -> Vec<String> {
        let wanted = underscored(name);
        let mut scored: Vec<_> = self
            .visible(view)
            .map(|entry| (strsim::jaro_winkler(&wanted, &underscored(entry.name())), entry))
            // Below this, names share little more than a letter or two.
            .filter(|(score, _)| *score > 0.75)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().take(3).map(|(_, entry)| view.name(entry.spec).into_owned()).collect()
    }

    /// The tool that a caller names.
    ///
    /// # Errors
    /// `unknown_tool`, with the nearest names that the caller is shown.
    pub(crate) fn resolve(&self, name: &str, view: &ToolView) -> Result<Arc<ToolEntry>, ToolError> {
        if let Some(entry) = self.find(name) {
            return Ok(entry.clone());
        }
        // A name from outside may be of any length.
        let shown: String = name.chars().take(80).collect();
        let nearest = self.nearest(&shown, view);
        let step = match nearest.as_slice() {
            [] => "list the tools".to_owned(),
            [one] => format!("did you mean `{one}`?"),
            many => format!("did you mean one of `{}`?", many.join("`, `")),
        };
        let message = format!("there is no tool `{shown}`");
        Err(ToolError::new(Layer::Resolve, codes::UNKNOWN_TOOL, message)
            .next(step)
            .detail("nearest", nearest))
    }

    /// Refuses a view that names a family which does not exist.
    ///
    /// # Errors
    /// `unknown_toolset`, with the families there are.
    pub fn check(&self, view: &ToolView) -> Result<(), ToolError> {
        let families = self.families();
        let begins = view.listing.iter().flat_map(|listing| &listing.toolsets);
        for toolset in view.toolsets.iter().flatten().chain(begins) {
            if !families.iter().any(|family| same_family(toolset, family)) {
                let message = format!("there is no toolset `{toolset}`");
                return Err(ToolError::new(Layer::Door, codes::UNKNOWN_TOOLSET, message)
                    .next(format!("use one of: {}", families.join(", ")))
                    .detail("toolsets", families));
            }
        }
        Ok(())
    }
}

fn underscored(name: &str) -> String {
    name.replace('.', "_")
}

#[cfg(test)]
pub(crate) mod tests;
