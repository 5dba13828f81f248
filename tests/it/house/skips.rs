//! A test that cannot run is never green: it skips by `hivekeep_skip`, or it is `#[ignore]`d with a
//! reason that names what runs it.

use hivekeep_figures::Source;

use super::{assert_none, sources::sources};

/// A text that begins as what xtask takes for a skip in the output of a test.
const NEEDLE: &str = concat!("\"SKIP", "PED: ");
/// The definition, and the runner that lists skips.
const PLACES: [&str; 2] = ["tests/skip/", "xtask/"];

fn findings(source: &Source) -> Vec<String> {
    if PLACES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let lines = (1..).zip(source.text.lines()).filter(|(_, line)| line.contains(NEEDLE));
    lines.map(|(number, _)| format!("{}:{number}", source.path)).collect()
}

#[test]
fn tests_skip_in_one_way() {
    let found: Vec<_> = sources(&[".rs"]).iter().flat_map(findings).collect();
    assert_none("say it by `hivekeep_skip::skip`: printed, it passes under `cargo test`", &found);
}

#[test]
fn a_skip_that_is_printed_is_seen() {
    let text = format!("fn a() {{\n    println!({NEEDLE}no mkfs\");\n}}\n");
    let found = |path: &str| findings(&Source { path: path.to_owned(), text: text.clone() });
    assert_eq!(found("actors/volume/src/tests.rs"), ["actors/volume/src/tests.rs:2"]);
    assert_eq!(found("tests/skip/src/lib.rs"), [""; 0]);
}

/// A build without failpoints leaves tests out silently where the runner's summary is taken for all.
#[test]
fn a_run_that_lists_skips_has_failpoints() {
    let listed = std::env::var_os(hivekeep_skip::COUNTED).is_some();
    assert!(!listed || cfg!(feature = "failpoints"), "select `hivekeep-unify` beside this package");
}

/// The line that plain `cargo test` prints about what is not in it.
#[test]
#[ignore = "other packages and machines are not in plain `cargo test`: `cargo xtask test` runs all"]
fn all_that_plain_cargo_test_leaves_out() {
    panic!("`cargo xtask test` runs them");
}
