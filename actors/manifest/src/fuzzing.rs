//! Fuzz targets: manifests as anybody may write them.

use crate::{
    MAX_PROBLEMS, ManifestKind, agent::AgentManifest, check, dag::DagManifest, parse_agent,
    read_dag,
};

/// Checks a text as a manifest of each kind.
///
/// # Panics
/// When problems are more than are told, or an agent or a DAG without any is not the same once it is written
/// again.
pub fn manifest(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for kind in [ManifestKind::Agent, ManifestKind::Workflow] {
        assert!(check(kind, &text).len() <= MAX_PROBLEMS);
    }
    if let Ok(agent) = parse_agent(&text) {
        assert!(check(ManifestKind::Agent, &text).is_empty());
        let written = serde_json::to_value(&agent).expect("serialises");
        let again: AgentManifest = serde_json::from_value(written).expect("our own");
        assert_eq!(again, agent);
    }
    match read_dag(&text, None) {
        Ok(file) => {
            let written = serde_json::to_value(&file.documents).expect("serialises");
            let again: Vec<DagManifest> = serde_json::from_value(written).expect("our own");
            assert_eq!(again, file.documents);
        }
        Err(problems) => assert!((1..=MAX_PROBLEMS).contains(&problems.len())),
    }
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("manifest", manifest);
}
