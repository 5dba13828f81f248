//! The tool that finds workflows by words.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, tools};
use hivekeep_manifest_registry::{ManifestLabels, ManifestQuery, check_tenant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, listing::WorkflowRow};
use crate::service::WorkflowService;

/// Find a workflow for a task among those that you can use: say what it should do in a few words, or a part of
/// a name. The best come first.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WorkflowSearch {
    /// Words, as `review a change`, or a part of a name.
    #[schemars(length(min = 1, max = 500))]
    query: String,
    /// Tenant to search in. Default: this daemon, `local`, which is the only one.
    tenant_id: Option<String>,
    /// Most workflows to show, 1 to 100.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
    /// Least score, 0 to 1.
    #[serde(default = "some")]
    #[schemars(range(min = 0.0, max = 1.0))]
    min_score: f64,
    /// Labels with their values, all of which a workflow has to have.
    #[serde(default)]
    labels: Option<ManifestLabels>,
    /// Show workflows that come with the daemon, too.
    #[serde(default = "yes")]
    include_platform_templates: bool,
}

fn ten() -> usize {
    10
}

fn some() -> f64 {
    0.3
}

fn yes() -> bool {
    true
}

/// Workflows that a query found.
#[derive(Debug, Serialize, JsonSchema)]
struct WorkflowsFound {
    /// Name of the tool.
    tool: &'static str,
    /// Query.
    query: String,
    /// How they were found: `lexical`, by their words.
    search_mode: &'static str,
    /// Workflows, the best first.
    results: Vec<FoundWorkflow>,
    /// How many were found in all.
    total: usize,
}

/// A workflow that was found.
#[derive(Debug, Serialize, JsonSchema)]
struct FoundWorkflow {
    /// Workflow.
    #[serde(flatten)]
    row: WorkflowRow,
    /// Score from 0 to 1: 1 for a workflow whose name is the query; for the best of the others the share of the
    /// query's words that it has.
    score: f64,
}

tools! { pub(crate) SEARCH_FAMILY: "workflows" for service WorkflowService, singleton workflows;
    workflow_search: WorkflowSearch => WorkflowsFound = WorkflowService::search {
        name: "aegis.workflow.search", title: "Search workflows", effect: Read,
    };
}

impl WorkflowService {
    async fn search(self: Arc<Self>, cx: CallCx, input: WorkflowSearch) -> Answer<WorkflowsFound> {
        check_tenant(input.tenant_id.as_deref())?;
        let query = ManifestQuery {
            words: input.query.clone(),
            labels: input.labels.unwrap_or_default(),
            min_score: input.min_score,
            global: input.include_platform_templates,
        };
        let found = self.workflows.search(self.caller(&cx)?, query).await?.into_iter();
        let found = found
            .map(|(score, id, entry)| FoundWorkflow { row: WorkflowRow::new(id, &entry), score });
        let mut results: Vec<_> = found.collect();
        let total = results.len();
        results.truncate(input.limit);
        let tool = cx.tool;
        Ok(WorkflowsFound { tool, query: input.query, search_mode: "lexical", results, total })
    }
}
