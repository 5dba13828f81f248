//! Agents that a workflow names: whether they are there for a caller, and whether the models are that they need.
//! They are another family's, and asked for by its tools.

use std::collections::BTreeSet;

use hivekeep_kernel::{CallCx, ToolError};
use hivekeep_manifest::{parse_agent, workflow::WorkflowManifest};
use hivekeep_ports::{ModelUse, Models};
use hivekeep_runtime::OnBehalfOf;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Answer, blocking};
use crate::service::WorkflowService;

impl WorkflowService {
    /// Names and ids of the agents that a caller sees.
    ///
    /// # Errors
    /// Those of `aegis.agent.list`.
    pub(super) async fn agents_of(&self, cx: &CallCx) -> Answer<BTreeSet<String>> {
        #[derive(Deserialize)]
        struct Listed {
            agents: Vec<Row>,
        }
        #[derive(Deserialize)]
        struct Row {
            id: String,
            name: String,
        }
        let listed: Listed = self.ask(cx, "aegis.agent.list", json!({})).await?;
        Ok(listed.agents.into_iter().flat_map(|row| [row.id, row.name]).collect())
    }

    /// Refuses a workflow with agents that are not there, or whose model is not; those that templates name are found
    /// when their state is entered.
    ///
    /// # Errors
    /// `agent_not_found`, `llm_not_configured` and others of models; `details.states` names the fields.
    pub(super) async fn check_agents(
        &self,
        cx: &CallCx,
        workflow: &WorkflowManifest,
    ) -> Answer<()> {
        #[derive(Deserialize)]
        struct Exported {
            manifest_yaml: String,
        }
        let named = workflow.spec.agents();
        let agents: BTreeSet<_> = named.iter().map(|(_, agent)| *agent).collect();
        for agent in agents {
            let fields = || named.iter().filter(|(_, it)| *it == agent).map(|(at, _)| at.as_str());
            let told = |error: ToolError| {
                let message = format!("the agent `{agent:.80}` cannot run: {}", error.message);
                let error = ToolError { message, ..error };
                error.detail("states", json!(fields().collect::<Vec<_>>()))
            };
            let asked = json!({ "name": agent });
            let exported: Exported =
                self.ask(cx, "aegis.agent.export", asked).await.map_err(told)?;
            let parsed = blocking(move || parse_agent(&exported.manifest_yaml)).await?;
            // A program brings its own means; whoever runs it says what it lacks.
            let runtime = parsed.ok().map(|agent| agent.spec.runtime);
            let runtime = runtime.filter(|it| it.program.is_none() && it.command.is_none());
            let Some(runtime) = runtime else { continue };
            let model = runtime.model.as_deref().unwrap_or("default");
            let models = self.daemon.ports.need::<dyn Models>()?;
            models.resolve(model, ModelUse::Generate).map_err(told)?;
        }
        Ok(())
    }

    /// Calls a tool that reads, for the session of a call.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        cx: &CallCx,
        tool: &'static str,
        args: Value,
    ) -> Answer<T> {
        self.asked.call_idempotent(cx.id, &OnBehalfOf::call(cx), tool, args).await
    }
}
