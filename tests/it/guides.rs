//! What the pages for users show is true: settings are taken, calls have the schemas of their tools. That their
//! commands do what is shown is a scene in sandboxes (`tests/vm/scenes/guides.rs`).

pub(crate) mod page;

use std::{fs, path::Path};

use serde_json::{Deserializer, Value};

use crate::home::{Home, show};
use page::{Mark, Page, pages};
use toml::Table;

fn all() -> Vec<Page> {
    pages(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// Settings go on top of those that their page showed before.
#[test]
fn settings_are_taken() {
    let home = Home::new();
    let file = home.path("shown.toml");
    let mut problems = Vec::new();
    for page in all() {
        let mut settings = Table::new();
        for block in page.blocks.iter().filter(|block| block.language == "toml") {
            let place = format!("{}:{}", page.name, block.line);
            let shown: Table = block.text().parse().unwrap_or_else(|e| panic!("{place}: {e}"));
            merge(&mut settings, shown);
            fs::write(&file, settings.to_string()).expect("written");
            let taken = home.run(&["config", "--config", file.to_str().expect("UTF-8")]);
            if !taken.status.success() {
                problems.push(format!("{place}: {}", show(&taken)));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(into)), toml::Value::Table(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Calls among JSON values that stand one after the other: a tool's name and its arguments.
fn calls(text: &str) -> Vec<(String, Value)> {
    let call = |value: Value| {
        let call = if value["method"] == "tools/call" { value["params"].clone() } else { value };
        let name = call["name"].as_str()?.to_owned();
        call.get("arguments").map(|arguments| (name, arguments.clone()))
    };
    let values = Deserializer::from_str(text).into_iter::<Value>();
    values.map_while(Result::ok).filter_map(call).collect()
}

#[test]
fn calls_have_the_schemas_of_their_tools() {
    let home = Home::new();
    let _daemon = home.daemon();
    let tools = home.json(&["tools", "--json"]);
    let tools = tools.as_array().expect("tools");
    let (mut problems, mut seen) = (Vec::new(), 0);
    for page in all() {
        for block in page.blocks.iter().filter(|block| block.language == "json") {
            for (name, arguments) in calls(&block.text()) {
                seen += 1;
                let tool = tools.iter().find(|tool| tool["name"] == name);
                let schema = tool.map(|tool| &tool["inputSchema"]);
                let taken = schema.map(|schema| jsonschema::validate(schema, &arguments));
                match taken {
                    Some(Ok(())) => {}
                    taken => {
                        problems.push(format!("{}:{}: {name}: {taken:?}", page.name, block.line))
                    }
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen > 5, "{seen} calls are shown");
}

/// A page whose commands nobody runs becomes untrue without anybody's knowing it.
#[test]
fn nine_of_ten_blocks_are_run() {
    let blocks: Vec<_> = all().into_iter().flat_map(|page| page.blocks).collect();
    let ours: Vec<_> = blocks
        .iter()
        .filter(|block| block.is_shell() && !matches!(block.mark, Some(Mark::NotOurs(_))))
        .collect();
    let shown = ours.iter().filter(|block| matches!(block.mark, Some(Mark::NotRun(_)))).count();
    let all = ours.len();
    println!(
        "{} of {all} blocks for a shell are run in each run, in turn or at night",
        all - shown
    );
    assert!(10 * shown <= all, "{shown} of {all} blocks are only shown");
}

/// What is said to run a block is there.
#[test]
fn who_runs_a_block_is_a_scene_or_a_step() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["tests/vm/table/vm.rs", "tests/vm/table/sandbox.rs", "xtask/src/test/night.rs"];
    let known = files.map(|file| fs::read_to_string(root.join(file)).expect("read")).concat();
    for page in all() {
        for block in &page.blocks {
            if let Some(Mark::RunBy(name)) = &block.mark {
                let place = format!("{}:{}", page.name, block.line);
                assert!(known.contains(&format!("\"{name}\"")), "{place}: nothing is named {name}");
            }
        }
    }
}
