//! Agents in the place of those of a daemon: each answers as its script says. They outlive daemons.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, ExecutionId, ToolError, User, WorkflowId, lock};
use hivekeep_manifest::workflow::WorkflowManifest;
use hivekeep_ports::{ExecutionOrder, ExecutionResult, Executions, OrderedAgent};
use tokio_util::sync::CancellationToken;

use crate::Workflows;

/// Answer of an agent by what it is told, and by how often it was asked before.
type Script = dyn Fn(&Asked, usize) -> ExecutionResult + Send + Sync;

/// Order of work, as a script sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    pub(super) agent: String,
    pub(super) prompt: String,
    pub(super) judges: usize,
}

struct Begun {
    asked: Asked,
    result: ExecutionResult,
    cancelled: CancellationToken,
}

#[derive(Clone)]
pub(in crate::tests) struct ScriptedAgents {
    script: Arc<Script>,
    begun: Arc<Mutex<BTreeMap<ExecutionId, Begun>>>,
    /// Ids in the order of the first orders.
    order: Arc<Mutex<Vec<ExecutionId>>>,
    pub(super) workflows: Arc<Mutex<BTreeMap<String, (WorkflowId, WorkflowManifest)>>>,
}

impl ScriptedAgents {
    pub(super) fn new(
        script: impl Fn(&Asked, usize) -> ExecutionResult + Send + Sync + 'static,
    ) -> Self {
        let (begun, order, workflows) = (Arc::default(), Arc::default(), Arc::default());
        Self { script: Arc::new(script), begun, order, workflows }
    }

    /// Work in the order in which it was begun, each piece once.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let begun = lock(&self.begun);
        lock(&self.order).iter().map(|id| begun[id].asked.clone()).collect()
    }

    pub(super) fn cancelled(&self) -> usize {
        lock(&self.begun).values().filter(|it| it.cancelled.is_cancelled()).count()
    }
}

pub(super) fn completed(output: &str) -> ExecutionResult {
    ExecutionResult::Completed { output: output.to_owned(), judged: None }
}

#[async_trait]
impl Executions for ScriptedAgents {
    async fn begin(&self, _: &CallCx, order: ExecutionOrder) -> Result<(), ToolError> {
        let mut begun = lock(&self.begun);
        if begun.contains_key(&order.id) {
            return Ok(());
        }
        let OrderedAgent::Deployed { name: agent, .. } = order.agent else {
            return Err(ToolError::invalid("no manifest"));
        };
        if agent == "missing" {
            return Err(ToolError::invalid("there is no agent `missing`"));
        }
        let prompt = order.input.get("prompt").and_then(|it| it.as_str()).unwrap_or_default();
        let asked = Asked { agent, prompt: prompt.to_owned(), judges: order.judges.len() };
        let before = begun.values().filter(|it| it.asked.agent == asked.agent).count();
        let (result, cancelled) = ((self.script)(&asked, before), CancellationToken::new());
        begun.insert(order.id, Begun { asked, result, cancelled });
        lock(&self.order).push(order.id);
        Ok(())
    }

    async fn ended(&self, id: ExecutionId) -> Result<ExecutionResult, ToolError> {
        let (asked, result, cancelled) = {
            let begun = lock(&self.begun);
            let Begun { asked, result, cancelled } = &begun[&id];
            (asked.clone(), result.clone(), cancelled.clone())
        };
        if asked.agent == "never" {
            cancelled.cancelled().await;
            return Ok(ExecutionResult::Cancelled);
        }
        Ok(result)
    }

    async fn cancel(&self, id: ExecutionId) -> Result<bool, ToolError> {
        lock(&self.begun)[&id].cancelled.cancel();
        Ok(true)
    }
}

impl Workflows for ScriptedAgents {
    fn find(
        &self,
        _: User,
        id_or_name: &str,
        _: Option<&str>,
    ) -> Option<(WorkflowId, WorkflowManifest)> {
        lock(&self.workflows).get(id_or_name).cloned()
    }
}
