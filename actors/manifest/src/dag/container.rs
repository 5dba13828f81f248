//! Container that a DAG or a step runs in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::values::{DagEnv, OneOrMore};
use crate::common::JsonObject;
use crate::path::ManifestPath;
use crate::problems::ProblemList;

/// Container: the name of one that runs, or what it is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum DagContainer {
    /// Name of a container that runs.
    Running(#[schemars(length(min = 1))] String),
    /// What it is made of.
    Spec(Box<DagContainerSpec>),
}

/// Container: exactly one of `image` and `exec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DagContainerSpec {
    /// Name that it is given.
    pub name: Option<String>,
    /// Reference of the image.
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    /// Name of a container that runs.
    #[schemars(length(min = 1))]
    pub exec: Option<String>,
    /// When the image is fetched. Default: `missing`.
    pub pull_policy: Option<PullPolicy>,
    /// Environment.
    pub env: Option<DagEnv>,
    /// Folders of the host, as `HOST:CONTAINER` with `:ro` or `:rw` behind.
    pub volumes: Option<Vec<String>>,
    /// Ports, as `HOST:CONTAINER`.
    pub ports: Option<Vec<String>>,
    /// Network.
    pub network: Option<String>,
    /// User.
    pub user: Option<String>,
    /// Folder that commands run in.
    pub working_dir: Option<String>,
    /// Platform, as `linux/amd64`.
    pub platform: Option<String>,
    /// What keeps it running. Default: `keepalive`.
    pub startup: Option<ContainerStartup>,
    /// Program, where `startup` is `command`.
    pub command: Option<OneOrMore>,
    /// What steps wait for. Default: `running`.
    pub wait_for: Option<ContainerWaitFor>,
    /// Pattern in its log that steps wait for.
    pub log_pattern: Option<String>,
    /// Check that it is well.
    pub healthcheck: Option<JsonObject>,
    /// When it is started again.
    pub restart_policy: Option<String>,
    /// True to keep it after the run.
    pub keep_container: Option<bool>,
    /// Shell that commands go through.
    pub shell: Option<OneOrMore>,
}

/// When an image of a DAG is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PullPolicy {
    /// Before each start.
    Always,
    /// Never.
    Never,
    /// When it is missing.
    Missing,
}

/// What keeps a container running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerStartup {
    /// A program that waits.
    Keepalive,
    /// The image's own program.
    Entrypoint,
    /// `command`.
    Command,
}

/// What steps wait for before they use a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerWaitFor {
    /// That it runs.
    Running,
    /// That it is well.
    Healthy,
}

pub(super) fn check(container: &DagContainer, at: &ManifestPath, problems: &mut ProblemList<'_>) {
    let DagContainer::Spec(spec) = container else { return };
    if spec.image.is_some() == spec.exec.is_some() {
        problems.add(at, "needs exactly one of `image` and `exec`");
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let parts: Vec<_> = volume.split(':').collect();
        let mode = matches!(parts[..], [_, _] | [_, _, "ro" | "rw"]);
        if !mode || parts.iter().any(|part| part.is_empty()) {
            let message = "is not `HOST:CONTAINER` with `:ro` or `:rw` behind, if at all";
            problems.add(&at.join("volumes").join(index), message);
        }
    }
    if let Some(pattern) = &spec.log_pattern {
        crate::expressions::regex(pattern, &at.join("log_pattern"), problems);
    }
    if spec.startup == Some(ContainerStartup::Command) && spec.command.is_none() {
        problems.add(&at.join("startup"), "the key `command` is missing");
    }
}
