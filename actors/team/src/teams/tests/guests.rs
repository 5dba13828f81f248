//! Guests in memory, as far as their tasks go. They outlive a stage, as machines outlive the
//! daemon.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError, WorkspaceId};
use hivekeep_ports::{
    TaskAssignment, TaskBoard, TaskCapture, TaskHints, TaskOutcome, TaskPage, TaskResult,
    TaskState, TaskTaken, TaskText, Tasks,
};
use tokio::sync::watch;

/// One guest.
#[derive(Debug)]
pub(super) struct Guest {
    /// In the order of their arrival.
    pub(super) tasks: Vec<Given>,
    hints: watch::Sender<u64>,
    /// Ends each task when it comes.
    pub(super) quick: bool,
    ended: u64,
}

/// A task that a guest was given.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) asked: TaskAssignment,
    pub(super) result: Option<TaskResult>,
    pub(super) acknowledged: bool,
}

#[derive(Debug, Default)]
pub(super) struct Country {
    pub(super) guests: HashMap<WorkspaceId, Guest>,
    /// These calls fail, each once and in this order: before they have an effect, or after.
    pub(super) fails: Vec<(&'static str, &'static str, bool)>,
    /// Every call fails so.
    pub(super) down: Option<&'static str>,
    /// Workspaces that are no more.
    pub(super) gone: BTreeSet<WorkspaceId>,
    pub(super) calls: BTreeMap<&'static str, usize>,
    /// Pages are of what guests told by themselves when a result ended, and nothing ran.
    pub(super) told: bool,
    /// Put before any guest's own results.
    pub(super) lies: Vec<TaskResult>,
    /// Commands that were run, by workspace and in order.
    pub(super) ran: Vec<(WorkspaceId, String)>,
}

/// All guests, shared.
#[derive(Clone, Default)]
pub(super) struct Guests(pub(super) Arc<Mutex<Country>>);

fn failure(code: &'static str) -> ToolError {
    ToolError::foreign(Layer::Link, code, "on purpose")
}

pub(super) fn result(asked: &TaskAssignment, number: u64, outcome: TaskOutcome) -> TaskResult {
    let text = |text: &str| TaskText {
        text: text.to_owned(),
        truncated: false,
        total_bytes: text.len() as u64,
        path: None,
    };
    TaskResult {
        number,
        task_id: asked.task_id.clone(),
        message_id: asked.message_id.clone(),
        outcome,
        capture: TaskCapture {
            workdir: Some("/workspace".to_owned()),
            stdout: text(&format!("did {}", asked.command)),
            stderr: text(""),
            elapsed_ms: 1_500,
        },
    }
}

impl Default for Guest {
    fn default() -> Self {
        Self { tasks: Vec::new(), hints: watch::Sender::new(0), quick: true, ended: 0 }
    }
}

impl Guest {
    /// A task that was put, ended and acknowledged long ago.
    pub(super) fn knows(&mut self, task_id: &str, command: &str, message_id: &str) {
        let asked = TaskAssignment {
            message_id: message_id.to_owned(),
            task_id: task_id.to_owned(),
            command: command.to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            timeout_secs: 300,
        };
        self.tasks.push(Given { asked, result: None, acknowledged: true });
        self.end(task_id, TaskOutcome::Exited { exit_code: 0 });
    }

    /// Ends a task with an outcome, and hints at it.
    pub(super) fn end(&mut self, task_id: &str, outcome: TaskOutcome) {
        self.ended += 1;
        let number = self.ended;
        let mut open = self.tasks.iter_mut().filter(|given| given.result.is_none());
        let given = open.find(|given| given.asked.task_id == task_id).expect("an open task");
        given.result = Some(result(&given.asked, number, outcome));
        self.hints.send_modify(|count| *count += 1);
    }
}

impl Guests {
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Country) -> T) -> T {
        change(&mut self.0.lock().expect("no test panics in here"))
    }

    pub(super) fn guest<T>(&self, id: WorkspaceId, change: impl FnOnce(&mut Guest) -> T) -> T {
        self.with(|country| change(country.guests.entry(id).or_default()))
    }

    /// Every guest's watchers are told that there are no more hints, as when its actor ends.
    pub(super) fn blink(&self) {
        self.with(|country| {
            country.guests.values_mut().for_each(|guest| guest.hints = watch::Sender::new(0));
        });
    }

    /// The commands that were run.
    pub(super) fn ran(&self) -> Vec<String> {
        self.with(|country| country.ran.iter().map(|(_, command)| command.clone()).collect())
    }

    fn call<T>(
        &self,
        what: &'static str,
        id: WorkspaceId,
        effect: impl FnOnce(&mut Country) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        self.with(|country| {
            *country.calls.entry(what).or_default() += 1;
            if country.gone.contains(&id) {
                return Err(failure("workspace_not_found"));
            }
            if let Some(code) = country.down {
                return Err(failure(code));
            }
            let at = country.fails.iter().position(|(call, _, _)| *call == what);
            let fails = at.map(|at| country.fails.remove(at));
            country.guests.entry(id).or_default();
            match fails {
                Some((_, code, false)) => Err(failure(code)),
                Some((_, code, true)) => effect(country).and_then(|_| Err(failure(code))),
                None => effect(country),
            }
        })
    }
}

#[async_trait]
impl Tasks for Guests {
    async fn put(&self, id: WorkspaceId, task: TaskAssignment) -> Result<TaskTaken, ToolError> {
        self.call("put", id, |country| {
            let guest = country.guests.get_mut(&id).expect("made before");
            let known = guest.tasks.iter().find(|given| given.asked.task_id == task.task_id);
            if let Some(given) = known {
                let state = match (&given.result, given.acknowledged) {
                    (None, _) => TaskState::Running,
                    (Some(_), false) => TaskState::Done,
                    (Some(_), true) => TaskState::Acknowledged,
                };
                let differs = given.asked.command != task.command;
                let result = given.result.clone();
                return Ok(TaskTaken { state, repeat: true, differs, result });
            }
            country.ran.push((id, task.command.clone()));
            let task_id = task.task_id.clone();
            guest.tasks.push(Given { asked: task, result: None, acknowledged: false });
            if guest.quick {
                guest.end(&task_id, TaskOutcome::Exited { exit_code: 0 });
            }
            Ok(TaskTaken { state: TaskState::Queued, repeat: false, differs: false, result: None })
        })
    }

    async fn results(
        &self,
        id: WorkspaceId,
        after: u64,
        limit: u32,
        sent: &BTreeMap<String, String>,
    ) -> Result<TaskPage, ToolError> {
        self.call("results", id, |country| {
            let lies = country.lies.iter();
            let guest = &country.guests[&id];
            let open = guest.tasks.iter().filter(|given| given.result.is_none()).count();
            let told = guest.tasks.iter().filter(|given| !given.acknowledged);
            let mut told: Vec<_> = lies
                .chain(told.filter_map(|given| given.result.as_ref()))
                .filter(|result| result.number > after)
                .cloned()
                .collect();
            told.sort_by_key(|result| result.number);
            let more = told.len() > limit as usize;
            told.truncate(limit as usize);
            let next_after = told.last().map_or(after, |result| result.number);
            let all = told.len();
            told.retain(|result| sent.get(&result.task_id) == Some(&result.message_id));
            let dropped = (all - told.len()) as u32;
            let (queued, running) = (0, open as u32);
            Ok(TaskPage {
                results: told,
                next_after,
                more,
                queued,
                running: if country.told { 0 } else { running },
                told: country.told,
                dropped,
                refused_paths: 0,
            })
        })
    }

    async fn acknowledge(&self, id: WorkspaceId, task_ids: Vec<String>) -> Result<u32, ToolError> {
        self.call("acknowledge", id, |country| {
            let guest = country.guests.get_mut(&id).expect("made before");
            let mut count = 0;
            for given in &mut guest.tasks {
                let now = given.result.is_some() && task_ids.contains(&given.asked.task_id);
                count += u32::from(now && !given.acknowledged);
                given.acknowledged |= now;
            }
            Ok(count)
        })
    }

    async fn cancel(&self, _: WorkspaceId, _: String) -> Result<TaskState, ToolError> {
        panic!("teams do not cancel tasks")
    }

    async fn board(&self, _: WorkspaceId) -> Result<TaskBoard, ToolError> {
        panic!("teams do not ask for the board")
    }

    async fn hints(&self, id: WorkspaceId) -> Result<TaskHints, ToolError> {
        self.call("hints", id, |country| Ok(TaskHints::new(country.guests[&id].hints.subscribe())))
    }
}
