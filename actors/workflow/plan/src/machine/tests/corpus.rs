use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use hivekeep_manifest::{ManifestKind, check, parse_workflow, read_workflow};
use serde_json::json;

use super::begun;

/// Names a folder of published manifests, which are not ours to keep here. A daemon would take it for a key of its
/// configuration, so it is set for this crate's tests alone.
const CORPUS: &str = "HIVEKEEP_AGENT_CORPUS";

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Each published workflow is taken with all of its texts, or refused at places that are named.
#[test]
fn published_workflows_are_taken_or_refused_by_place() {
    let Some(folder) = std::env::var_os(CORPUS) else {
        return hivekeep_skip::skip(format_args!("{CORPUS} names no folder of manifests"));
    };
    let mut paths = Vec::new();
    files(Path::new(&folder), &mut paths);
    paths.sort();
    let texts = paths.iter().filter_map(|path| Some((path, fs::read_to_string(path).ok()?)));
    let is_workflow = |text: &str| text.lines().any(|line| line.starts_with("kind: Workflow"));
    let workflows: Vec<_> = texts.filter(|(_, text)| is_workflow(text)).collect();
    assert!(!workflows.is_empty(), "{folder:?} has no workflow");
    let (mut taken, mut registered) = (0, 0);
    let mut refused = BTreeMap::<String, usize>::new();
    for (path, text) in &workflows {
        match parse_workflow(text) {
            Ok(manifest) => {
                taken += 1;
                registered += usize::from(read_workflow(text, None).is_ok());
                begun(&manifest, json!({})).unwrap_or_else(|why| panic!("{path:?}: {why}"));
            }
            Err(problems) => {
                assert_eq!(problems, check(ManifestKind::Workflow, text));
                for problem in problems {
                    assert!(!problem.path.is_empty(), "{path:?}: {problem}");
                    eprintln!("{}: {problem}", path.display());
                    *refused.entry(problem.message).or_default() += 1;
                }
            }
        }
    }
    println!("{taken} of {} workflows are taken, {registered} may be registered", workflows.len());
    println!("others are refused for {refused:#?}");
}
