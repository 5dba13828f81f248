//! Pictures of the tree of actors show the tree that a daemon has.

use std::collections::BTreeSet;

use crate::home::Home;

/// A page of the checkout.
fn page(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The paths of a drawn tree, whose root has this line. What there can be many of, by an id or
/// with a star, is `*`; `a ─ b` is a parent and its child.
fn drawn(page: &str, root: &str) -> BTreeSet<String> {
    let mut lines = page.lines();
    lines.find(|line| line.starts_with(root)).unwrap_or_else(|| panic!("no line {root:?}"));
    let (mut above, mut paths) = (vec!["root".to_owned()], BTreeSet::new());
    for line in lines {
        let Some(at) = line.find(['├', '└']) else { break };
        let (depth, rest) = (line[..at].chars().count() / 3 + 1, &line[at + "├─ ".len()..]);
        above.truncate(depth);
        for name in rest.split("  ").next().unwrap_or_default().split(" ─ ") {
            above.push(of_many(name.trim()));
            paths.insert(above.join("/"));
        }
    }
    paths
}

fn of_many(name: &str) -> String {
    let an_id = name.split_once('_').is_some_and(|(_, id)| id.len() == 32);
    if an_id || name.ends_with('*') { "*".to_owned() } else { name.to_owned() }
}

/// Those right below the root.
fn first(paths: &BTreeSet<String>) -> BTreeSet<&str> {
    paths.iter().filter_map(|path| path.split('/').nth(1)).collect()
}

#[test]
fn the_tree_is_drawn_as_it_is() {
    let home = Home::new();
    let _daemon = home.daemon();
    home.ok(&["call", "workspace_list"]);
    let rows = home.json(&["ps", "--json"]);
    let rows = rows.as_array().expect("rows").iter().filter_map(|row| row["path"].as_str());
    let path = |path: &str| path.split('/').map(of_many).collect::<Vec<_>>().join("/");
    let real: BTreeSet<_> = rows.map(path).filter(|path| path != "root").collect();
    assert!(real.contains("root/sessions/*"), "{real:?}");

    let readme = drawn(&page("README.md"), "root   ");
    let architecture = drawn(&page("docs/architecture.md"), "root");
    assert_eq!(first(&readme), first(&real), "README.md");
    assert_eq!(first(&architecture), first(&real), "docs/architecture.md");
    let missing: Vec<_> =
        real.union(&readme).filter(|path| !architecture.contains(*path)).collect();
    assert!(missing.is_empty(), "docs/architecture.md does not show {missing:?}");

    let start = page("src/daemon.rs");
    let own = start.split_once("root ─▶ { ").and_then(|(_, rest)| rest.split_once(" }"));
    for name in own.expect("src/daemon.rs shows the start").0.split(", ") {
        assert!(first(&real).contains(name), "src/daemon.rs: there is no {name}");
    }
}

#[test]
fn a_drawing_is_read_by_its_branches() {
    let text = "root\n├─ a   text\n│  ├─ b*   more\n│  │  └─ c\n│  └─ d\n└─ e ─ f*\n```\n└─ no\n";
    let paths: Vec<_> = drawn(text, "root").into_iter().collect();
    let expected = ["root/a", "root/a/*", "root/a/*/c", "root/a/d", "root/e", "root/e/*"];
    assert_eq!(paths, expected);
}
