//! A tool that is declared is served: a family file that its crate forgets to
//! list compiles, and its tools are nowhere.

use std::collections::BTreeSet;
use std::process::Command;

use super::{
    assert_none,
    sources::{Source, sources},
};

/// `actors/KIND/src/tools/FAMILY.rs`, where the runbook has tools declared, and any other file of such a crate
/// that declares some.
fn of_a_family(source: &Source) -> bool {
    let parts: Vec<_> = source.path.split('/').collect();
    let of_actor = matches!(parts[..], ["actors", _, "src", ..]) && source.ships();
    let in_tools = matches!(parts[..], ["actors", _, "src", "tools", ..]);
    of_actor && (in_tools || !declared(&source.text).is_empty())
}

/// The names in the rows of every `tools!`, with their lines.
fn declared(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("tools! {") {
            inside = true;
        } else if line.starts_with('}') {
            inside = false;
        } else if inside {
            found.extend(row(line).map(|name| (number, name)));
            if let (Some((_, name)), Some(last)) = (line.split_once("name: \""), found.last_mut()) {
                last.1 = name.split('"').next().unwrap_or(name);
            }
        }
    }
    found
}

/// The name in `name: Input => Output = handler {`.
fn row(line: &str) -> Option<&str> {
    let (name, types) = line.trim_start().split_once(": ")?;
    let (input, output) = types.split_once(" => ")?;
    let named = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
    let (output, handler) = output.split_once(" = ")?;
    let handler = handler.split_once(" {")?.0;
    (!name.is_empty() && [name, input, output, handler].into_iter().all(named)).then_some(name)
}

/// What the daemon lists.
fn listed() -> BTreeSet<String> {
    let hivekeep = env!("CARGO_BIN_EXE_hivekeep");
    let output = Command::new(hivekeep).args(["tools", "--json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tools: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn every_declared_tool_is_in_the_catalogue() {
    let listed = listed();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for source in sources(&[".rs"]).iter().filter(|source| of_a_family(source)) {
        let tools = declared(&source.text);
        if tools.is_empty() {
            findings.push(format!("{}: declares no tool", source.path));
        }
        for (line, name) in tools {
            seen.insert(name.to_owned());
            if !listed.contains(name) {
                findings.push(format!("{}:{line}: {name} is in no listed family", source.path));
            }
        }
    }
    // Else this test would be blind to the rows that it cannot read.
    for name in listed.difference(&seen) {
        findings.push(format!("{name} is listed, and no row of a family file was seen for it"));
    }
    assert_none("a declared tool is in the catalogue that the daemon lists", &findings);
}

#[test]
fn rows_are_seen_in_their_macro_only() {
    let text = "fn f() {\n    outside: A => B = f {\n}\ntools! { pub ONE: \"o\" for T, singleton t;\n    \
        first: A => b::B = T::f {\n        title: \"a => b\", effect: Read,\n    };\n    \
        second: C => D = g {\n        name: \"a.second\", title: \"t\",\n    };\n}\nlet x = match y {\n    third: A => B = f {\n";
    assert_eq!(declared(text), [(5, "first"), (8, "a.second")]);
}
