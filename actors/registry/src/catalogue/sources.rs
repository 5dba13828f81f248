//! Tools of sources: entries of the catalogue that come and go while the daemon runs.
//!
//! The catalogue is copied on write: readers have the tools of one moment, sources publish others
//! beside them.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use hivekeep_ports::{ForeignSource, SourceTool, ToolPublisher};
use tokio::sync::watch;

use super::{Catalogue, ToolEntry};

/// The tools as they are now. A call keeps the catalogue that it began with.
pub struct SharedCatalogue {
    current: ArcSwap<Catalogue>,
    changes: watch::Sender<u64>,
}

impl SharedCatalogue {
    /// The catalogue before any source has published.
    pub fn new(own: Catalogue) -> Self {
        Self { current: ArcSwap::from_pointee(own), changes: watch::Sender::default() }
    }

    /// The tools as they are now.
    pub fn now(&self) -> Arc<Catalogue> {
        self.current.load_full()
    }

    /// Counts publications.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl ToolPublisher for SharedCatalogue {
    fn publish(&self, source: Arc<dyn ForeignSource>, tools: Vec<SourceTool>) {
        self.current.rcu(|now| now.with(&source, tools.clone()));
        self.changes.send_modify(|count| *count += 1);
    }
}

impl fmt::Debug for SharedCatalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCatalogue").finish_non_exhaustive()
    }
}

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
    fn with(&self, source: &Arc<dyn ForeignSource>, tools: Vec<SourceTool>) -> Self {
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
