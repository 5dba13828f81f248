//! The table knows each parameter that is a path: what is neither in it nor an exception by name fails.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use super::calls;

/// Words of names that paths have.
const WORDS: [&str; 25] = [
    "path",
    "paths",
    "file",
    "files",
    "dir",
    "dirs",
    "directory",
    "folder",
    "folders",
    "cwd",
    "workdir",
    "src",
    "source",
    "sources",
    "dest",
    "destination",
    "target",
    "root",
    "glob",
    "pattern",
    "url",
    "image",
    "archive",
    "mount",
    "layout",
];
/// Words of descriptions that say so of a text with another name.
const SAID: [&str; 4] = ["path", "paths", "folder", "directory"];

/// Parameters that look like paths and are tried by no call, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 26] = [
    ("dag_start", "file", "read as `path` of fs.read, for the caller"),
    ("fs.edit", "target_content", "a text that is replaced"),
    ("fs.watch", "place", "a name of a place"),
    ("fs.watch", "path", "of workspaces only; watched by the guest, with the rights of the user"),
    ("fs.multi_edit", "edits[].target_content", "a text that is replaced"),
    ("fs.grep", "pattern", "a regular expression over lines"),
    ("read_schema", "path", "keys of a schema that is built in"),
    ("workspace_merge", "source_workspaces[]", "names of workspaces, looked up as `workspace_id`"),
    ("workspace_merge", "target_workspace", "a name of a workspace"),
    ("workspace_prepare", "git_url", "fetched in the machine, as `url` of git_clone"),
    ("swarm_run", "merge_target", "a name of a workspace"),
    ("swarm_run", "tasks[].workdir", "a folder of a fork, as `workdir` of exec"),
    ("swarm_run", "vault_context[].query", "read as `path` of vault"),
    ("zaru.mode", "target_mode", "a name of a mode"),
    ("aegis.execution.file", "path", "in the execution's machine; actors/agent tries others"),
    ("ide_build_list", "repo", "a name that builds are chosen by"),
    ("navigate", "path", "of a page, for the user's own clients; actors/assistant tries others"),
    ("rag_ingest", "path", "beneath the place's handle; actors/ingest tries others and links"),
    ("rag_ingest", "place", "a name of a place"),
    ("rag_query", "source", "compared with what results name"),
    ("ml_status", "influx_url", "one of `model.status.influx_urls`, or refused"),
    ("webview_connect", "debug_url", "`local`, or one of `browser.attach`, or refused"),
    ("webview_navigate", "url", "by the egress filter; actors/browser tries others"),
    ("webview_type", "files[]", "beneath the place's handle; actors/files tries others and links"),
    ("webview_type", "file_name", "a name that the page is told; nothing of the host is read"),
    ("webview_wait", "url", "compared with the address of the page"),
];

/// A parameter of a tool, by its way through objects and lists.
type Parameter = (String, String);

/// Texts of a schema, each with its way and its description.
fn texts(schema: &Value, root: &Value, way: &str, depth: usize, found: &mut Vec<(String, String)>) {
    assert!(depth < 20, "a schema that contains itself");
    let target = schema["$ref"].as_str().map(|to| root.pointer(to.trim_start_matches('#')));
    if let Some(target) = target {
        texts(target.expect("it leads somewhere"), root, way, depth + 1, found);
    }
    for one in ["anyOf", "oneOf", "allOf"].iter().flat_map(|key| schema[*key].as_array()).flatten()
    {
        texts(one, root, way, depth + 1, found);
    }
    if schema["items"].is_object() {
        texts(&schema["items"], root, &format!("{way}[]"), depth + 1, found);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let way = if way.is_empty() { name.clone() } else { format!("{way}.{name}") };
        let holds = |kind: &str| {
            let list = |kinds: &Vec<Value>| kinds.iter().any(|it| it == kind);
            field["type"] == kind || field["type"].as_array().is_some_and(list)
        };
        let said = || field["description"].as_str().unwrap_or_default().to_owned();
        if holds("string") && field["enum"].is_null() {
            found.push((way.clone(), said()));
        }
        if holds("array") {
            found.push((format!("{way}[]"), said()));
        }
        texts(field, root, &way, depth + 1, found);
    }
}

fn looks_like_a_path(way: &str, description: &str) -> bool {
    let name = way.rsplit('.').next().unwrap_or(way).trim_end_matches("[]");
    let mut apart = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            apart.push('_');
        }
        apart.extend(letter.to_lowercase());
    }
    let words = description.split(|letter: char| !letter.is_alphanumeric());
    apart.split('_').any(|word| WORDS.contains(&word))
        || words.map(str::to_lowercase).any(|word| SAID.contains(&word.as_str()))
}

/// Where in the arguments of a call the path is.
fn places(args: &Value, path: &str, way: &str, found: &mut Vec<String>) {
    match args {
        Value::String(text) if text.contains(path) => found.push(way.to_owned()),
        Value::Array(all) => {
            all.iter().for_each(|one| places(one, path, &format!("{way}[]"), found));
        }
        Value::Object(all) => {
            for (name, value) in all {
                let way = if way.is_empty() { name.clone() } else { format!("{way}.{name}") };
                places(value, path, &way, found);
            }
        }
        _ => {}
    }
}

fn tried() -> BTreeSet<Parameter> {
    let path = "a-path-that-is-found-again";
    let each = calls::all(path).into_iter().flat_map(|(tool, args)| {
        let mut found = Vec::new();
        places(&args, path, "", &mut found);
        assert!(!found.is_empty(), "{tool} {args} has no path");
        found.into_iter().map(move |way| (tool.to_owned(), way))
    });
    each.collect()
}

#[test]
fn every_path_of_every_tool_is_in_the_table() {
    let listed = Command::new(env!("CARGO_BIN_EXE_hivekeep")).args(["tools", "--json"]).output();
    let listed: Value = serde_json::from_slice(&listed.expect("it runs").stdout).expect("JSON");
    let tools = listed.as_array().or_else(|| listed["tools"].as_array()).expect("tools");
    let (mut all, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for tool in tools {
        let (name, schema) = (tool["name"].as_str().expect("a name"), &tool["inputSchema"]);
        let mut found = Vec::new();
        texts(schema, schema, "", 0, &mut found);
        for (way, description) in found {
            if looks_like_a_path(&way, &description) {
                paths.insert((name.to_owned(), way.clone()));
            }
            all.insert((name.to_owned(), way));
        }
    }
    let tried = tried();
    let excepted: BTreeSet<Parameter> =
        EXCEPTIONS.iter().map(|(tool, way, _)| ((*tool).to_owned(), (*way).to_owned())).collect();
    let missing: Vec<_> =
        paths.iter().filter(|it| !tried.contains(it) && !excepted.contains(it)).collect();
    assert!(missing.is_empty(), "tests/it/escapes/calls.rs tries no path in {missing:#?}");
    let unknown: Vec<_> = tried.difference(&all).collect();
    assert!(unknown.is_empty(), "no tool takes {unknown:#?}");
    let stale: Vec<_> =
        excepted.iter().filter(|it| !paths.contains(it) || tried.contains(it)).collect();
    assert!(stale.is_empty(), "no exception any more: {stale:#?}");
}

/// Parameters that the table tries as paths and that a security context's `paths` does not look at, with
/// the reason.
const UNLIMITED: [(&str, &str); 13] = [
    ("after", "a position within the list of what `path` names"),
    ("as_member", "takes rights away"),
    ("base_image", "a reference, judged by the rules of images"),
    ("command", "judged by its words"),
    ("glob", "names within what `path` names"),
    ("id", "looked up by its owner"),
    ("label", "looked up by its owner"),
    ("pattern", "names within what `path` names"),
    ("place", "looked up by its owner; the folder that it names is looked at"),
    ("repo_url", "limited by `domains`"),
    ("url", "limited by `domains`"),
    ("volume", "looked up by its owner"),
    ("volume_id", "looked up by its owner"),
];

#[test]
fn a_security_context_looks_at_every_path_of_every_tool() {
    let leaf = |way: &str| way.rsplit('.').next().unwrap_or(way).trim_end_matches("[]").to_owned();
    let names: BTreeSet<_> = tried().iter().map(|(_, way)| leaf(way)).collect();
    let known = |name: &String| {
        hivekeep_policy::PATH_PARAMETERS.contains(&name.as_str())
            || UNLIMITED.iter().any(|(known, _)| known == name)
    };
    let missing: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(missing.is_empty(), "PATH_PARAMETERS in actors/policy lacks {missing:?}");
}

#[test]
fn a_path_is_known_by_its_name_or_by_what_is_said_of_it() {
    for name in ["path", "host_path", "newPath", "target_dir", "a.b[].cwd", "sparse_paths[]"] {
        assert!(looks_like_a_path(name, ""), "{name}");
    }
    assert!(
        looks_like_a_path("query", "The path of a note.") && !looks_like_a_path("query", "A text.")
    );
    assert!(!looks_like_a_path("pathology", "") && !looks_like_a_path("workspace_id", "A name."));
}
