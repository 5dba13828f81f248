//! Schemathesis, which makes requests of all kinds from the HTTP API's OpenAPI document and holds the
//! answers against it.

use anyhow::{Context, Result, ensure};

use super::{server::ServedDaemon, tools::Tools};
use crate::repo::Repo;
use crate::steps::{StepOutcome, passed};

/// What an answer has to keep.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method,ignored_auth";
/// Requests of one kind for each operation.
const EXAMPLES: &str = "50";
/// Streams of events do not end by themselves.
const STREAMS: &str = "^/api/events";
/// Seconds for all of it; it takes about twenty.
const PATIENCE: &str = "180";

pub(super) fn check(repo: &Repo, tools: &Tools) -> Result<StepOutcome> {
    let home = repo.shell.create_temp_dir()?;
    let open = [
        ("HIVEKEEP_HTTP__API__ENABLED", "true"),
        ("HIVEKEEP_HTTP__API__BIND", "127.0.0.1:0"),
        ("HIVEKEEP_AUDIT__ENABLED", "true"),
    ];
    let daemon = ServedDaemon::start_with(repo, home.path(), &open)?;
    let token = daemon.output(&["credential", "create", "judge", "--scope", "operator"])?;
    let status: serde_json::Value = serde_json::from_str(&daemon.output(&["status", "--json"])?)?;
    let url = status["http_api"].as_str().context("the door is open")?;
    let config = repo.root.join("tests/clients/schemathesis.toml");
    let output = tools
        .python_module("schemathesis.cli", PATIENCE)
        .arg("--config-file")
        .arg(config)
        .args(["run", &format!("{url}/openapi.json")])
        .args(["--header", &format!("Authorization: Bearer {}", token.trim())])
        .args(["--checks", CHECKS, "--max-examples", EXAMPLES])
        .args(["--exclude-path-regex", STREAMS, "--no-shrink", "--continue-on-failure"])
        .ignore_status()
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        println!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    ensure!(output.status.success(), "schemathesis found what is not as documented");
    let cases = text.lines().find(|line| line.contains(" generated,"));
    Ok(passed(cases.context("it says how many cases it made")?.trim()))
}
