//! Section `[repository]`.

use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of each user's repositories, and the workspaces that work on them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Repositories of one user. Each has a volume, which counts among the user's volumes too.
    #[schemars(range(min = 1))]
    pub max_repositories: usize,
    /// Size of a repository's volume in MiB where the clone names none.
    #[schemars(range(min = 1))]
    pub volume_mb: u64,
    /// Wall-clock limit in seconds of what git does with a server.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_secs: u64,
    /// Name of who commits, where neither the call nor the repository says it.
    pub author_name: String,
    /// Address of who commits, where neither the call nor the repository says it.
    pub author_email: String,
    /// The workspace that git runs in, made for one operation.
    pub machine: RepositoryMachineOptions,
}

/// Workspace of one operation. What is unset is as `workspace_create` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepositoryMachineOptions {
    /// How it is isolated where git needs the network: only virtual machines have one.
    pub isolation: RepositoryIsolation,
    /// How it is isolated where git needs none: for commits, differences and remotes on volumes.
    pub local_isolation: RepositoryIsolation,
    /// Image that it starts from, which has git.
    pub image: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Size of its disk in GiB.
    pub disk_gb: Option<u64>,
}

/// Isolation of a repository's workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryIsolation {
    /// Virtual machine.
    Vm,
    /// Namespaces on the host's kernel.
    Sandbox,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_repositories: 20,
            volume_mb: 1024,
            timeout_secs: 900,
            author_name: "hivekeep".to_owned(),
            author_email: "hivekeep@localhost".to_owned(),
            machine: RepositoryMachineOptions::default(),
        }
    }
}

impl Default for RepositoryMachineOptions {
    fn default() -> Self {
        Self {
            isolation: RepositoryIsolation::Vm,
            local_isolation: RepositoryIsolation::Sandbox,
            image: None,
            vcpus: None,
            memory_mb: None,
            disk_gb: None,
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for (key, text) in
            [("author_name", &self.author_name), ("author_email", &self.author_email)]
        {
            if text.trim().is_empty() || text.contains(['<', '>', '\n']) {
                problems.push((key, "is empty, or has `<`, `>` or a line end".to_owned()));
            }
        }
        problems
    }
}
