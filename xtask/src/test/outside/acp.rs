//! acpx, an editor of others, drives `hivekeep acp`: a call that is permitted, one that is refused, and a session that goes
//! on after a `kill -9`.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{server::ServedDaemon, tools::Tools};
use crate::repo::Repo;
use crate::steps::StepOutcome;

const ACPX: &str = "acpx/dist/cli.js";
const MANIFEST: &str = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: { name: keeper, version: 1.0.0 }\nspec:\n  \
    runtime: { language: python, version: '3.11' }\n  tools: [aegis.script.save]\n  \
    task: { instruction: Keep scripts. }\n";

pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    let home = repo.shell.create_temp_dir()?;
    let script = home.path().join("replies.json");
    let save = json!({ "name": "kept", "code": "echo kept" });
    let replies = json!({ "replies": [
        { "when": "Keep", "calls": [{ "name": "aegis_script_save", "arguments": save }] },
        { "when": "", "text": "I am done." },
    ] });
    fs::write(&script, replies.to_string())?;
    let config = format!(
        "[model.provider.script]\nkind = \"scripted\"\nscript = {script:?}\nmodels = {{ m = {{}} }}\n"
    );
    fs::write(home.path().join("config.toml"), config)?;
    let mut daemon = ServedDaemon::start(repo, home.path())?;
    let manifest = json!({ "manifest_yaml": MANIFEST }).to_string();
    daemon.output(&["call", "aegis.agent.create", "--json", &manifest])?;
    daemon.output(&["policy", "add", "careful", "ask", "aegis.script.save"])?;
    let agent = format!("{} acp --agent keeper", repo.hivekeep().display());
    let acpx = |daemon: &ServedDaemon, arguments: &[&str]| -> Result<String> {
        let run = tools.npm_script(ACPX).args(["--agent", &agent]).arg("--cwd").arg(home.path());
        let run = run.args(["--format", "quiet", "--timeout", "60"]).args(arguments);
        let run = run.envs(daemon.environment().iter().cloned()).env("HOME", home.path());
        // What was refused is an exit status of its own.
        Ok(run.ignore_status().read()?)
    };
    let kept = |daemon: &ServedDaemon| -> Result<usize> {
        let listed = daemon.output(&["call", "aegis.script.list", "--json", "{}"])?;
        Ok(listed.matches("\"kept\"").count())
    };
    acpx(&daemon, &["--deny-all", "exec", "Keep it"])?;
    ensure!(kept(&daemon)? == 0, "what was refused is not done");
    let said = acpx(&daemon, &["--approve-all", "exec", "Keep it"])?;
    ensure!(said.contains("I am done."), "it says {said}");
    ensure!(kept(&daemon)? == 1, "what was permitted is done");
    acpx(&daemon, &["sessions", "new"])?;
    acpx(&daemon, &["prompt", "One"])?;
    daemon.kill()?;
    let again = ServedDaemon::start(repo, home.path())?;
    let said = acpx(&again, &["prompt", "Two"])?;
    ensure!(said.contains("I am done."), "after a kill -9 it says {said}");
    let listed = again.output(&["runs", "--json"])?;
    ensure!(listed.matches("\"waiting_for\": \"message\"").count() == 3, "{listed}");
    acpx(&again, &["sessions", "close"])?;
    Ok(StepOutcome::Passed("acpx: refused, permitted, and on after a kill -9".to_owned()))
}
