//! Each test that decision 0103 names is there.

use super::{assert_none, sources::sources};

const PAGE: &str = include_str!("../../../docs/decisions/0103-what-others-send.md");

/// Tests that the rows of the page's table name.
fn named() -> Vec<&'static str> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_tests_of_each_kind_are_there() {
    let names = named();
    assert!(names.len() > 20, "{names:?}");
    let sources = sources(&[".rs"]);
    let gone: Vec<_> = names
        .into_iter()
        .filter(|name| {
            let declared = format!("fn {name}(");
            !sources.iter().any(|source| source.text.contains(&declared))
        })
        .map(|name| format!("no test is named `{name}`"))
        .collect();
    assert_none("docs/decisions/0103-what-others-send.md", &gone);
}
