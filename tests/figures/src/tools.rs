//! Static analysis of tools: lines of each one's declaration and handler.
//!
//! A declaration is the file of the tool's row, in equal parts for the rows in it: types of inputs and
//! results, bounds, descriptions. What handlers call is the family's as a whole, see [`crate::measure`].

use std::{collections::BTreeMap, io, path::Path};

use syn::{ImplItemFn, ItemImpl, Type, spanned::Spanned, visit::Visit};

use crate::{TestCode, lines_of, sources};

/// Lines of one tool, without tests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolLines {
    /// Folder of its crate's sources, below the root.
    pub folder: String,
    /// Its name, with underscores.
    pub tool: String,
    /// Its part of the file that declares it.
    pub declaration: usize,
    /// Function that a call arrives at.
    pub handler: usize,
}

/// Measures the tools of the families below `root`.
///
/// # Errors
/// When a file cannot be read.
pub fn tools(root: &Path) -> io::Result<Vec<ToolLines>> {
    let sources = sources(root, &[".rs"])?;
    let shipped: Vec<_> = sources
        .iter()
        .filter(|source| source.ships() && source.path.starts_with("actors/"))
        .filter_map(|source| Some((source.path.split_once("/src/")?.0, source)))
        .collect();
    let mut handlers = BTreeMap::new();
    for (folder, source) in &shipped {
        let Ok(file) = syn::parse_file(&source.text) else { continue };
        Handlers { folder, of: None, found: &mut handlers }.visit_file(&file);
    }
    let mut found = Vec::new();
    for (folder, source) in &shipped {
        let rows: Vec<_> = source.text.lines().filter_map(row).collect();
        let whole = source.text.lines().count() - TestCode::of(&source.text).lines;
        found.extend(rows.iter().filter_map(|(tool, handler)| {
            let key = ((*folder).to_owned(), (*handler).to_owned());
            Some(ToolLines {
                folder: (*folder).to_owned(),
                tool: (*tool).to_owned(),
                declaration: whole.div_ceil(rows.len()),
                handler: *handlers.get(&key)?,
            })
        }));
    }
    found.sort();
    Ok(found)
}

/// Name and handler of a row `tool: Input => Result = Type::handler`.
fn row(line: &str) -> Option<(&str, &str)> {
    let (tool, rest) = line.trim().split_once(": ")?;
    let (_, handler) = rest.split_once(" => ")?.1.split_once(" = ")?;
    let handler = handler.trim_end_matches([' ', '{', ';', ',']);
    let plain = |name: &str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    (plain(tool) && handler.split("::").count() == 2).then_some((tool, handler))
}

struct Handlers<'s> {
    folder: &'s str,
    of: Option<String>,
    found: &'s mut BTreeMap<(String, String), usize>,
}

impl<'ast> Visit<'ast> for Handlers<'_> {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if let (None, Type::Path(path)) = (&item.trait_, &*item.self_ty) {
            self.of = path.path.segments.last().map(|name| name.ident.to_string());
            syn::visit::visit_item_impl(self, item);
            self.of = None;
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if let Some(of) = &self.of {
            let key = (self.folder.to_owned(), format!("{of}::{}", item.sig.ident));
            self.found.insert(key, lines_of(item.span()).count());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_from_what_looks_like_them() {
        assert_eq!(row("    a_b: In => Out = It::on_a {"), Some(("a_b", "It::on_a")));
        assert_eq!(row("    a: In => Vec<Out> = It::on_a;"), Some(("a", "It::on_a")));
        for other in ["/// as `a: b => c = d`", "match x { a => b = c }", "let a: B = c::d();"] {
            assert_eq!(row(other), None, "{other}");
        }
    }

    #[test]
    fn each_tool_is_measured_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tools = tools(&root).expect("read");
        let fetch: Vec<_> = tools.iter().filter(|tool| tool.tool == "web_fetch").collect();
        assert_eq!(fetch.len(), 1, "{fetch:?}");
        assert!(fetch[0].declaration > 20 && fetch[0].handler > 5, "{fetch:?}");
    }
}
