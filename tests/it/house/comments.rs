//! A comment names its subject: a stranger needs no line before it. A doc comment says what the name of its
//! item cannot.

use hivekeep_figures::{lines_of, only_in_tests};
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, spanned::Spanned};

use super::{
    assert_none,
    sources::{Source, is_ours, sources},
};

/// Words that begin a comment which is spoken of something else.
const WITHOUT_SUBJECT: [&str; 7] = ["What", "Who", "It", "Of", "As", "One", "That"];

/// Text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

/// Lines of `source` that begin a comment without a subject.
fn without_subject(source: &Source) -> Vec<usize> {
    let lines = source.text.lines().enumerate();
    let starts = lines.scan(false, |within, (number, line)| {
        let text = comment(line);
        let begins = text.filter(|_| !*within);
        *within = text.is_some();
        Some((number + 1, begins))
    });
    let word = |text: &str| WITHOUT_SUBJECT.contains(&text.split(' ').next().unwrap_or_default());
    starts.filter(|(_, text)| text.is_some_and(word)).map(|(number, _)| number).collect()
}

/// Whether an item with this attribute has its doc comments in a schema or on the command line.
fn is_shown(attribute: &Attribute) -> bool {
    let names = ["Args", "JsonSchema", "Parser", "Subcommand", "ToSchema", "ValueEnum"];
    let Meta::List(list) = &attribute.meta else { return false };
    let tokens = list.tokens.to_string();
    list.path.segments[0].ident == "utoipa" || names.iter().any(|name| tokens.contains(name))
}

/// Collects the lines of doc comments that are a single word.
struct SingleWords<'t> {
    text: Vec<&'t str>,
    left_out: bool,
    found: Vec<usize>,
}

impl SingleWords<'_> {
    fn item(&mut self, attributes: &[Attribute], visit_parts: impl FnOnce(&mut Self)) {
        let around = self.left_out;
        self.left_out |= only_in_tests(attributes) || attributes.iter().any(is_shown);
        let docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
        let lines: Vec<_> = docs.map(|doc| *lines_of(doc.span()).start()).collect();
        let is_word = |at: usize| comment(self.text[at - 1]).is_some_and(|it| !it.contains(' '));
        if !self.left_out && lines.len() == 1 && is_word(lines[0]) {
            self.found.push(lines[0]);
        }
        visit_parts(self);
        self.left_out = around;
    }
}

macro_rules! visit_items {
    ($($visit:ident: $item:ident),+) => {
        impl<'a> Visit<'a> for SingleWords<'_> {
            $(fn $visit(&mut self, item: &'a syn::$item) {
                self.item(&item.attrs, |words| visit::$visit(words, item));
            })+
        }
    };
}

visit_items! {
    visit_item_mod: ItemMod, visit_item_struct: ItemStruct, visit_item_enum: ItemEnum,
    visit_field: Field, visit_variant: Variant, visit_item_type: ItemType, visit_item_fn: ItemFn,
    visit_item_const: ItemConst, visit_item_trait: ItemTrait, visit_trait_item_fn: TraitItemFn,
    visit_item_impl: ItemImpl, visit_impl_item_fn: ImplItemFn, visit_impl_item_const: ImplItemConst
}

fn single_words(source: &Source) -> Vec<usize> {
    let text = source.text.lines().collect();
    let mut words = SingleWords { text, left_out: false, found: Vec::new() };
    words.visit_file(&syn::parse_file(&source.text).expect("it compiles"));
    words.found
}

/// Places of lines that a rule finds in production code.
fn found(rule: impl Fn(&Source) -> Vec<usize>) -> Vec<String> {
    let production = |source: &&Source| {
        let path = &source.path;
        is_ours(path) && !path.contains("/tests") && !path.ends_with("tests.rs")
    };
    let mut found = Vec::new();
    for source in sources(&[".rs"]).iter().filter(production) {
        found.extend(rule(source).iter().map(|line| format!("{}:{line}", source.path)));
    }
    found
}

#[test]
fn comments_name_their_subject() {
    assert_none("a comment names what is spoken of", &found(without_subject));
}

#[test]
fn doc_comments_say_more_than_a_word() {
    assert_none("a doc comment says what the name cannot", &found(single_words));
}

#[test]
fn a_comment_without_a_subject_is_seen() {
    let text = "//! What it is.\n\n/// One more.\n/// It goes on.\nfn a() {}\n/// Limit of what is\n// Of it.\n";
    let source = Source { path: "a.rs".to_owned(), text: text.to_owned() };
    assert_eq!(without_subject(&source), [1, 3]);
}

#[test]
fn a_doc_comment_of_a_word_is_seen_unless_users_see_it() {
    let words = |text: &str| {
        let (path, text) = ("a.rs".to_owned(), text.to_owned());
        single_words(&Source { path, text })
    };
    let fields = "struct A {\n    /// Path.\n    a: u8,\n    /// Path of b.\n    b: u8,\n}\n";
    assert_eq!(words(fields), [2]);
    assert!(words(&format!("#[derive(Debug, JsonSchema)]\n{fields}")).is_empty());
    assert!(words(&format!("#[cfg(test)]\nmod tests {{\n{fields}}}\n")).is_empty());
}
