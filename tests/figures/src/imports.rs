//! The graph of imports: a file on the file that defines what it names.
//!
//! A name is followed through `use` to its definition. Declaring a child module, or passing on a
//! name of another file with `pub use`, needs nothing of it and is no edge. Test code is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Source,
    modules::{ModuleId, Modules},
};

/// The files that each file imports from, by their paths.
pub(crate) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Of the crate in `folder`.
pub(crate) fn graph(folder: &str, sources: &[Source]) -> Graph {
    let mut graph = Graph::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let root = format!("{folder}/{root}");
        let Some(modules) = Modules::below(sources, root.trim_start_matches('/')) else { continue };
        let scope = Scope { modules: &modules };
        for (id, module) in modules.all.iter().enumerate() {
            let from = &sources[module.file];
            for file in scope.files_named_in(id) {
                if file != module.file && from.ships() && sources[file].ships() {
                    let edges = graph.entry(from.path.clone()).or_default();
                    edges.insert(sources[file].path.clone());
                }
            }
        }
    }
    graph
}

/// What a path leads to.
#[derive(Clone, Copy)]
enum Found {
    Module(ModuleId),
    /// Something that is defined in this file.
    Item(usize),
}

/// Names on their way to a definition; a name that comes again goes in a circle.
type Asked = BTreeSet<(ModuleId, String)>;

struct Scope<'m> {
    modules: &'m Modules<'m>,
}

impl Scope<'_> {
    fn files_named_in(&self, id: ModuleId) -> BTreeSet<usize> {
        let named = &self.modules.all[id].named;
        let needed = named.uses.iter().filter(|used| !used.passed_on).map(|used| &used.path);
        let found = named.paths.iter().chain(needed).filter_map(|path| {
            match self.resolve(id, path, &mut Asked::new())? {
                Found::Item(file) => Some(file),
                Found::Module(_) => None,
            }
        });
        found.collect()
    }

    /// Follows a path from a module; `None` where it leads out of the crate.
    fn resolve(&self, from: ModuleId, path: &[String], asked: &mut Asked) -> Option<Found> {
        let (first, rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Found::Module(0),
            "self" => Found::Module(from),
            "super" => Found::Module(self.modules.all[from].parent?),
            name => self.look_up(from, name, asked)?,
        };
        for word in rest {
            let Found::Module(module) = at else { break };
            at = match word.as_str() {
                "super" => Found::Module(self.modules.all[module].parent?),
                // What a macro has made there is not seen, and is defined there.
                name => self
                    .look_up(module, name, asked)
                    .unwrap_or(Found::Item(self.modules.all[module].file)),
            };
        }
        Some(at)
    }

    fn look_up(&self, id: ModuleId, name: &str, asked: &mut Asked) -> Option<Found> {
        let module = &self.modules.all[id];
        if let Some(child) = module.children.get(name) {
            return Some(Found::Module(*child));
        }
        if module.items.contains(name) {
            return Some(Found::Item(module.file));
        }
        if !asked.insert((id, name.to_owned())) {
            return None;
        }
        let uses = &module.named.uses;
        let declared = uses.iter().filter(|used| used.name.as_deref() == Some(name));
        let found = declared.filter_map(|used| self.resolve(id, &used.path, asked)).next();
        found.or_else(|| {
            let globs = uses.iter().filter(|used| used.name.is_none());
            globs
                .filter_map(|used| match self.resolve(id, &used.path, asked)? {
                    Found::Module(module) => self.look_up(module, name, asked),
                    Found::Item(_) => None,
                })
                .next()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges of a crate of these files, as `from>to`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("c/src/{path}.rs"),
            text: (*text).to_owned(),
        };
        let sources: Vec<_> = files.iter().map(source).collect();
        let short = |path: &str| path["c/src/".len()..path.len() - ".rs".len()].to_owned();
        let all = graph("c", &sources).into_iter().flat_map(|(from, to)| {
            to.into_iter().map(move |to| format!("{}>{}", short(&from), short(&to)))
        });
        all.collect()
    }

    #[test]
    fn a_name_leads_to_the_file_that_defines_it() {
        let lib = "mod a; mod b; pub use b::B; pub struct Root;";
        let b = "pub struct B; pub fn f() {}";
        let cases: [(&str, &[&str]); 14] = [
            ("use crate::b::B;", &["a>b"]),
            ("use crate::B;", &["a>b"]),
            ("use super::b;\nfn g() { b::f() }", &["a>b"]),
            ("use crate::{self as all};\nfn g() { all::b::f() }", &["a>b"]),
            ("use super::*;\nstruct A(B);", &["a>b"]),
            ("struct A(crate::b::B);", &["a>b"]),
            ("fn g() { vec![crate::b::f()]; }", &["a>b"]),
            ("fn g() { use crate::b::f; f() }", &["a>b"]),
            ("use super::Root;", &["a>lib"]),
            ("use crate::b::made_by_a_macro;", &["a>b"]),
            // Passed on only, declared only, in a test only, or of another crate.
            ("pub use crate::b::B;", &[]),
            ("use crate::b;", &[]),
            ("#[cfg(test)]\nmod tests { use crate::b::B; }", &[]),
            ("use b_crate::B;", &[]),
        ];
        for (a, expected) in cases {
            assert_eq!(edges(&[("lib", lib), ("a", a), ("b", b)]), expected, "{a}");
        }
    }

    #[test]
    fn modules_lie_beside_their_file_or_within_it() {
        let files = [
            ("lib", "mod a; mod inner { pub mod deep; } struct Root;"),
            ("a", "mod b; pub struct A;"),
            ("a/b", "use super::A; use super::super::Root;"),
            ("inner/deep", "use crate::a::A;"),
        ];
        assert_eq!(edges(&files), ["a/b>a", "a/b>lib", "inner/deep>a"]);
    }

    #[test]
    fn re_exports_of_each_other_end() {
        let files = [
            ("lib", "mod a; mod b;"),
            ("a", "pub use crate::b::*; use crate::b::X;"),
            ("b", "pub use crate::a::*; pub use crate::a::X;"),
        ];
        // What nobody is seen to define was made where it is looked for.
        assert_eq!(edges(&files), ["a>b"]);
    }
}
