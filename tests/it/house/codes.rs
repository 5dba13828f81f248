//! Error codes are constants: declared once, used, listed, and never written as text.

use std::collections::BTreeMap;
use std::process::Command;

use super::{
    assert_none,
    sources::{Source, is_ours, sources},
};

/// Codes that are words of other things too. As text they count beside a field `code` only.
const WORDS: [&str; 4] = ["cancelled", "conflict", "host_disk_full", "internal"];

/// The daemon's own Rust, without tests.
fn production(source: &Source) -> Option<&str> {
    let test = source.is_test()
        || ["/examples/", "/test_util", "/fake"].iter().any(|part| source.path.contains(part));
    let inline = |at: &usize| {
        let mut below = source.text[*at..].lines().filter(|line| !line.starts_with('#'));
        below.next().is_some_and(|line| line.starts_with("mod ") && line.ends_with('{'))
    };
    let mut tests = source.text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let end = tests.find(inline).unwrap_or(source.text.len());
    (is_ours(&source.path) && !test).then(|| &source.text[..end])
}

/// The constant and the code of `NAME = "name" {`.
fn declaration(line: &str) -> Option<(&str, &str)> {
    let (constant, rest) = line.trim().split_once(" = \"")?;
    Some((constant, rest.strip_suffix("\" {")?))
}

/// Every code with its constant and where it is declared.
fn declared(all: &[Source], findings: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut codes = BTreeMap::new();
    for source in all.iter().filter(|source| source.path.ends_with("src/codes.rs")) {
        for (constant, code) in
            production(source).into_iter().flat_map(str::lines).filter_map(declaration)
        {
            if constant.to_lowercase() != code {
                findings.push(format!("{}: {constant} is called `{code}`", source.path));
            }
            if let Some(other) = codes.insert(code.to_owned(), source.path.clone()) {
                findings.push(format!("`{code}` is declared in {other} and {}", source.path));
            }
        }
    }
    codes
}

/// Texts of a line, as `"text"`.
fn texts(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// What is wrong with the lines of a file that declares none.
fn written(text: &str, codes: &BTreeMap<String, String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for text in texts(line).filter(|text| codes.contains_key(*text)) {
            if !WORDS.contains(&text) || line.contains(".code") {
                found.push((number, format!("`{text}` is written as text")));
            }
        }
        // Else a code would need no declaration.
        if line.contains("code: \"") || line.contains("foreign(") && texts(line).next().is_some() {
            found.push((number, "an undeclared code is written as text".to_owned()));
        }
    }
    found
}

#[test]
fn each_error_code_is_declared_once_and_used_as_a_constant() {
    let (all, mut findings) = (sources(&[".rs"]), Vec::new());
    let codes = declared(&all, &mut findings);
    let mut unused = codes.clone();
    for source in all.iter().filter(|source| !source.path.ends_with("src/codes.rs")) {
        let Some(text) = production(source) else { continue };
        for rest in text.split("codes::").skip(1) {
            let end =
                rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
            unused.remove(&rest[..end.unwrap_or(rest.len())].to_lowercase());
        }
        for (line, what) in written(text, &codes) {
            findings.push(format!("{}:{line}: {what}", source.path));
        }
    }
    findings.extend(unused.iter().map(|(code, file)| format!("{file}: nothing uses `{code}`")));
    assert_none("an error code is a constant, declared once and used", &findings);
}

#[test]
fn every_declared_code_is_listed() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_hivekeep")).args(["errors", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut missing = declared(&sources(&[".rs"]), &mut Vec::new());
    for code in &listed {
        missing.remove(code["code"].as_str().expect("a code"));
    }
    let findings: Vec<_> = missing
        .iter()
        .map(|(code, file)| format!("{file}: `{code}` is in no listed family"))
        .collect();
    assert_none("`hivekeep errors` lists every declared code", &findings);
}

#[test]
fn codes_are_seen_in_any_text() {
    let codes = ["busy", "internal"].map(|code| (code.to_owned(), String::new())).into();
    let lines = |text: &str| written(text, &codes).len();
    assert_eq!(lines("if error.code == \"busy\" {"), 1);
    assert_eq!(lines("    \"busy\" => Some(x),"), 1);
    assert_eq!(lines("/// \"busy\""), 0);
    assert_eq!(lines("tool: \"internal\","), 0);
    assert_eq!(lines("error.code != \"internal\""), 1);
    assert_eq!(lines("ToolError::foreign(Layer::Actor, \"new_code\", why)"), 1);
    assert_eq!(lines("ToolError::foreign(Layer::Guest, told.code, why)"), 0);
    assert_eq!(lines("Row { code: \"new_code\".to_owned() }"), 1);
    assert_eq!(declaration("    BUSY = \"busy\" {"), Some(("BUSY", "busy")));
}
