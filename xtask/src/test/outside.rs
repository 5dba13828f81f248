//! hivekeep judged by programs that others wrote: the official conformance suite, the official
//! inspector, the official clients, schemathesis for the HTTP API, MCP servers as sources, and a
//! real language model, a real embedding model, Qdrant's own client, and E2B's SDKs.

mod clients;
mod conformance;
pub(crate) mod e2b;
mod embeddings;
mod inspector;
mod models;
mod openapi;
mod qdrant;
mod server;
mod sources;
mod tools;

use anyhow::{Result, anyhow};

pub(crate) use self::embeddings::{minilm, static_model};
pub(crate) use self::models::python;
pub(crate) use self::server::ServedDaemon;
use self::tools::Tools;
use super::nextest::Scope;
use crate::repo::Repo;
use crate::steps::{StepOutcome, Steps};

/// Runs all. Without a network for their packages they are skipped, and
/// where CI is told, that is a failure.
pub(super) fn steps(repo: &Repo, steps: &mut Steps, built: bool, scope: &Scope<'_>) {
    let tools = if built { Tools::get(repo) } else { Err(anyhow!("build failed")) };
    let with = |step: &dyn Fn(&Tools) -> Result<StepOutcome>| match &tools {
        Ok(tools) => step(tools),
        Err(why) => Ok(StepOutcome::Skipped(format!("{why:#}"))),
    };
    steps.run("conformance", || with(&|tools| conformance::check(repo, tools)));
    steps.run("inspector", || with(&|tools| inspector::check(repo, tools)));
    steps.run("openapi", || with(&|tools| openapi::check(repo, tools)));
    steps.run("sources", || with(&|tools| sources::check(repo, tools)));
    steps.run("models", || match built {
        true => models::check(repo),
        false => Ok(StepOutcome::Skipped("build failed".to_owned())),
    });
    steps.run("embeddings", || match built {
        true => embeddings::check(repo, scope.nightly),
        false => Ok(StepOutcome::Skipped("build failed".to_owned())),
    });
    steps.run("qdrant", || match built {
        true => qdrant::check(repo),
        false => Ok(StepOutcome::Skipped("build failed".to_owned())),
    });
    steps.run("e2b", || with(&|tools| e2b::check(repo, tools, scope)));
    steps.run("clients", || with(&|tools| clients::check(repo, tools, scope)));
}
