use std::{
    fs,
    path::{Path, PathBuf},
};

use super::told;
use crate::{ManifestKind, dag::DagManifest, read_dag};

/// Names a folder of published DAGs, which are not ours to keep here. A daemon would take it for a key of its
/// configuration, so it is set for this crate's tests alone.
const CORPUS: &str = "HIVEKEEP_DAG_CORPUS";

/// Files of a folder in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Published DAGs are taken, or refused by the names of what is not here; what else is refused is shown.
#[test]
fn published_dags_are_taken_or_refused_by_name() {
    let Some(folder) = std::env::var_os(CORPUS) else {
        return hivekeep_skip::skip(format_args!("{CORPUS} names no folder of DAGs"));
    };
    for (name, least) in
        [("dagu-docs-2026", 650), ("dagu-skills-specs", 178), ("dagu-docs-2025-11", 133)]
    {
        let (mut valid, mut by_name) = (0, 0);
        let paths = files(&Path::new(&folder).join(name));
        for path in &paths {
            let text = fs::read_to_string(path).expect("text");
            let problems = told(ManifestKind::Dag, &text);
            for dag in read_dag(&text, None).ok().into_iter().flat_map(|file| file.documents) {
                let record = serde_json::to_string(&dag).expect("JSON");
                let read: DagManifest = serde_json::from_str(&record).expect("it is read back");
                assert_eq!(read, dag, "{path:?}: {record}");
            }
            match problems.iter().filter(|told| !told.contains("not here")).collect::<Vec<_>>() {
                _ if problems.is_empty() => valid += 1,
                rest if rest.is_empty() => by_name += 1,
                rest => println!("{path:?}: {rest:#?}"),
            }
        }
        println!("{name}: {valid} of {} are valid, {by_name} refused by name", paths.len());
        assert!(valid >= least, "{name}: {valid}");
    }
}
