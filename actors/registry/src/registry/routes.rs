//! Routing table: the actor that serves each call.

use std::{collections::HashMap, sync::Arc};

use hivekeep_kernel::{Addressing, Layer, Target, ToolError, serve::ActorDirectory};
use serde_json::Value;

use crate::{Catalogue, ToolEntry, codes};

/// Actors by the names that declarations use. Built once, at boot: an actor's
/// target stays good across the actor's restarts.
#[derive(Clone, Default)]
pub struct Routes {
    singletons: HashMap<String, Arc<dyn Target>>,
    directories: HashMap<&'static str, Arc<dyn ActorDirectory>>,
}

impl Routes {
    /// The one actor of this name.
    #[must_use]
    pub fn singleton(mut self, name: impl Into<String>, target: Arc<dyn Target>) -> Self {
        self.singletons.insert(name.into(), target);
        self
    }

    /// The actors of this kind.
    #[must_use]
    pub fn directory(mut self, kind: &'static str, directory: Arc<dyn ActorDirectory>) -> Self {
        self.directories.insert(kind, directory);
        self
    }

    /// Tools that nobody serves; empty when the boot is right.
    pub fn unserved(&self, catalogue: &Catalogue) -> Vec<&'static str> {
        let served = |entry: &ToolEntry| match entry.spec.addressing {
            Addressing::Singleton(name) => self.singletons.contains_key(name),
            Addressing::Field { kind, .. } => self.directories.contains_key(kind),
        };
        catalogue.entries().filter(|entry| !served(entry)).map(|entry| entry.name()).collect()
    }

    /// Path of the single actor that serves a tool, if it is down. One of many is named by an input, and
    /// found wanting when the call is routed.
    pub(crate) fn down(&self, entry: &ToolEntry) -> Option<&str> {
        let Addressing::Singleton(name) = entry.spec.addressing else { return None };
        let target = self.singletons.get(name)?;
        (!target.is_up()).then(|| target.key())
    }

    /// The target of a call whose input passed the schema.
    pub(crate) fn find(
        &self,
        entry: &ToolEntry,
        args: &Value,
    ) -> Result<Arc<dyn Target>, ToolError> {
        let unserved = || ToolError::internal(format!("nobody serves `{}`", entry.name()));
        match entry.spec.addressing {
            Addressing::Singleton(name) => self.singletons.get(name).cloned().ok_or_else(unserved),
            Addressing::Field { kind, field } => {
                let directory = self.directories.get(kind).ok_or_else(unserved)?;
                let name = args.get(field).and_then(Value::as_str).ok_or_else(|| {
                    let message = format!("`{field}` must say which {kind} is meant");
                    ToolError::new(Layer::Schema, codes::INVALID_INPUT, message)
                        .next(format!("pass `{field}`: an id or a unique name"))
                })?;
                directory.find(name)
            }
        }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directories: Vec<_> = self.directories.keys().collect();
        let singletons: Vec<_> = self.singletons.keys().collect();
        f.debug_struct("Routes")
            .field("singletons", &singletons)
            .field("directories", &directories)
            .finish()
    }
}
