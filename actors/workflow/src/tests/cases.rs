//! Black-box cases of another implementation, from a folder that `HIVEKEEP_DAG_CASES` names: each DAG is run, and what
//! it leaves is compared.

use std::{collections::BTreeMap, fs, path::Path};

use hivekeep_manifest::read_dag;
use hivekeep_plan::progress::RunOutcome;
use hivekeep_plan::resolve::GivenParams;
use serde_json::{Value, json};

use super::Stage;

/// Specs whose cases are run.
const SPECS: [&str; 10] = [
    "spec004_consts",
    "spec005_params",
    "spec006_env",
    "spec007_value_resolution_steps",
    "spec009_step_reference",
    "spec011_dynamic_evaluation",
    "spec012_step_outputs",
    "spec014_step_run_command",
    "spec015_step_run_script",
    "spec023_preconditions",
];

/// Names a folder of published cases, which are not ours to keep here. A daemon would take it for a key of its
/// configuration, so it is set for this crate's tests alone.
const CASES: &str = "HIVEKEEP_DAG_CASES";
/// Reasons why cases do not leave what they should: parts of messages.
const KNOWN: [&str; 3] =
    ["`sqlite.query` is not here", "cannot be run yet", "ended with status 127"];

#[tokio::test]
async fn published_cases_leave_what_they_should() {
    let Some(folder) = std::env::var_os(CASES) else {
        return hivekeep_skip::skip(format_args!("{CASES} names no folder of cases"));
    };
    let cases = fs::read_to_string(Path::new(&folder).join("cases.json")).expect("cases");
    let cases: Vec<Value> = serde_json::from_str(&cases).expect("cases");
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    let mut total = 0;
    for case in &cases {
        let spec = case["spec"].as_str().expect("a spec");
        if case["expect"] != "run" || !SPECS.contains(&spec) {
            continue;
        }
        total += 1;
        let name = format!("{spec}: {}", case["name"].as_str().unwrap_or_default());
        if let Err(why) = judge(Path::new(&folder), spec, case).await {
            told.insert(name, why);
        }
    }
    println!("{} of {total} cases leave what they should", total - told.len());
    told.retain(|_, why| !KNOWN.iter().any(|known| why.contains(known)));
    assert!(told.is_empty(), "{told:#?}");
}

async fn judge(folder: &Path, spec: &str, case: &Value) -> Result<(), String> {
    let text = |name: &str| case[name].as_str().map(str::to_owned);
    let data = folder.join(spec).join("testdata");
    let file = text("file").ok_or("no file")?;
    let dag = fs::read_to_string(data.join(&file)).map_err(|error| error.to_string())?;
    if let Err(problems) = read_dag(&dag, None) {
        return match case["exitCode"].as_i64() {
            Some(code) if code != 0 => Ok(()),
            _ => Err(format!("it is refused: {problems:?}")),
        };
    }
    let stage = Stage::new().await;
    fs::create_dir_all(stage.guest.folder()).map_err(|error| error.to_string())?;
    for entry in fs::read_dir(&data).map_err(|error| error.to_string())?.flatten() {
        let _folders_are_left =
            fs::copy(entry.path(), stage.guest.folder().join(entry.file_name()));
    }
    let args: Vec<String> = case["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|arg| arg.as_str().map(str::to_owned))
        .collect();
    let params = args.iter().position(|arg| arg == "--params").and_then(|at| args.get(at + 1));
    let words: Vec<String> = args.iter().skip_while(|arg| *arg != "--").skip(1).cloned().collect();
    let given = match params {
        Some(text) => GivenParams::from_text(text),
        None => GivenParams::from_words(&words),
    };
    let mut list = given.positional;
    list.push(Value::Object(given.named));
    if let Some(name) = text("missingParam").filter(|_| args.is_empty()) {
        list.push(json!({ name: "prod" }));
    }
    if let Some((folder, _)) = text("output").as_deref().and_then(|path| path.rsplit_once('/')) {
        fs::create_dir_all(stage.guest.folder().join(folder)).map_err(|error| error.to_string())?;
    }
    let run = stage.ran(&dag, json!(list)).await;
    let outcome = run.outcome().ok_or("it is not over")?;
    let wanted = case["exit"].as_i64();
    let succeeded = matches!(outcome, RunOutcome::Succeeded | RunOutcome::PartlySucceeded);
    if wanted.is_some_and(|code| (code == 0) != (succeeded || outcome == RunOutcome::Aborted)) {
        return Err(format!("it ended {outcome:?}: {:?}", run.left));
    }
    for (file, content) in [("output", "content"), ("outputFile", "outputContent")] {
        if let (Some(file), Some(content)) = (text(file), text(content)) {
            let left = stage.file(&file);
            if left.as_deref() != Some(&content) {
                return Err(format!(
                    "{file} has {left:?}, not {content:?}; {outcome:?}, {:?}",
                    run.left
                ));
            }
        }
    }
    if let Some(file) = text("absentFile")
        && stage.file(&file).is_some()
    {
        return Err(format!("{file} is there"));
    }
    Ok(())
}
