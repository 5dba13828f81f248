//! A try of a node: entered, its conditions judged, its action done, its end recorded.

use chrono::Utc;
use hivekeep_kernel::{ToolError, fault_point};
use hivekeep_manifest::dag::{ContinueOn, DagOutput, DagStream, Repeat, RepeatMode};
use hivekeep_plan::{
    lower::{DECIDE, StepLines},
    progress::{ChildPhase, NodeKey, NodeOutcome, NodePhase, ProgressRecord},
    resolve::{TextField, resolve_value},
};
use hivekeep_ports::TaskOutcome;
use hivekeep_runtime::log::LogError;
use serde_json::Value;

use super::{
    NodeLeft, RunFold, RunSaga,
    command::{CommandRequest, LONGEST_SECS, RanTask},
    conditions::{ConditionPlace, matches},
    container::StepContainer,
    decide::add_given,
    expand,
    failure::failed,
    instant::is_instant,
    node_try::{AttemptEnd, NodeEnd, NodeTry, stream_file, try_name},
    outputs::{StepOutput, Succeeded},
    people::TASK,
    records::{RunChild, RunText},
    scope::{RunScopes, artifacts_folder, too_long, work_folder},
    script::{StepCommand, StepFolders, script},
    state::RunWork,
    waits::wait_end,
};
use crate::secrets::RunSecrets;

/// Bytes of an output that `continue_on` looks at.
const LOOKED_AT_BYTES: usize = 64 * 1024;

impl RunSaga {
    /// Works on a try of a node up to its end.
    pub(super) async fn work(&self, key: NodeKey) -> Result<(), LogError> {
        let state = self.handle.state();
        let Some(work) = state.work() else { return Ok(()) };
        let entered = work.progress.node(key.node).is_some_and(|node| node.tries == key.tries);
        if !entered && is_instant(&state, work, key) {
            return self.work_at_once(&state, work, key).await;
        }
        if !entered {
            let left = state.entering(key).map(Box::new);
            self.moved(ProgressRecord::Entered { key, at: Utc::now() }, left).await?;
            fault_point!("run.entered");
        }
        let state = self.handle.state();
        let Some(work) = state.work() else { return Ok(()) };
        let is_entered = |node: &hivekeep_plan::progress::NodeProgress| {
            node.tries == key.tries && node.phase == NodePhase::Entered
        };
        if !work.progress.node(key.node).is_some_and(is_entered) {
            return Ok(());
        }
        if let RunText::Workflow(text) = &state.begun.text {
            return self.work_state(&state, text, key).await;
        }
        let secrets = self.shared.secrets_of(&state).await;
        let masks = secrets.as_ref().map(|it| it.masks.clone()).unwrap_or_default();
        let attempted = match secrets {
            Ok(secrets) => self.attempt(&state, work, key, (entered, secrets)).await,
            Err(error) => Err(error),
        };
        let NodeEnd { end, mut left } = match attempted {
            Ok(AttemptEnd::Ended(ended)) => *ended,
            Ok(AttemptEnd::Pauses(until)) => {
                let left = NodeLeft { until: Some(until), ..NodeLeft::default() };
                fault_point!("run.before_delay");
                let delayed = ProgressRecord::Delayed { key, until, at: Utc::now() };
                return self.moved(delayed, Some(Box::new(left))).await;
            }
            Ok(AttemptEnd::Waits(left)) => {
                fault_point!("run.before_wait");
                let left = Box::new(masks.left(*left));
                self.moved(ProgressRecord::Waits { key, at: Utc::now() }, Some(left)).await?;
                fault_point!("run.after_wait");
                self.shared.desk.waits(state.begun.id, key);
                self.forget(&state, &try_name(key));
                self.remove_container(&state, key).await;
                return Ok(());
            }
            Ok(AttemptEnd::Expands(children)) => {
                let expanded = ProgressRecord::Expanded {
                    key,
                    children: u32::try_from(children.len()).unwrap_or(u32::MAX),
                    at: Utc::now(),
                };
                let left = NodeLeft { children, ..NodeLeft::default() };
                fault_point!("run.before_expand");
                return self.moved(expanded, Some(Box::new(left))).await;
            }
            Err(error) if self.cancel_of(&state, key).is_cancelled() => {
                let mut aborted = NodeEnd::of(NodeOutcome::Aborted);
                let unknown = !error.is(hivekeep_kernel::codes::CANCELLED);
                aborted.left.error = unknown.then(|| Box::new(error));
                aborted
            }
            Err(error) => NodeEnd::failed(error),
        };
        if self.shared.daemon.closing.is_cancelled() && end.outcome == NodeOutcome::Failed {
            // The next daemon looks at what has become of it.
            return std::future::pending().await;
        }
        if end.outcome == NodeOutcome::Failed {
            left.kept = self.kept_machine(key).await.map(Box::new);
        }
        fault_point!("run.before_end");
        let ended = ProgressRecord::Ended { key, end, at: Utc::now() };
        self.moved(ended, Some(Box::new(masks.left(left)))).await?;
        fault_point!("run.after_end");
        self.forget(&state, &try_name(key));
        self.remove_container(&state, key).await;
        Ok(())
    }

    /// Ends a try that waits, as the run is stopped.
    pub(super) async fn leave(&self, key: NodeKey) -> Result<(), LogError> {
        let state = self.handle.state();
        let stopped = self.stop_children(&state, key).await;
        let NodeEnd { end, mut left } = NodeEnd::of(NodeOutcome::Aborted);
        left.error = stopped.err().map(Box::new);
        self.moved(ProgressRecord::Ended { key, end, at: Utc::now() }, Some(Box::new(left)))
            .await?;
        self.shared.desk.look();
        Ok(())
    }

    pub(super) async fn attempt(
        &self,
        state: &RunFold,
        work: &RunWork,
        key: NodeKey,
        (resumed, secrets): (bool, RunSecrets),
    ) -> Result<AttemptEnd, ToolError> {
        let plan = work.progress.plan().clone();
        let node = plan.node(key.node).ok_or_else(|| ToolError::internal("a node of no plan"))?;
        let name = try_name(key);
        let folder = format!("{}/{name}", state.begun.folder);
        let mut scopes = RunScopes::of_node(state, work, key.node, &folder, secrets)?;
        let node = &node.action;
        let container = StepContainer::of_step(node, work, &mut scopes)?;
        let within = match &container {
            None => StepContainer::of_dag(&state.begun.dag, work, &mut scopes)?,
            own => own.clone(),
        };
        let of =
            NodeTry { state, work, key, node, name, folder, scopes, container, within, resumed };
        Ok(match self.done(&of).await? {
            AttemptEnd::Ended(mut ended) => match self.asks(&of, &ended) {
                Some(waits) => {
                    ended.left.waits = Some(Box::new(waits));
                    AttemptEnd::Waits(Box::new(ended.left))
                }
                None => AttemptEnd::Ended(ended),
            },
            other => other,
        })
    }

    async fn done(&self, of: &NodeTry<'_>) -> Result<AttemptEnd, ToolError> {
        let (state, work, key) = (of.state, of.work, of.key);
        let chosen = |left: &NodeLeft| {
            let names = [of.node.step.name(), of.node.step.id()];
            names.into_iter().flatten().any(|name| left.chosen.iter().any(|it| it == name))
        };
        if let Some(children) = state.children.get(&key.node) {
            return Ok(self.collect_children(of, children).into());
        }
        let routed = of
            .node
            .routers
            .iter()
            .all(|router| state.left.get(router).is_some_and(|it| chosen(it)));
        if !routed || !self.may_begin(of).await? {
            return Ok(NodeEnd::of(NodeOutcome::Skipped).into());
        }
        if let Some(children) = state.retries.get(&key.node) {
            return Ok(AttemptEnd::Expands(self.retried_children(state, key.node, children)?));
        }
        let children = match (of.node.action.as_str(), &of.node.step.foreach) {
            ("run" | "exec" | "container.run" | "docker.run", _) => {
                return self.run_command(of).await.map(AttemptEnd::from);
            }
            (DECIDE, _) => return self.decide(of).await.map(AttemptEnd::from),
            ("noop", _) => return Ok(NodeEnd::of(NodeOutcome::Succeeded).into()),
            (TASK, _) => return Ok(AttemptEnd::Waits(Box::new(self.task(of)?))),
            (action @ ("dag.run" | "dag.enqueue"), _) => {
                let how = (of.node.step.parallel.as_ref(), action == "dag.enqueue");
                let mut called = expand::called(state, work, &of.scopes, &of.node.with, how)?;
                state
                    .decided_for(key.node)
                    .into_iter()
                    .for_each(|given| add_given(&mut called, given));
                called
            }
            ("foreach", Some(foreach)) => expand::looped(work, &of.scopes, foreach)?,
            ("wait.duration" | "wait.until", _) if self.cancel_of(state, key).is_cancelled() => {
                return Err(ToolError::cancelled());
            }
            (action @ ("wait.duration" | "wait.until"), _) => {
                match wait_end(of, action, &self.settings(of)?)? {
                    Some(until) => return Ok(AttemptEnd::Pauses(until)),
                    None => return self.acted(of, action).await.map(AttemptEnd::from),
                }
            }
            (action, _) => return self.acted(of, action).await.map(AttemptEnd::from),
        };
        let given: Value = children.iter().map(|child| child.given.clone()).collect();
        of.keeps_secrets(&given)?;
        Ok(match children.is_empty() {
            true => self.collect_children(of, &[]).into(),
            false => AttemptEnd::Expands(children),
        })
    }

    /// End of a step without a command: one that fails has the status of a program that does.
    async fn acted(&self, of: &NodeTry<'_>, action: &str) -> Result<NodeEnd, ToolError> {
        let mut ended = match self.act(of, action).await {
            Err(error) if !self.cancel_of(of.state, of.key).is_cancelled() => {
                let mut ended = NodeEnd::failed(error);
                ended.end.exit_code = Some(1);
                ended
            }
            acted => acted?,
        };
        ended.end.again = self.again(of, ended.end.exit_code, ended.end.outcome).await?;
        Ok(ended)
    }

    /// End of a step whose children are over.
    fn collect_children(&self, of: &NodeTry<'_>, children: &[RunChild]) -> NodeEnd {
        let ends = |at: u32| of.state.results.get(&(of.key.node, at));
        let phase =
            |at: u32| match ends(at).is_some_and(|left| left.error.is_none() && left.succeeded) {
                true => ChildPhase::Succeeded,
                false => ChildPhase::Failed,
            };
        let phases: Vec<_> = (0u32..).take(children.len()).map(phase).collect();
        let is_single = of.node.step.parallel.is_none() && of.node.step.foreach.is_none();
        let (all, value) = expand::collected(of.state, of.key, children, &phases, is_single);
        let mut ended = match all {
            true => NodeEnd::of(NodeOutcome::Succeeded),
            false => {
                let failing = phases.iter().filter(|it| **it == ChildPhase::Failed).count();
                let first = (0u32..).take(children.len()).find_map(|at| ends(at)?.error.as_ref());
                let why = first.map(|error| format!(": {}", error.message)).unwrap_or_default();
                NodeEnd::failed(failed(format!(
                    "{failing} of its {} runs failed{why}",
                    phases.len()
                )))
            }
        };
        if let Some(DagOutput::Variable(name)) = &of.node.step.output {
            let name = name.trim_matches(['$', '{', '}']).to_owned();
            ended.left.variables.insert(name, expand::variable(&value));
        }
        ended.left.output = Some(value);
        ended
    }

    /// Whether the conditions of a step hold: judged before its first try alone.
    async fn may_begin(&self, of: &NodeTry<'_>) -> Result<bool, ToolError> {
        let conditions = of.node.step.preconditions.as_ref();
        let is_first = of.work.progress.node(of.key.node).is_some_and(|node| node.is_first_try());
        // A try behind a wait for a time is one with that before it.
        let woken = of.state.left.get(&of.key.node).is_some_and(|left| left.until.is_some());
        if conditions.is_none() || !is_first || woken {
            return Ok(true);
        }
        let place = self.condition_place(of, "if")?;
        self.judged(conditions, &place).await
    }

    fn condition_place<'p>(
        &'p self,
        of: &'p NodeTry<'_>,
        what: &str,
    ) -> Result<ConditionPlace<'p>, ToolError> {
        Ok(ConditionPlace {
            state: of.state,
            work: of.work,
            scopes: &of.scopes,
            shell: of.shell(&self.settings(of)?),
            name: format!("{}.{what}", of.name),
            folder: self.folder(of)?,
            fields: [TextField::StepText, TextField::StepEval],
            cancel: self.cancel_of(of.state, of.key),
        })
    }

    /// Settings of a step, with their texts resolved.
    pub(super) fn settings(
        &self,
        of: &NodeTry<'_>,
    ) -> Result<serde_json::Map<String, Value>, ToolError> {
        let field = match of.node.action.as_str() {
            "exec" => TextField::Argument,
            _ => TextField::StepText,
        };
        let with = Value::Object(of.node.with.clone());
        let resolved = resolve_value(&with, field, &of.scopes.texts(of.work));
        match resolved.map_err(|_| too_long("with"))? {
            Value::Object(with) if of.is_within() => Ok(with),
            with => {
                of.keeps_secrets(&with)?;
                Ok(with.as_object().cloned().unwrap_or_default())
            }
        }
    }

    /// Working directory that the step or its DAG names.
    pub(super) fn folder(&self, of: &NodeTry<'_>) -> Result<Option<String>, ToolError> {
        if let Some(folder) = of.within.as_ref().and_then(|it| it.working_dir.clone()) {
            return Ok(Some(folder));
        }
        let (own, root) = (&of.node.step.working_dir, &of.state.begun.dag.working_dir);
        let resolve = |text: &String, field| of.scopes.resolve(of.work, text, field);
        match (own, root) {
            (Some(own), _) => resolve(own, TextField::StepText).map(Some),
            (None, Some(root)) => resolve(root, TextField::RootText).map(Some),
            (None, None) => Ok(None),
        }
    }

    async fn run_command(&self, of: &NodeTry<'_>) -> Result<NodeEnd, ToolError> {
        let mut with = self.settings(of)?;
        if let Some(shell) = of.within.as_ref().and_then(|it| it.shell.clone()) {
            with.entry("shell").or_insert(shell);
        }
        let mut lines =
            of.node.lines.as_ref().map(|lines| resolved_lines(of, lines)).transpose()?;
        let words = |key: &str| -> Vec<String> {
            let words = with.get(key).and_then(Value::as_array).into_iter().flatten();
            words.map(|word| hivekeep_plan::resolve::value_text(word).into_owned()).collect()
        };
        let (mut program, mut args) = (String::new(), words("args"));
        match with.get("command") {
            Some(Value::Array(_)) => {
                let mut command = words("command").into_iter();
                (program, args) = (command.next().unwrap_or_default(), command.collect());
            }
            Some(Value::String(text)) if of.node.action == "exec" => program.clone_from(text),
            Some(Value::String(text)) => lines = Some(StepLines::Script(text.clone())),
            _ => {}
        }
        let command = match &lines {
            Some(lines) => StepCommand::Lines(lines, of.shell(&with)),
            None => StepCommand::Program { program: &program, args: &args, stdin: None },
        };
        self.run_as(of, of.name.clone(), &command).await
    }

    /// Runs a command of a step, under a name that no other command of it has.
    pub(super) async fn run_as(
        &self,
        of: &NodeTry<'_>,
        name: String,
        command: &StepCommand<'_>,
    ) -> Result<NodeEnd, ToolError> {
        let step = &of.node.step;
        let named = stream_file(of, &step.stdout)?;
        // A container is gone when others read what its step wrote.
        let read = || of.container.as_ref().and_then(|_| of.read_stream());
        let (stdout, stderr) = (named.or_else(read), stream_file(of, &step.stderr)?);
        let mut more = vec![artifacts_folder(of.state)];
        for (stream, file) in [(&step.stdout, &stdout), (&step.stderr, &stderr)] {
            if let (Some(DagStream::Detail(_)), Some((folder, _))) =
                (stream, file.as_deref().and_then(|file| file.rsplit_once('/')))
            {
                more.push(folder.to_owned());
            }
        }
        let (named, own_folder) = (self.folder(of)?, work_folder(of.state));
        let (place, workspace) = self.environment(of).await?;
        let folders = StepFolders {
            own: &of.folder,
            work: named.as_deref().unwrap_or(&own_folder),
            makes_work: named.is_none(),
            declares: of.node.step.outputs.is_some(),
            stdout: stdout.as_deref(),
            stderr: stderr.as_deref(),
            more: &more,
            user: workspace.user.as_deref(),
        };
        let request = CommandRequest {
            name,
            script: script(command, &folders),
            env: of.scopes.env.clone(),
            timeout_secs: of.node.step.timeout_sec.filter(|secs| *secs > 0).unwrap_or(LONGEST_SECS),
        };
        let cancel = self.cancel_of(of.state, of.key);
        let ran = self.command_in(of.state, (&place, workspace), request, cancel).await?;
        fault_point!("run.result");
        let mut ended = self.command_end(of, &ran).await?;
        if of.container.is_some() {
            ended.left.stdout_file = stdout;
        }
        Ok(ended)
    }

    /// End of a command by how it ended.
    async fn command_end(&self, of: &NodeTry<'_>, ran: &RanTask) -> Result<NodeEnd, ToolError> {
        let step = &of.node.step;
        let code = ran.exit_code();
        let mut ended = match (&ran.result.outcome, code) {
            (_, Some(0)) => {
                let (state, work, scopes, folder) = (of.state, of.work, &of.scopes, &*of.folder);
                let from = StepOutput::Task { ran, folder };
                let succeeded = Succeeded { state, work, scopes, step, from };
                let mut ended = NodeEnd::of(NodeOutcome::Succeeded);
                match self.collect(&succeeded).await {
                    Ok(left) => ended.left = left,
                    Err(error) if error.retryable => return Err(error),
                    Err(error) => {
                        ended = NodeEnd::failed(error);
                        ended.left.logs = Some(Box::new(ran.result.capture.clone()));
                    }
                }
                ended
            }
            (TaskOutcome::Cancelled, _) => {
                let mut ended = NodeEnd::of(NodeOutcome::Aborted);
                ended.left.logs = Some(Box::new(ran.result.capture.clone()));
                ended
            }
            (outcome, _) => {
                let capture = &ran.result.capture;
                let mut ended = NodeEnd::failed(failed(match outcome {
                    TaskOutcome::TimedOut => "its command ran out of its time".to_owned(),
                    TaskOutcome::Interrupted => {
                        "its machine went down while its command ran, and it is not run again"
                            .to_owned()
                    }
                    TaskOutcome::Invalid { reason, .. } => reason.clone(),
                    TaskOutcome::Exited { exit_code } => {
                        format!("its command ended with status {exit_code}")
                    }
                    other => format!("its command did not come to its end: {}", other.word()),
                }));
                ended.left.stdout_file.clone_from(&capture.stdout.path);
                ended.left.stderr_file.clone_from(&capture.stderr.path);
                ended.left.logs = Some(Box::new(capture.clone()));
                ended.end.last = matches!(outcome, TaskOutcome::Invalid { .. });
                ended
            }
        };
        ended.end.exit_code = code;
        if ended.end.outcome == NodeOutcome::Failed {
            ended.end.said = self.said(step.continue_on.as_ref(), ran).await?;
        }
        ended.end.again = self.again(of, code, ended.end.outcome).await?;
        Ok(ended)
    }

    /// Whether what a command wrote lets later nodes go on.
    async fn said(&self, rule: Option<&ContinueOn>, ran: &RanTask) -> Result<bool, ToolError> {
        let Some(ContinueOn::Detail(detail)) = rule else { return Ok(false) };
        let Some(patterns) = &detail.output else { return Ok(false) };
        let said = self.output_of(ran, true, LOOKED_AT_BYTES).await?;
        let found = |pattern: &str| match pattern.starts_with("re:") {
            true => matches(&said, pattern),
            false => Ok(said.contains(pattern)),
        };
        for pattern in patterns.iter() {
            if found(pattern)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a further round of a repeated node follows.
    async fn again(
        &self,
        of: &NodeTry<'_>,
        code: Option<i32>,
        outcome: NodeOutcome,
    ) -> Result<bool, ToolError> {
        let Some(policy) = &of.node.step.repeat_policy else { return Ok(false) };
        if outcome == NodeOutcome::Aborted {
            return Ok(false);
        }
        let until = policy.repeat == Some(Repeat::By(RepeatMode::Until));
        if policy.condition.is_none() && policy.exit_code.is_none() {
            return Ok(policy.repeat != Some(Repeat::Always(false)));
        }
        let holds = match (&policy.condition, &policy.expected) {
            (Some(condition), expected) => {
                let item = hivekeep_manifest::dag::DagPrecondition {
                    condition: Some(condition.clone()),
                    eval: None,
                    expected: expected.as_ref().map(ToString::to_string),
                    negate: None,
                };
                let conditions = hivekeep_manifest::dag::DagPreconditions::More(vec![
                    hivekeep_manifest::dag::DagPreconditionItem::Detail(item),
                ]);
                let place = self.condition_place(of, "again")?;
                self.judged(Some(&conditions), &place).await?
            }
            (None, _) => {
                let codes = policy.exit_code.as_ref().map(|it| it.codes()).unwrap_or_default();
                code.is_some_and(|code| codes.contains(&code))
            }
        };
        Ok(holds != until)
    }
}

fn resolved_lines(
    of: &NodeTry<'_>,
    lines: &hivekeep_plan::lower::StepLines,
) -> Result<hivekeep_plan::lower::StepLines, ToolError> {
    use hivekeep_plan::lower::StepLines::{Commands, Script};
    let resolve = |text: &String| of.scopes.resolve(of.work, text, TextField::Run);
    Ok(match lines {
        Script(text) => Script(resolve(text)?),
        Commands(lines) => {
            let lines: Vec<String> = lines.iter().map(resolve).collect::<Result<_, _>>()?;
            if let Some(line) = lines.iter().find(|line| line.contains(['\n', '\r'])) {
                return Err(failed(format!("`{line:.80}` has several lines with its values")));
            }
            Commands(lines)
        }
    })
}
