//! Manifests of agents for executions, and the judges of an execution, which are planned before it is begun: one that
//! is not there, or cannot run, is told at once and by the field that names it.

use hivekeep_kernel::{AgentId, CallCx, Layer, ToolError};
use hivekeep_manifest::{agent::AgentManifest, parse_agent};
use hivekeep_manifest_registry::RegistryCaller;

use crate::{
    codes,
    execution::plan::{ExecutionPlan, ExecutionRequest, JudgePlan},
    tools::{AgentService, invalid},
};

type Answer<T> = Result<T, ToolError>;

/// Most judges of an agent: each has its plan in the execution's first record.
const MOST_JUDGES: usize = 16;

impl AgentService {
    /// Manifest of an agent that the caller sees, with the agent's id.
    pub(crate) async fn manifest(
        &self,
        caller: RegistryCaller,
        id_or_name: &str,
        version: Option<&str>,
    ) -> Answer<(AgentId, AgentManifest)> {
        let (agent_id, _, kept) = self.agents.find(caller, id_or_name, version)?;
        let parse = tokio::task::spawn_blocking(move || parse_agent(&kept.text)).await;
        let parse = parse.map_err(|panic| ToolError::internal(panic.to_string()))?;
        Ok((agent_id, parse.map_err(|problems| invalid(&problems))?))
    }

    /// Adds the judges that a plan's validators name.
    ///
    /// # Errors
    /// `judges_too_many`, and those of an execution of the judge; `details.field` names the field.
    pub(crate) async fn plan_judges(&self, cx: &CallCx, plan: &mut ExecutionPlan) -> Answer<()> {
        for (calls, field, name) in plan.validation.judges() {
            let named = |error: ToolError| {
                let why = &error.message;
                let message = format!("the judge `{name:.80}` of `{field}` cannot be asked: {why}");
                ToolError { message, ..error }.detail("field", field.as_str())
            };
            if !plan.judges.contains_key(name) {
                if plan.judges.len() == MOST_JUDGES {
                    let message = format!("an agent has at most {MOST_JUDGES} judges");
                    return Err(named(too_many(message)));
                }
                let judge = self.plan_judge(cx, name).await.map_err(named)?;
                plan.judges.insert(name.clone(), judge);
            }
            plan.judges[name].check(calls).map_err(named)?;
        }
        Ok(())
    }

    pub(crate) async fn plan_judge(&self, cx: &CallCx, name: &str) -> Answer<JudgePlan> {
        let (id, mut manifest) = self.manifest(self.caller(cx)?, name, None).await?;
        // Its input comes with the question.
        let input_schema = manifest.spec.input_schema.take();
        let host = self.host(&manifest.spec);
        let request = ExecutionRequest { host, ..ExecutionRequest::default() };
        let mut plan = ExecutionPlan::unprompted(id, manifest, request, &self.options)?;
        if plan.validation.judges().next().is_some() {
            return Err(too_many("a judge has no judges of its own".to_owned()));
        }
        if plan.after.names_agent() {
            let why = "its output is handed on by an agent in turn".to_owned();
            return Err(ToolError::new(Layer::Actor, codes::AGENT_FIELD_UNSUPPORTED, why)
                .next("name an agent without such an `output_handler`"));
        }
        self.complete(cx, &mut plan).await?;
        Ok(JudgePlan { plan, input_schema })
    }
}

fn too_many(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::JUDGES_TOO_MANY, message)
        .next("name fewer judges, or remove the judges of a judge")
}
