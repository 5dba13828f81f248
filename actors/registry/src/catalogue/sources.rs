//! Tools of sources: entries of the catalogue that come and go while the daemon runs.

use std::sync::{Arc, OnceLock};

use hivekeep_kernel::ports::{ForeignSource, SourceTool};

use super::{Catalogue, ToolEntry};

/// Where a tool of a source comes from.
#[derive(Debug, Clone)]
pub struct ToolOrigin {
    /// The source.
    pub source: Arc<dyn ForeignSource>,
    /// Name that the source has for it.
    pub raw_name: String,
    /// Another tool of the source that would have its name; then neither is called.
    pub conflict: Option<String>,
}

impl Catalogue {
    /// The catalogue after a source published its tools. Counts and times of a tool that stays go on;
    /// one whose name another tool has already is left out.
    pub(super) fn with(&self, source: &Arc<dyn ForeignSource>, tools: Vec<SourceTool>) -> Self {
        let of_source = |entry: &ToolEntry| {
            let origin = entry.origin.as_ref();
            origin.is_some_and(|origin| origin.source.server() == source.server())
        };
        let kept = self.entries.iter().filter(|entry| !of_source(entry)).cloned();
        let mut next =
            Self { entries: kept.collect(), generation: self.generation + 1, ..Self::default() };
        // Underscore forms of the daemon's own stay where they are: their entries come first.
        let own = self.entries.iter().take_while(|entry| entry.origin.is_none()).count();
        next.names = self
            .names
            .iter()
            .filter(|(_, at)| **at < own)
            .map(|(name, at)| (name.clone(), *at))
            .collect();
        for (at, entry) in next.entries.iter().enumerate().skip(own) {
            next.names.insert(entry.name().to_owned(), at);
        }
        for tool in tools {
            let name = tool.spec.name;
            if next.names.contains_key(name) {
                tracing::warn!(name, "a tool of a source has the name of another; it is left out");
                continue;
            }
            let before = self.find(name).map(|entry| entry.stats.clone());
            next.names.insert(name.to_owned(), next.entries.len());
            next.entries.push(Arc::new(ToolEntry {
                spec: tool.spec,
                description: tool.description,
                input_schema: tool.input_schema,
                output_schema: tool.output_schema,
                origin: Some(ToolOrigin {
                    source: source.clone(),
                    raw_name: tool.raw_name,
                    conflict: tool.conflict,
                }),
                validator: OnceLock::new(),
                actions: None,
                stats: before.unwrap_or_default(),
            }));
        }
        next
    }
}
