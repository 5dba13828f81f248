//! Beginning of a run: its parameters and its environment, resolved once whatever started it, and its plan.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Layer, RunId, SessionId, ToolError, User, fault_point};
use hivekeep_manifest::dag::DagManifest;
use hivekeep_plan::{
    lower::lower_dag,
    resolve::{
        Begin, BeginAnswer, BeginNeed, GivenParams, RunBeginning, RunFacts, TextField, TextScopes,
        resolve,
    },
};
use hivekeep_ports::MOUNTED_PLACE;
use hivekeep_runtime::{OnBehalfOf, log::LogError, runs::RunQueue};
use serde_json::Value;

use super::{
    RunFold, RunRecord, RunSaga, RunTrigger,
    command::{CommandRequest, LONGEST_SECS},
    container::{SHARED_SCRATCH, refused, several},
    delivery::deliveries,
    fork::unforkable,
    obeyed::{not_here, not_obeyed, setting_not_obeyed},
    outputs::READ_BYTES,
    records::{RunBegun, RunDag, RunPlace, RunResolved, RunText},
    scope::{context, work_folder},
    script::{StepCommand, StepFolders, StepShell, script},
};
use crate::{codes, place_text::place_text};

/// Time limit of reading a dotenv file.
const READING: Duration = Duration::from_secs(60);
/// Bytes of a command's output that become a parameter.
const OUTPUT_BYTES: usize = 1024 * 1024;

/// Request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Id of the run.
    pub id: RunId,
    /// Owner of the run.
    pub user: User,
    /// Session that asks for it.
    pub session: SessionId,
    /// Documents of its text, checked, the DAG first.
    pub documents: Vec<DagManifest>,
    /// Name of a DAG whose text has none.
    pub name: String,
    /// Parameters: an object by name, or a list of objects and of values by place.
    pub given: Value,
    /// Place that its commands run in.
    pub place: RunPlace,
    /// Folder of the guest that each run has a folder of its own in.
    pub scratch: String,
    /// Reason of the run.
    pub trigger: RunTrigger,
    /// Queue that it waits in for its place. Without one the DAG's, if that has one.
    pub queue: Option<RunQueue>,
}

impl RunRequest {
    /// First record of the run.
    ///
    /// # Errors
    /// `dag_invalid` for a text without a DAG.
    pub(crate) fn begun(self) -> Result<RunRecord, ToolError> {
        let mut documents = self.documents.into_iter();
        let dag = documents.next().ok_or_else(|| invalid("the text holds no DAG".to_owned()))?;
        let documents: BTreeMap<_, _> =
            documents.filter_map(|dag| Some((dag.name.clone()?, dag))).collect();
        let is_shared = several(std::iter::once(&dag).chain(documents.values()));
        let place = match self.place {
            RunPlace::Own if is_shared => RunPlace::made(self.id),
            place => place,
        };
        let scratch = match (is_shared, &place) {
            (true, RunPlace::Folder(_) | RunPlace::Made(_)) => {
                format!("{MOUNTED_PLACE}/{SHARED_SCRATCH}")
            }
            _ => self.scratch,
        };
        let own = || Some(RunQueue { name: dag.queue.clone()?, priority: 0 });
        let queue = self.queue.or_else(own);
        Ok(RunRecord::Begun(Box::new(RunBegun {
            id: self.id,
            user: self.user,
            session: self.session,
            name: dag.name.clone().unwrap_or(self.name),
            trigger: self.trigger,
            queue,
            place,
            folder: format!("{scratch}/{}", self.id),
            text: RunText::Dag(Box::new(RunDag {
                dag: Box::new(dag),
                documents,
                given: self.given,
                body: None,
            })),
            depth: 0,
            at: Utc::now(),
        })))
    }
}

impl RunBegun {
    /// First record of another run of the same text with the same parameters.
    pub(crate) fn again(&self, id: RunId, user: User, session: SessionId) -> RunRecord {
        let scratch = self.folder.strip_suffix(&format!("/{}", self.id)).unwrap_or(&self.folder);
        RunRecord::Begun(Box::new(Self {
            id,
            user,
            session,
            folder: format!("{scratch}/{id}"),
            place: match &self.place {
                RunPlace::Made(_) => RunPlace::made(id),
                place => place.clone(),
            },
            trigger: RunTrigger::Start,
            at: Utc::now(),
            ..self.clone()
        }))
    }
}

impl RunSaga {
    /// Resolves the run's parameters and its environment, and plans it.
    pub(super) async fn resolve(&self) -> Result<(), LogError> {
        let state = self.handle.state();
        match self.resolved(&state).await {
            Ok(resolved) => {
                let resolved = Box::new(resolved);
                fault_point!("run.resolved");
                self.handle.record(RunRecord::Resolved { resolved, at: Utc::now() }).await?;
                self.forget(&state, "begin");
                Ok(())
            }
            Err(_) if self.handle.cancelled().is_cancelled() => Ok(()),
            Err(error) => self.break_off(error).await,
        }
    }

    /// Records that the run cannot begin.
    pub(super) async fn break_off(&self, error: ToolError) -> Result<(), LogError> {
        if self.shared.daemon.closing.is_cancelled() {
            return std::future::pending().await;
        }
        self.handle.record(RunRecord::Refused { error: Box::new(error), at: Utc::now() }).await
    }

    async fn resolved(&self, state: &RunFold) -> Result<RunResolved, ToolError> {
        let (begun, mut commands) = (&state.begun, 0);
        if let RunText::Workflow(text) = &begun.text {
            return self.prepare_machine(state, text).await;
        }
        if let Some(body) = &begun.body {
            return planned(begun, body.beginning.clone());
        }
        let facts = RunFacts {
            given: GivenParams::from_json(begun.given.clone()),
            context: context(state),
            ..RunFacts::default()
        };
        let refused = |error: hivekeep_plan::resolve::BeginError| invalid(error.to_string());
        let mut begin = Begin::new(&begun.dag, facts).map_err(refused)?;
        let mut answer = BeginAnswer::Start;
        let beginning = loop {
            answer = match begin.next(answer).map_err(refused)? {
                BeginNeed::Done(beginning) => break beginning,
                BeginNeed::Command { line, env } => {
                    commands += 1;
                    self.evaluated(state, commands, &line, env).await?
                }
                BeginNeed::DotenvFiles(paths) => {
                    BeginAnswer::Files(self.dotenv(state, paths).await?)
                }
            };
        };
        let resolved = planned(begun, beginning)?;
        self.shared.secrets_of(state).await?;
        Ok(resolved)
    }

    async fn evaluated(
        &self,
        state: &RunFold,
        number: usize,
        line: &str,
        env: BTreeMap<String, String>,
    ) -> Result<BeginAnswer, ToolError> {
        let lines = hivekeep_plan::lower::StepLines::Commands(vec![line.to_owned()]);
        let workspace = self.workspace(state, self.handle.cancelled()).await?;
        let own = format!("{}/begin-{number}", state.begun.folder);
        let work = work_folder(state);
        let folders = StepFolders {
            own: &own,
            work: state.begun.dag.working_dir.as_deref().unwrap_or(&work),
            makes_work: state.begun.dag.working_dir.is_none(),
            declares: true,
            stdout: None,
            stderr: None,
            more: &[],
            user: workspace.user.as_deref(),
        };
        let shell = StepShell::of(&Default::default(), &state.begun.dag, &str::to_owned);
        let request = CommandRequest {
            name: format!("begin-{number}"),
            script: script(&StepCommand::Lines(&lines, shell), &folders),
            env,
            timeout_secs: LONGEST_SECS,
        };
        let ran = self.command(state, request, self.handle.cancelled()).await?;
        let said = self.output_of(&ran, true, OUTPUT_BYTES).await?;
        if said.len() > OUTPUT_BYTES {
            return Ok(BeginAnswer::Failed(format!("`{line:.80}` writes too much")));
        }
        Ok(match ran.exit_code() {
            Some(0) => BeginAnswer::Output(said),
            other => BeginAnswer::Failed(format!("`{line:.80}` ended with {other:?}")),
        })
    }

    /// Texts of those of the files that are there. A run's own workspace is new, and has none.
    async fn dotenv(
        &self,
        state: &RunFold,
        paths: Vec<String>,
    ) -> Result<Vec<(String, String)>, ToolError> {
        let (RunPlace::Folder(place) | RunPlace::Workspace(place)) = &state.begun.place else {
            return Ok(Vec::new());
        };
        let caller = OnBehalfOf::own(Self::place_session(state)?, READING);
        let mut files = Vec::new();
        for path in paths {
            let (tools, file) = (&self.shared.tools, (place.as_str(), path.as_str()));
            match place_text(tools, state.begun.id, &caller, file, READ_BYTES).await {
                Ok(None) => {
                    return Err(invalid(format!("`{path:.80}` is larger than {READ_BYTES} bytes")));
                }
                Ok(Some(content)) => files.push((path, content)),
                Err(error) if error.is(hivekeep_kernel::codes::NOT_FOUND) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }
}

fn planned(begun: &RunBegun, beginning: RunBeginning) -> Result<RunResolved, ToolError> {
    let dag = &*begun.dag;
    if let Some(field) = not_obeyed(dag) {
        return Err(invalid(format!("no run obeys {field} yet")));
    }
    if let Err(field) = deliveries(dag) {
        return Err(invalid(format!("no run obeys {field}")));
    }
    if let Some(message) = not_here(dag) {
        return Err(invalid(message));
    }
    let scopes = TextScopes {
        consts: Some(&beginning.consts),
        params: Some(&beginning.params),
        env: Some(&beginning.env),
        ..TextScopes::default()
    };
    let count = |text: &str| resolve(text, TextField::StepText, &scopes).ok();
    let plan = lower_dag(dag, &count).map_err(|error| invalid(error.to_string()))?;
    for node in &plan.nodes {
        if let Some(field) = setting_not_obeyed(&node.action, dag) {
            return Err(invalid(format!("no run obeys {field}, of the step `{}`", node.name)));
        }
    }
    let actions = plan.nodes.iter().map(|node| &node.action);
    let unforkable = unforkable(dag, actions.clone(), &begun.place);
    if let Some(message) = refused(dag, actions, &begun.place).or(unforkable) {
        return Err(invalid(message));
    }
    Ok(RunResolved { plan: Arc::new(plan), beginning })
}

pub(super) fn invalid(message: String) -> ToolError {
    ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
        .next("mend the text or the parameters; nothing was run")
}
