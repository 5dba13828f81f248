//! Tests beside the code that they test.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::{
    Attribute, Meta,
    spanned::Spanned,
    visit::{self, Visit},
};

/// Modules and functions of a file that are compiled for tests only.
#[derive(Default)]
pub struct TestCode {
    pub lines: usize,
}

impl TestCode {
    /// Of a text that is no Rust nothing is a test.
    pub fn of(text: &str) -> Self {
        let mut found = Self::default();
        if let Ok(file) = syn::parse_file(text) {
            found.visit_file(&file);
        }
        found
    }
}

impl<'a> Visit<'a> for TestCode {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        match only_in_tests(&item.attrs) {
            true => self.lines += lines_of(item.span()).count(),
            false => visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if only_in_tests(&item.attrs) {
            self.lines += lines_of(item.span()).count();
        }
    }
}

/// The lines that something stands in, counted from one.
pub fn lines_of(span: Span) -> RangeInclusive<usize> {
    span.start().line..=span.end().line
}

/// `#[cfg(test)]`, alone or among other conditions, and not negated.
pub fn only_in_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions
        .filter_map(|attribute| match &attribute.meta {
            Meta::List(list) => Some(list.tokens.to_string()),
            _ => None,
        })
        .any(|condition| condition.contains("test") && !condition.contains("not"))
}
