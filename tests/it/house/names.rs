//! A type name that is visible in its whole crate occurs once in the workspace, so that a name
//! says what it is wherever it is read.

use std::collections::BTreeMap;

use hivekeep_figures::{Source, lines_of, only_in_tests};
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Visibility};

use super::{assert_none, sources::sources};

/// Names that mean one pattern wherever they are, which their module's name completes.
const CONVENTIONS: [(&str, &str); 5] = [
    ("Args", "arguments of one subcommand, or of each start of one actor"),
    ("Error", "errors of one crate or of one module, as `io::Error` is"),
    ("Msg", "messages that one actor's mailbox takes"),
    ("Options", "options of one crate: its section of the configuration"),
    ("Record", "records of one kind of stream in the journal"),
];

/// Where types are, `PATH:LINE`, by their names.
type Places = BTreeMap<String, Vec<String>>;

/// Collects the types of one file.
struct Types<'a> {
    path: &'a str,
    places: &'a mut Places,
}

impl Types<'_> {
    fn item(&mut self, attrs: &[Attribute], visibility: &Visibility, name: &Ident) {
        let in_crate = match visibility {
            Visibility::Public(_) => true,
            Visibility::Restricted(restricted) => restricted.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        if in_crate && !only_in_tests(attrs) {
            let place = format!("{}:{}", self.path, lines_of(name.span()).start());
            self.places.entry(name.to_string()).or_default().push(place);
        }
    }
}

impl<'a> Visit<'a> for Types<'_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !only_in_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.item(&item.attrs, &item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.item(&item.attrs, &item.vis, &item.ident);
    }

    fn visit_item_union(&mut self, item: &'a syn::ItemUnion) {
        self.item(&item.attrs, &item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.item(&item.attrs, &item.vis, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.item(&item.attrs, &item.vis, &item.ident);
    }
}

fn collect(source: &Source, places: &mut Places) {
    let file = syn::parse_file(&source.text).expect("it compiles");
    Types { path: &source.path, places }.visit_file(&file);
}

/// An example is a crate of its own, whose types nothing else sees.
fn counts(source: &Source) -> bool {
    !source.is_test() && !source.path.split('/').any(|part| part == "examples")
}

fn findings(places: &Places) -> Vec<String> {
    let mut found = Vec::new();
    let number = |name: &str| places.get(name).map_or(0, Vec::len);
    for (name, at) in places.iter().filter(|(_, at)| at.len() > 1) {
        let convention = CONVENTIONS.iter().any(|(known, _)| known == name);
        if !convention {
            let at = at.join(" and ");
            found.push(format!("`{name}` is at {at}: name all but one, or each, after what it is"));
        }
    }
    for (name, _) in CONVENTIONS.iter().filter(|(name, _)| places.len() > 1 && number(name) < 2) {
        found.push(format!("`{name}` occurs once at most: it needs to be no convention"));
    }
    found
}

#[test]
fn a_type_name_occurs_once() {
    let mut places = Places::new();
    let code = sources(&[".rs"]);
    code.iter().filter(|source| counts(source)).for_each(|source| collect(source, &mut places));
    let rule = "a type name that its whole crate sees occurs once in the workspace";
    assert_none(rule, &findings(&places));
}

#[test]
fn names_are_seen_as_far_as_their_crate_sees_them() {
    let places = |text: &str| {
        let mut places = Places::new();
        collect(&Source { path: "a.rs".to_owned(), text: text.to_owned() }, &mut places);
        places
    };
    let twice = places("pub struct A;\nmod b {\n    pub(crate) enum A {}\n}\n");
    assert_eq!(twice["A"], ["a.rs:1", "a.rs:3"]);
    assert_eq!(findings(&twice).len(), 1);
    let kinds = places("pub trait A {}\npub type B = u8;\npub union C { a: u8 }\n");
    assert_eq!(kinds.keys().collect::<Vec<_>>(), ["A", "B", "C"]);
    let hidden = "struct A;\nmod b {\n    pub(super) struct A;\n}\n#[cfg(test)]\npub struct A;\n\
        #[cfg(test)]\nmod tests {\n    pub struct A;\n}\n";
    assert!(places(hidden).is_empty());
    let errors = places("pub enum Error {}\nmod b {\n    pub enum Error {}\n}\n");
    assert!(findings(&errors).is_empty());
}
