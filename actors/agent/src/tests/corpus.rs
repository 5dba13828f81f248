use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use hivekeep_manifest::{ManifestKind, check, read_agent};
use serde_json::json;

use super::{Stage, fakes::says};

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

/// Tools that an agent names: those that a catalogue without any misses, as the message has them.
fn named_by(text: &str) -> impl Iterator<Item = String> {
    let problems = read_agent(text, &[]).err().unwrap_or_default().into_iter();
    let tool = |message: &str| {
        message.strip_prefix("there is no tool `")?.strip_suffix('`').map(str::to_owned)
    };
    problems.filter_map(move |problem| tool(&problem.message))
}

/// Each published manifest is taken and given back as it was, or refused at fields that are named; of those that are
/// taken each agent is run, or refused by the names of what nothing obeys.
#[tokio::test]
async fn published_manifests_are_kept_as_they_are_or_refused_by_field() {
    let Some(folder) = std::env::var_os(CORPUS) else {
        return hivekeep_skip::skip(format_args!("{CORPUS} names no folder of manifests"));
    };
    let mut paths = Vec::new();
    files(Path::new(&folder), &mut paths);
    assert!(!paths.is_empty(), "{folder:?} is empty");
    paths.sort();
    let read = |path: &PathBuf| fs::read_to_string(path).expect("read");
    let texts: Vec<_> = paths.iter().map(read).collect();
    let tools: BTreeSet<_> = texts.iter().flat_map(|text| named_by(text)).collect();
    let stage = Stage::new(tools).await;
    stage.models.answer(|_| says("Done.", &[]));
    let (mut taken, mut run, mut wants_input, mut unnamed) = (0, 0, 0, Vec::new());
    let mut fields = BTreeMap::<String, usize>::new();
    for (path, text) in paths.iter().zip(&texts) {
        let is_workflow = text.lines().any(|line| line.starts_with("kind: Workflow"));
        let kind = if is_workflow { ManifestKind::Workflow } else { ManifestKind::Agent };
        let problems = check(kind, text);
        taken += usize::from(problems.is_empty());
        unnamed.extend(
            problems.iter().filter(|it| it.path.is_empty()).map(|it| format!("{path:?}: {it}")),
        );
        if is_workflow || !problems.is_empty() {
            continue;
        }
        let made = json!({ "manifest_yaml": text, "force": true });
        let made = stage.as_operator("create", made).await;
        let made = made.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let asked = json!({ "name": made["agent_id"], "version": made["version"] });
        let exported = stage.as_operator("export", asked).await.expect("it is there");
        assert_eq!(exported["manifest_yaml"], **text, "{path:?}");
        let asked = json!({ "agent_id": made["agent_id"], "intent": "Do it." });
        match stage.call("aegis.task.execute", asked).await {
            Ok(started) => {
                let id = started["execution_id"].as_str().expect("an id");
                let end = stage.end(id).await;
                let judged = ["validation_failed", "judge_unavailable"];
                let judged = judged.iter().any(|code| end["error_code"] == *code);
                assert!(judged || end["status"] == "completed", "{path:?}: {end}");
                run += 1;
            }
            // They would run with the input that they want.
            Err(refused)
                if refused.code == "input_invalid" || refused.code == "agent_prompt_invalid" =>
            {
                wants_input += 1;
            }
            // A judge that is not among them.
            Err(refused) if refused.code == "agent_not_found" => {
                assert!(refused.details["field"].is_string(), "{path:?}: {refused}");
            }
            Err(refused) => {
                assert_eq!(refused.code, "agent_field_unsupported", "{path:?}: {refused}");
                let named = refused.details["fields"].as_array().expect("fields");
                assert!(!named.is_empty(), "{path:?}");
                let names = named.iter().map(|field| field["field"].as_str().expect("one"));
                names.for_each(|name| *fields.entry(name.to_owned()).or_default() += 1);
            }
        }
    }
    println!("{taken} of {} manifests are taken, {run} agents of them run", paths.len());
    println!("{wants_input} more want an input");
    println!("agents are refused for {fields:?}");
    assert!(unnamed.is_empty(), "{}", unnamed.join("\n"));
}
