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
    spans: Vec<RangeInclusive<usize>>,
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

    fn add(&mut self, span: Span) {
        let span = lines_of(span);
        self.lines += span.clone().count();
        self.spans.push(span);
    }
}

/// Lines of a text that are code: no comment, not empty, and not only compiled for tests.
pub fn code_lines(text: &str) -> usize {
    let tests = TestCode::of(text);
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let outside = |number: usize| !tests.spans.iter().any(|span| span.contains(&number));
    text.lines().enumerate().filter(|(at, line)| is_code(line) && outside(at + 1)).count()
}

impl<'a> Visit<'a> for TestCode {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        match only_in_tests(&item.attrs) {
            true => self.add(item.span()),
            false => visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if only_in_tests(&item.attrs) {
            self.add(item.span());
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

#[test]
fn tests_comments_and_empty_lines_are_no_code() {
    let text =
        "//! Head.\n\nfn a() {\n    // Why.\n}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
    assert_eq!(code_lines(text), 2);
}
