//! A file holds one idea, a function fits on a screen.

use hivekeep_figures::{TestCode, code_lines, lines_of, only_in_tests};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{
    assert_none,
    sources::{is_ours, sources},
};

/// Lines of a file, its tests left out.
const FILE_LINES: usize = 600;
/// Lines of a function, its documentation and attributes left out.
const FUNCTION_LINES: usize = 80;

/// Median of the code lines of files that ship, and the most of them in a hundred that have fewer than [`SHORT`].
const MEDIAN: usize = 130;
const SHORT: usize = 40;
const SHORT_IN_A_HUNDRED: usize = 8;

/// What is measured in one file.
#[derive(Default)]
struct Measured {
    long: Vec<(String, usize)>,
}

impl Measured {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let length = lines_of(block.span()).end() + 1 - lines_of(signature.span()).start();
        if length > FUNCTION_LINES {
            self.long.push((signature.ident.to_string(), length));
        }
    }
}

impl<'a> Visit<'a> for Measured {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !only_in_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !only_in_tests(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn findings(path: &str, text: &str) -> Vec<String> {
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}: {error}")],
    };
    let mut measured = Measured::default();
    measured.visit_file(&file);
    let long = measured.long.iter().map(|(name, length)| {
        format!("{path}: fn {name} has {length} lines, at most {FUNCTION_LINES}")
    });
    let mut findings: Vec<String> = long.collect();
    let length = text.lines().count().saturating_sub(TestCode::of(text).lines);
    if length > FILE_LINES {
        findings.push(format!("{path}: {length} lines without tests, at most {FILE_LINES}"));
    }
    findings
}

#[test]
fn files_and_functions_stay_short() {
    let code = sources(&[".rs"]);
    let code = code.iter().filter(|source| !source.is_test());
    let found: Vec<_> = code.flat_map(|source| findings(&source.path, &source.text)).collect();
    assert_none("split along the idea", &found);
}

/// Files of a screen have no subject: a reader has to open ten of them.
#[test]
fn files_are_whole() {
    let code = sources(&[".rs"]);
    let shipped = code.iter().filter(|source| is_ours(&source.path) && source.ships());
    let mut lines: Vec<_> = shipped.map(|source| code_lines(&source.text)).collect();
    lines.retain(|lines| *lines > 0);
    lines.sort_unstable();
    let (files, median) = (lines.len(), lines[lines.len() / 2]);
    let short = lines.iter().filter(|lines| **lines < SHORT).count();
    eprintln!("{files} files, a median of {median} code lines, {short} below {SHORT}");
    assert!(median >= MEDIAN, "a file has {median} code lines in the middle, at least {MEDIAN}");
    assert!(
        100 * short <= SHORT_IN_A_HUNDRED * files,
        "{short} of {files} files have fewer than {SHORT} lines"
    );
}

#[test]
fn what_is_too_long_is_seen_and_tests_do_not_count() {
    let body = "    let _ = 1;\n".repeat(FUNCTION_LINES);
    let long = format!("/// Doc.\nfn long() {{\n{body}}}\n");
    assert_eq!(findings("a.rs", &long).len(), 1);
    let in_impl = format!("struct A;\nimpl A {{\n{long}}}\n");
    assert_eq!(findings("a.rs", &in_impl).len(), 1);
    let tested = format!("fn short() {{}}\n#[cfg(test)]\nmod tests {{\n{}}}\n", long.repeat(9));
    assert_eq!(findings("a.rs", &tested), Vec::<String>::new());
    let file = "const A: u8 = 1;\n".repeat(FILE_LINES + 1);
    assert_eq!(findings("a.rs", &file).len(), 1);
}
