//! The tree of modules of a crate, as its files declare it.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, visit::Visit};

use crate::{Source, only_in_tests, paths::Named};

pub(crate) type ModuleId = usize;

/// A module, in a file of its own or inside of another's.
pub(crate) struct Module {
    /// Place of its file among the sources.
    pub(crate) file: usize,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) children: BTreeMap<String, ModuleId>,
    /// Names of what it defines itself.
    pub(crate) items: BTreeSet<String>,
    pub(crate) named: Named,
}

/// The modules below one root file; the root is the first.
pub(crate) struct Modules<'s> {
    sources: &'s [Source],
    pub(crate) all: Vec<Module>,
}

impl<'s> Modules<'s> {
    /// Below the root file at this path.
    pub(crate) fn below(sources: &'s [Source], root: &str) -> Option<Self> {
        let file = sources.iter().position(|source| source.path == root)?;
        let mut modules = Self { sources, all: Vec::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        modules.file(file, None, folder);
        Some(modules)
    }

    /// Reads a file, whose child modules lie in `folder`.
    fn file(&mut self, file: usize, parent: Option<ModuleId>, folder: &str) -> Option<ModuleId> {
        let source = &self.sources[file];
        let parsed = syn::parse_file(&source.text).ok()?;
        Some(self.module(file, parent, folder, &parsed.items))
    }

    fn module(
        &mut self,
        file: usize,
        parent: Option<ModuleId>,
        folder: &str,
        items: &[Item],
    ) -> ModuleId {
        let id = self.all.len();
        let (children, items_named, named) = Default::default();
        self.all.push(Module { file, parent, children, items: items_named, named });
        for item in items {
            match item {
                Item::Mod(declared) if only_in_tests(&declared.attrs) => {}
                Item::Mod(declared) => self.child(id, folder, declared),
                Item::Use(declared) if !only_in_tests(&declared.attrs) => {
                    self.all[id].named.declare(declared);
                }
                Item::Fn(declared) if only_in_tests(&declared.attrs) => {}
                other => {
                    self.all[id].items.extend(name(other));
                    self.all[id].named.visit_item(other);
                }
            }
        }
        id
    }

    fn child(&mut self, parent: ModuleId, folder: &str, declared: &syn::ItemMod) {
        let name = declared.ident.to_string();
        let below = format!("{folder}/{name}");
        let below = below.trim_start_matches('/');
        let child = match &declared.content {
            Some((_, items)) => {
                let file = self.all[parent].file;
                Some(self.module(file, Some(parent), below, items))
            }
            None => {
                let paths = [format!("{below}.rs"), format!("{below}/mod.rs")];
                let found = self.sources.iter().position(|source| paths.contains(&source.path));
                found.and_then(|file| self.file(file, Some(parent), below))
            }
        };
        if let Some(child) = child {
            self.all[parent].children.insert(name, child);
        }
    }
}

/// The name that an item gives to its module.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        // Of `macro_rules!`.
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}
