use std::{
    fs,
    path::{Path, PathBuf},
};

use hivekeep_manifest::parse_workflow;

use super::*;

/// Names a folder of published manifests, which are not ours to keep here. A daemon would take it for a key of its
/// configuration, so it is set for this crate's tests alone.
const CORPUS: &str = "HIVEKEEP_AGENT_CORPUS";

/// Shipped workflows, their inputs, the paths on which their agents lead them, and how they end. The first has no
/// transition for a program that succeeds.
const SHIPPED: [(&str, &str, &str, Option<&str>); 3] = [
    (
        "builtin-intent-to-execution",
        r#"{ "language": "python", "runner": "sh", "runner_flags": "-e", "language_ext": "sh", "inputs": { "n": 1 }, "inputs_json": "{\"n\": 1}" }"#,
        "WRITE_CODE VALIDATE_CODE WRITE_CODE VALIDATE_CODE EXECUTE_CODE",
        Some("no_transition"),
    ),
    (
        "builtin-workflow-generator",
        r#"{ "input": "a workflow" }"#,
        "PLAN GENERATE_MISSING_AGENTS GENERATE_AND_REGISTER_WORKFLOW",
        None,
    ),
    (
        "skill-import",
        r#"{ "skill_url": "file:///dev/null" }"#,
        "FETCH PARSE_AND_VALIDATE FAILED",
        None,
    ),
];

fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let below = path.is_dir().then(|| found(&path, name)).flatten();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if below.is_some() || stem.is_some_and(|stem| stem.ends_with(name)) {
            return below.or(Some(path));
        }
    }
    None
}

#[tokio::test]
async fn shipped_workflows_of_others_run() {
    let Some(folder) = std::env::var_os(CORPUS) else {
        return hivekeep_skip::skip(format_args!("{CORPUS} names no folder of manifests"));
    };
    for (name, input, path, code) in SHIPPED {
        let file = found(Path::new(&folder), name).unwrap_or_else(|| panic!("{name} is not there"));
        let manifest = parse_workflow(&fs::read_to_string(file).expect("read")).expect(name);
        let agents = ScriptedAgents::new(|asked, before| match (asked.agent.as_str(), before) {
            (agent, 0) if agent.ends_with("-code-validator-agent") => {
                completed(r#"{ "valid": false, "summary": "no" }"#)
            }
            (agent, _) if agent.ends_with("-code-validator-agent") => {
                completed(r#"{ "valid": true }"#)
            }
            ("skill-validator", _) => completed(r#"{ "score": 0.4 }"#),
            _ => completed(r#"{ "created": [] }"#),
        });
        let stage = MachineStage::new(agents).await;
        let place = stage.stage.guest.folder();
        fs::create_dir_all(&place).expect("it is made");
        fs::write(place.join("solution.sh"), "echo \"$INTENT_INPUTS\"").expect("written");
        let input = serde_json::from_str(input).expect("JSON");
        let id = stage.begin(&manifest, input).await.expect(name);
        let over = stage.over(id).await;
        assert_eq!(stage.path(id).await, path, "{name}: {over:#?}");
        let failed = over.error.as_ref().map(|error| &*error.code);
        assert_eq!(failed, code, "{name}: {over:#?}");
    }
}
