//! Port of webhooks: requests of strangers, each of which begins a run of the one DAG that it was made for.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hivekeep_kernel::{CredentialId, RunId, ToolError};
use serde::{Deserialize, Serialize};

/// DAG of a watched folder that a webhook begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookTarget {
    /// Name of the DAG.
    pub dag: String,
    /// Place of its file.
    pub place: String,
    /// Path of its file there.
    pub file: String,
}

/// Request of somebody who has the bearer of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// Credential that it showed.
    pub hook: CredentialId,
    /// DAG that this is for.
    pub target: WebhookTarget,
    /// Key under which it begins one run, however often it comes.
    pub key: Option<String>,
    /// Body of the request.
    pub body: String,
    /// Header fields by their names in lower case, without credentials.
    pub headers: BTreeMap<String, Vec<String>>,
}

/// Reason why a request begins no run.
#[derive(Debug)]
pub enum WebhookRefusal {
    /// The DAG is not there any more.
    NotThere,
    /// Its key was used for another body.
    KeyReused,
    /// The DAG cannot be run as it is written.
    Invalid(ToolError),
    /// More runs than may go on or wait.
    Full(ToolError),
    /// Another failure.
    Failed(ToolError),
}

/// Way in for webhooks, to DAGs of watched folders.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Finds the watched DAG of a name, or of a file as `PLACE:PATH`.
    ///
    /// # Errors
    /// `not_found`, or `invalid_input` where several have the name.
    fn target(&self, named: &str) -> Result<WebhookTarget, ToolError>;

    /// Begins a run, which is durable when this returns; the one that has the key where there is one.
    ///
    /// # Errors
    /// The reason why no run was begun.
    async fn begin(&self, request: WebhookRequest) -> Result<RunId, WebhookRefusal>;
}
