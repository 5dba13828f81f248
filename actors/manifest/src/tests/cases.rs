use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{dag::NoticeClass, read_dag};

/// Names a folder with `cases.json` and its fixtures, which are not ours to keep here.
const CASES: &str = "HIVEKEEP_DAG_CASES";
/// Specs of the notation; the others are of what runs.
const SPECS: [&str; 13] =
    ["002", "003", "004", "005", "006", "007", "009", "011", "012", "014", "015", "018", "023"];

/// What is wrong with a verdict, if anything is.
fn misjudged(case: &Value, text: &str) -> Option<String> {
    let read = read_dag(text, None);
    let texts = |key: &str| case[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    // The wording is ours: names of the fixture are all that counts.
    let parts = texts("stderrParts").chain(texts("parts")).filter(|part| text.contains(part));
    let lacks = |told: &[String]| {
        let missing = parts.clone().find(|part| !told.iter().any(|told| told.contains(part)));
        missing.map(|part| format!("nothing tells {part}: {told:#?}"))
    };
    match (case["expect"].as_str(), read) {
        (Some("invalid"), Ok(_)) => Some("is taken".to_owned()),
        (Some("invalid"), Err(problems)) => {
            lacks(&problems.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        (_, Err(problems)) => Some(format!("is refused: {problems:#?}")),
        (Some("notice"), Ok(file)) if parts.clone().next().is_some() => {
            lacks(&file.notices.iter().map(|it| it.told.to_string()).collect::<Vec<_>>())
        }
        (_, Ok(file)) => {
            let defect = file.notices.iter().find(|it| it.class == NoticeClass::Defect);
            defect.map(|defect| format!("is told of {defect:?}"))
        }
    }
}

/// Published black-box cases of a validator are judged as they are there.
#[test]
fn published_cases_are_judged_as_expected() {
    let Some(folder) = std::env::var_os(CASES) else {
        return hivekeep_skip::skip(format_args!("{CASES} names no folder of cases"));
    };
    let folder = Path::new(&folder);
    let cases = fs::read_to_string(folder.join("cases.json")).expect("cases.json");
    let cases: Vec<Value> = serde_json::from_str(&cases).expect("JSON");
    let mut counts = BTreeMap::<(bool, &str), (usize, usize)>::new();
    for case in cases.iter().filter(|case| case["expect"] != "run") {
        let [spec, file, expect] =
            ["spec", "file", "expect"].map(|key| case[key].as_str().unwrap_or_default());
        let text = fs::read_to_string(folder.join(spec).join("testdata").join(file)).expect("text");
        let ours = SPECS.iter().chain(&["031"]).any(|number| spec[4..].starts_with(number));
        let (right, all) = counts.entry((ours, expect)).or_default();
        *all += 1;
        match misjudged(case, &text) {
            None => *right += 1,
            Some(why) => println!("{spec} {file} ({expect}): {why}"),
        }
    }
    println!("(of the notation, kind): (as expected, all): {counts:?}");
    let of_notation = counts.iter().filter(|((ours, _), _)| *ours).map(|(_, counts)| *counts);
    let (right, all) = of_notation.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{right} of {all} cases of the notation are as expected");
    assert!(right * 100 >= all * 95, "{right} of {all}");
}
