//! The official inspector's command line, over stdio.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{server::ServedDaemon, tools::Tools};
use crate::repo::Repo;
use crate::steps::StepOutcome;

const INSPECTOR: &str = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";

pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    let home = repo.shell.create_temp_dir()?;
    let daemon = ServedDaemon::start(repo, home.path())?;
    // It gives its server nothing of its own environment but what it is told to.
    let environment = daemon.environment().iter();
    let environment: Vec<_> =
        environment.map(|(name, value)| format!("{name}={}", value.display())).collect();
    let ask = |arguments: &[&str]| -> Result<Value> {
        let answer = tools
            .npm_script(INSPECTOR)
            .arg("--cli")
            .args(environment.iter().flat_map(|pair| ["-e", pair]))
            .arg(repo.hivekeep())
            .args(["mcp", "--no-spawn"])
            .args(arguments)
            .read()?;
        serde_json::from_str(&answer).with_context(|| format!("its answer is JSON: {answer}"))
    };
    let listed = ask(&["--method", "tools/list"])?;
    let tools = listed["tools"].as_array().context("it lists tools")?.len();
    ensure!(tools >= 17, "it lists {tools} tools");
    let called = ask(&["--method", "tools/call", "--tool-name", "workspace_list"])?;
    let count = &called["structuredContent"]["count"];
    ensure!(count == 0, "workspace_list answers {called}");
    Ok(StepOutcome::Passed(format!("{tools} tools listed, one called")))
}
