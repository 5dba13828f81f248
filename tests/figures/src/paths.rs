//! Paths that a piece of code names, also inside of macros.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::only_in_tests;

/// The words of a path, `$crate` as `crate`.
pub(crate) type Words = Vec<String>;

/// A name that a `use` declares, or, without one, all names of a module.
pub(crate) struct Use {
    pub(crate) name: Option<String>,
    pub(crate) path: Words,
    /// Whether it is passed on rather than needed here.
    pub(crate) passed_on: bool,
}

/// What one module names.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) uses: Vec<Use>,
    pub(crate) paths: Vec<Words>,
}

impl Named {
    pub(crate) fn declare(&mut self, item: &syn::ItemUse) {
        let passed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &mut Vec::new(), passed_on);
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &mut Words, passed_on: bool) {
        let word = |ident: &syn::Ident| ident.to_string();
        let (last, name) = match tree {
            syn::UseTree::Path(path) => {
                before.push(word(&path.ident));
                self.tree(&path.tree, before, passed_on);
                before.pop();
                return;
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(tree, before, passed_on));
                return;
            }
            syn::UseTree::Name(name) if name.ident == "self" => (None, before.last().cloned()),
            syn::UseTree::Name(name) => (Some(word(&name.ident)), Some(word(&name.ident))),
            syn::UseTree::Rename(renamed) if renamed.ident == "self" => {
                (None, Some(word(&renamed.rename)))
            }
            syn::UseTree::Rename(renamed) => {
                (Some(word(&renamed.ident)), Some(word(&renamed.rename)))
            }
            syn::UseTree::Glob(_) => (None, None),
        };
        let path = before.iter().cloned().chain(last).collect();
        self.uses.push(Use { name, path, passed_on });
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Words::new();
        // Colons since the last word: two go on with a path.
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.end(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Words) {
        if !path.is_empty() {
            self.paths.push(std::mem::take(path));
        }
    }
}

impl<'a> Visit<'a> for Named {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.declare(item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !only_in_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    // Derives and the like are other crates'.
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}
}
