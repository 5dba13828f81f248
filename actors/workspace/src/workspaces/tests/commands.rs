//! Commands and processes through the port that other families have.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hivekeep_kernel::{CallCx, Door, EffectKey, SessionId, WorkspaceId};
use hivekeep_link::fake::{RequestBehaviour, exec_done};
use hivekeep_ports::{
    CommandLimits, CommandRunner, CommandSpec, NetworkMode, PlaceProcess, ProcessSpec,
    ProcessState, ProcessWindow, TerminalSize,
};
use hivekeep_protocol::{
    Argv, Exit, FromGuest, GuestCode, GuestError, JobForgotten, JobKilled, JobListReply, JobReport,
    JobStarted, JobSummary, ProcessInputTaken, ProcessResized, ProcessStart, PtySize, Spool,
    Stream, ToGuest,
};
use hivekeep_testkit::context;
use serde_json::{Value, json};

use crate::{
    commands::runner::CommandsHandle,
    workspaces::tests::{
        stage::{Stage, guest},
        wires::Wires,
    },
};

/// A guest's processes, and how they ended.
#[derive(Default)]
struct Inside {
    processes: BTreeMap<String, (ProcessStart, Option<Exit>)>,
    /// Keys of commands that it ran; `None` for a guest of an older daemon.
    keys: Option<Vec<String>>,
    /// It holds output back.
    holds: bool,
    forgotten: usize,
}

#[derive(Clone, Default)]
struct Guest(Arc<Mutex<Inside>>);

impl Guest {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summary(&self, id: &str) -> JobSummary {
        let exit = self.inside().processes.get(id).and_then(|(_, exit)| *exit);
        JobSummary {
            job_id: id.into(),
            exit,
            interrupted: false,
            started_unix_ms: 1,
            finished_unix_ms: exit.map(|_| 2_000),
        }
    }

    fn end(&self, id: &str, exit: Exit) {
        if let Some((_, ended)) = self.inside().processes.get_mut(id) {
            *ended = Some(exit);
        }
    }

    fn answer(&self, request: &ToGuest) -> RequestBehaviour {
        let knows = |id: &String| self.inside().processes.contains_key(id);
        let reply = match request {
            ToGuest::ProcessStart(start)
                if start.job.argv == Argv::Direct(vec!["missing".into()]) =>
            {
                Err(GuestError::new(GuestCode::CannotStart, "missing: not found in PATH"))
            }
            ToGuest::ProcessStart(start) => {
                let id = start.job.job_id.clone();
                self.inside().processes.insert(id, (start.clone(), None));
                Ok(FromGuest::ProcessStart(JobStarted { pid: 7, existed: false }))
            }
            ToGuest::JobStart(start) => {
                let (id, begun) =
                    (start.job_id.clone(), ProcessStart { job: start.clone(), pty: None });
                self.inside().processes.insert(id, (begun, None));
                Ok(FromGuest::JobStart(JobStarted { pid: 6, existed: false }))
            }
            ToGuest::JobList(_) => {
                let ids: Vec<_> = self.inside().processes.keys().cloned().collect();
                let jobs = ids.iter().map(|id| self.summary(id)).collect();
                Ok(FromGuest::JobList(JobListReply { jobs }))
            }
            ToGuest::JobPoll(poll) if knows(&poll.job_id) => {
                Ok(FromGuest::JobPoll(self.report(&poll.job_id, poll.stdout_from)))
            }
            ToGuest::JobWait(wait) if knows(&wait.poll.job_id) => {
                let report = self.report(&wait.poll.job_id, wait.wait_ms);
                Ok(FromGuest::JobWait(report))
            }
            ToGuest::ProcessStartWithoutInput(start) => {
                let id = start.job.job_id.clone();
                let start = ProcessStart { job: start.job.clone(), pty: None };
                self.inside().processes.insert(id, (start, None));
                Ok(FromGuest::ProcessStartWithoutInput(JobStarted { pid: 8, existed: false }))
            }
            ToGuest::ProcessStartHeld(held) if self.inside().holds => {
                let id = held.start.job.job_id.clone();
                self.inside().processes.insert(id, (held.start.clone(), None));
                Ok(FromGuest::ProcessStartHeld(JobStarted { pid: 9, existed: false }))
            }
            ToGuest::ProcessResize(resize) if resize.size == (PtySize { rows: 9, cols: 8 }) => {
                Ok(FromGuest::ProcessResize(ProcessResized))
            }
            ToGuest::JobKill(kill) => {
                self.end(&kill.job_id, Exit::Signal(kill.signal));
                let summary = self.summary(&kill.job_id);
                Ok(FromGuest::JobKill(JobKilled { already_ended: false, summary }))
            }
            ToGuest::JobPoll(_) => Err(GuestError::new(GuestCode::UnknownJob, "no such job")),
            ToGuest::ProcessInput(input) => Ok(FromGuest::ProcessInput(ProcessInputTaken {
                written: input.bytes.len() as u64,
                closed: input.close,
            })),
            ToGuest::ProcessStop(stop) => {
                self.end(&stop.job_id, Exit::Signal(if stop.grace_ms == 0 { 9 } else { 15 }));
                let summary = self.summary(&stop.job_id);
                Ok(FromGuest::ProcessStop(JobKilled { already_ended: false, summary }))
            }
            ToGuest::JobForget(forget) => {
                let mut inside = self.inside();
                inside.processes.remove(&forget.job_id);
                inside.forgotten += 1;
                Ok(FromGuest::JobForget(JobForgotten))
            }
            ToGuest::RunCommand(run) if run.argv == Argv::Direct(vec!["chatty".into()]) => {
                let pieces = (0..100).map(|n| (Stream::Stdout, format!("{n:04}").into_bytes()));
                let done = Ok(FromGuest::RunCommand(exec_done(400, 0)));
                return RequestBehaviour::Send(pieces.collect(), done);
            }
            ToGuest::RunOnce(once) => match &mut self.inside().keys {
                None => Err(GuestError::new(GuestCode::Unsupported, "an unknown request")),
                Some(keys) if once.command.is_none() && !keys.contains(&once.key) => {
                    Err(GuestError::new(GuestCode::UnknownRun, "never heard of it"))
                }
                Some(keys) => {
                    keys.extend(once.command.as_ref().map(|_| once.key.clone()));
                    let output = vec![(Stream::Stdout, b"9700980099".to_vec())];
                    let done = Ok(FromGuest::RunOnce(exec_done(400, 0)));
                    return RequestBehaviour::Send(output, done);
                }
            },
            other => return guest(other),
        };
        RequestBehaviour::Reply(reply)
    }

    fn report(&self, id: &str, from: u64) -> JobReport {
        let stdout =
            Spool { from: from.max(5), bytes: b"text".into(), kept_bytes: 9, total_bytes: 9 };
        let stderr = Spool { from: 0, bytes: vec![], kept_bytes: 0, total_bytes: 0 };
        JobReport { summary: self.summary(id), stdout, stderr }
    }
}

async fn stage() -> (Stage, Guest, WorkspaceId) {
    let inside = Guest::default();
    let acting = inside.clone();
    let network = Wires::new(NetworkMode::Off { reason: "off".to_owned() });
    let stage = Stage::with(network, move |request| acting.answer(request)).await;
    let id = stage.create("w").await;
    let vars = json!({ "SHARED": "theirs", "HIDDEN": "secret" });
    stage.call("set_env", json!({ "workspace_id": id, "vars": vars })).await.expect("set");
    (stage, inside, id.parse().expect("an id"))
}

fn port(stage: &Stage) -> CommandsHandle {
    CommandsHandle::new(stage.daemon.shared.clone())
}

fn command(argv: &[&str]) -> CommandSpec {
    CommandSpec {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        workdir: "/workspace/a".into(),
        env: [("OWN".to_owned(), "1".to_owned())].into(),
        inherit: vec!["SH*".into()],
        user: None,
    }
}

fn process(argv: &[&str]) -> ProcessSpec {
    let terminal = Some(TerminalSize { rows: 3, cols: 4 });
    ProcessSpec { command: command(argv), terminal, input: true, place: "own".into() }
}

const LIMITS: CommandLimits = CommandLimits { timeout_secs: 9, output_bytes: 10, tail: true };

#[tokio::test]
async fn a_command_has_its_words_the_variables_of_the_rule_and_the_end_of_its_output() {
    let (stage, _, id) = stage().await;
    let (port, cx) = (port(&stage), stage.cx("cmd.run"));
    let end = port.run(&cx, id, command(&["chatty"]), LIMITS).await.expect("ran");
    assert_eq!((end.stdout.bytes.as_slice(), end.stdout.total_bytes), (&b"9700980099"[..], 400));
    let [.., ran] = &stage.commands()[..] else { panic!("nothing ran") };
    assert_eq!((ran.workdir.as_deref(), ran.timeout_ms), (Some("/workspace/a"), 9_000));
    let env: BTreeMap<_, _> = ran.env.iter().cloned().collect();
    let wanted = [("OWN", "1"), ("SHARED", "theirs")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    assert_eq!(env, wanted.into());

    let head = CommandLimits { tail: false, ..LIMITS };
    let end = port.run(&cx, id, command(&["chatty"]), head).await.expect("ran");
    assert_eq!((end.stdout.bytes.as_slice(), end.stdout.total_bytes), (&b"0000000100"[..], 400));

    // What is of a user is the guest's to say, unless the call does.
    let mut other = CommandSpec { user: Some("app".into()), ..command(&["chatty"]) };
    other.inherit = vec!["*".into()];
    other.env.insert("LOGNAME".into(), "me".into());
    let vars = json!({ "HOME": "/theirs", "USER": "them", "LOGNAME": "them" });
    stage.call("set_env", json!({ "workspace_id": id, "vars": vars })).await.expect("set");
    port.run(&cx, id, other, LIMITS).await.expect("ran");
    let [.., ran] = &stage.commands()[..] else { panic!("nothing ran") };
    let become_it = ["/proc/self/exe", "as", "app", "chatty"].map(str::to_owned);
    assert_eq!(ran.argv, Argv::Direct(become_it.to_vec()));
    let env: BTreeMap<_, _> = ran.env.iter().cloned().collect();
    assert!(env["LOGNAME"] == "me" && !env.contains_key("HOME") && !env.contains_key("USER"));

    let mut loads = command(&["chatty"]);
    loads.env.insert("LD_PRELOAD".into(), "x".into());
    let refused = port.run(&cx, id, loads, LIMITS).await.expect_err("refused");
    assert_eq!(refused.code, "invalid_input");
    let stranger =
        context(SessionId::new(), "cmd.run", Duration::from_secs(30), Default::default());
    let refused = port.run(&stranger, id, command(&["x"]), LIMITS).await.expect_err("refused");
    assert_eq!(refused.code, "not_owner");
    let nowhere = port.run(&cx, WorkspaceId::new(), command(&["x"]), LIMITS).await;
    assert_eq!(nowhere.expect_err("refused").code, "workspace_not_found");
}

fn keyed(stage: &Stage, again: bool) -> CallCx {
    let mut cx = stage.cx("cmd.run");
    cx.effect = Some(Arc::new(EffectKey { key: "exe_1/0.0.0.0".into(), again }));
    cx
}

#[tokio::test]
async fn a_command_of_a_call_with_a_key_is_run_under_it_where_the_guest_can() {
    let (stage, inside, id) = stage().await;
    let (port, first, again) = (port(&stage), keyed(&stage, false), keyed(&stage, true));
    let run = async |cx: &CallCx| port.run(cx, id, command(&["chatty"]), LIMITS).await;
    run(&first).await.expect("an older guest runs it");
    assert_eq!(run(&again).await.expect_err("and keeps nothing").code, "effect_unknown");
    assert_eq!(stage.commands().len(), 1);
    inside.inside().keys = Some(Vec::new());
    assert_eq!(run(&again).await.expect_err("never begun").code, "effect_unknown");
    for cx in [&first, &again] {
        let end = run(cx).await.expect("ran");
        assert_eq!((&*end.stdout.bytes, end.stdout.total_bytes), (&b"9700980099"[..], 400));
    }
    let other = run(&again.further("sh")).await.expect_err("another command of the call");
    assert_eq!(other.code, "effect_unknown");
    assert_eq!(inside.inside().keys.as_deref(), Some(&["exe_1/0.0.0.0".to_owned()][..]));
    assert_eq!(stage.commands(), [], "nothing is run without its key");
}

#[tokio::test]
async fn commands_and_jobs_of_calls_with_a_key_are_begun_once() {
    let (stage, inside, id) = stage().await;
    inside.inside().keys = Some(Vec::new());
    let call = async |tool, args: &Value, again| {
        let effect = keyed(&stage, again).effect;
        let sent = stage.send(tool, args.clone(), |cx| cx.effect = effect).expect("it is served");
        sent.await.expect("every call is answered")
    };
    let run = json!({ "workspace_id": id, "command": "chatty" });
    let start = json!({ "workspace_id": id, "action": "start", "command": "sleep 9" });
    for (tool, args) in [("exec", &run), ("exec_background", &start)] {
        let unknown = call(tool, args, true).await.expect_err("never begun");
        assert_eq!(unknown.code, "effect_unknown", "{tool}");
        let first = call(tool, args, false).await.expect("begun");
        assert_eq!(call(tool, args, true).await.expect("known"), first, "{tool}");
    }
    let (keys, jobs) = {
        let inside = inside.inside();
        (inside.keys.clone(), inside.processes.keys().cloned().collect::<Vec<_>>())
    };
    assert_eq!(keys.map(|keys| keys.len()), Some(1));
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let kill = json!({ "workspace_id": id, "action": "kill", "job_id": job });
    let again = call("exec_background", &kill, true).await.expect_err("it may have been killed");
    assert_eq!(again.code, "effect_unknown");
}

#[tokio::test]
async fn a_process_of_a_call_with_a_key_is_started_once() {
    let (mut stage, inside, id) = stage().await;
    let unknown = port(&stage).start(&keyed(&stage, true), id, process(&["cat"])).await;
    assert_eq!(unknown.expect_err("never begun").code, "effect_unknown");
    let started = port(&stage).start(&keyed(&stage, false), id, process(&["cat"])).await;
    let started = started.expect("started");
    stage.restart().await;
    stage.once("w", |info| info["state"] == "running").await;
    let again = port(&stage).start(&keyed(&stage, true), id, process(&["cat"])).await;
    let again = again.expect("it is known");
    assert_eq!((again.id, again.pid), (started.id, 7));
    assert_eq!(inside.inside().processes.len(), 1);
}

async fn only(port: &CommandsHandle, stage: &Stage) -> PlaceProcess {
    let listed = port.processes(&stage.cx("process_list")).await;
    let [process] = &listed[..] else { panic!("{listed:?}") };
    process.clone()
}

#[tokio::test]
async fn a_process_is_its_sessions_over_a_restart_and_its_state_is_the_true_one() {
    let (mut stage, inside, id) = stage().await;
    let cx = stage.cx("process_start");
    let started = port(&stage).start(&cx, id, process(&["cat"])).await.expect("started");
    assert_eq!((started.pid, &started.state), (7, &ProcessState::Running));
    let asked = inside.inside().processes[&started.id.to_string()].0.clone();
    assert_eq!(asked.pty, Some(PtySize { rows: 3, cols: 4 }));
    assert!(!asked.job.env.iter().any(|(name, _)| name == "HIDDEN"));
    let missing = port(&stage).start(&cx, id, process(&["missing"])).await.expect_err("refused");
    assert_eq!(missing.code, "cannot_start");

    let stranger = context(SessionId::new(), "x", Duration::from_secs(30), Default::default());
    assert_eq!(port(&stage).processes(&stranger).await, []);
    let window =
        ProcessWindow { stdout_from: 2, stderr_from: 0, max_bytes: 100, wait: Duration::ZERO };
    let refused = port(&stage).output(&stranger, started.id, window).await.expect_err("refused");
    assert_eq!(refused.code, "unknown_job");
    let refused = port(&stage).input(&stranger, started.id, vec![1], false).await;
    assert_eq!(refused.expect_err("refused").code, "unknown_job");
    let refused = port(&stage).stop(&stranger, started.id, Duration::ZERO).await;
    assert_eq!(refused.expect_err("refused").code, "unknown_job");

    stage.restart().await;
    let port = port(&stage);
    stage.once("w", |info| info["state"] == "running").await;
    assert_eq!(only(&port, &stage).await, started);
    let cx = stage.cx("process_output");
    let read = port.output(&cx, started.id, window).await.expect("read");
    assert_eq!((read.stdout.from, read.stdout.end), (5, 9));
    assert_eq!(port.input(&cx, started.id, vec![1, 2], true).await.expect("taken"), (2, true));
    let (ended, before) = port.stop(&cx, started.id, Duration::from_secs(1)).await.expect("ended");
    assert_eq!((ended.state, before), (ProcessState::Signalled(15), false));
    assert_eq!(only(&port, &stage).await.state, ProcessState::Signalled(15));
    // Its actor has seen it and recorded it: nobody needs to be asked any more.
    stage.once("w", |info| info["running_jobs"].as_array().is_some_and(Vec::is_empty)).await;
    inside.inside().processes.clear();
    let recorded = only(&port, &stage).await;
    let end = (recorded.state, recorded.ended_unix_ms);
    assert_eq!(end, (ProcessState::Signalled(15), Some(2_000)));
    assert!(port.stop(&cx, started.id, Duration::ZERO).await.expect("told").1);
}

#[tokio::test]
async fn waits_sizes_and_signals_go_into_the_guest_in_their_sessions_name() {
    let (stage, _, id) = stage().await;
    let (port, cx) = (port(&stage), stage.cx("process_output"));
    let spec = ProcessSpec { terminal: None, input: false, ..process(&["cat"]) };
    let started = port.start(&cx, id, spec).await.expect("started");
    assert_eq!(started.pid, 8, "without an input");
    let wait = Duration::from_millis(25);
    let window = ProcessWindow { stdout_from: 0, stderr_from: 0, max_bytes: 100, wait };
    let read = port.output(&cx, started.id, window).await.expect("read");
    assert_eq!(read.stdout.from, 25, "the guest was told how long to wait");
    // No longer than the call has, and the time for its answer.
    let short = context(cx.session, "process_output", Duration::from_secs(3), Default::default());
    let window = ProcessWindow { wait: Duration::from_secs(30), ..window };
    let read = port.output(&short, started.id, window).await.expect("read");
    assert!(read.stdout.from <= 1_000, "{}", read.stdout.from);
    let size = TerminalSize { rows: 9, cols: 8 };
    port.resize(&cx, started.id, size).await.expect("resized");
    let stranger = context(SessionId::new(), "x", Duration::from_secs(30), Default::default());
    let refused = port.resize(&stranger, started.id, size).await.expect_err("refused");
    assert_eq!(refused.code, "unknown_job");
    let refused = port.signal(&stranger, started.id, 2).await.expect_err("refused");
    assert_eq!(refused.code, "unknown_job");
    let (process, ended) = port.signal(&cx, started.id, 2).await.expect("sent");
    assert_eq!((process.state, ended), (ProcessState::Signalled(2), false));
    stage.once("w", |info| info["running_jobs"].as_array().is_some_and(Vec::is_empty)).await;
    assert!(port.signal(&cx, started.id, 2).await.expect("told").1);
}

#[tokio::test]
async fn output_is_held_back_for_e2bs_clients_where_the_guest_can() {
    let (stage, inside, id) = stage().await;
    let (port, mut cx) = (port(&stage), stage.cx("process_start"));
    let spec = || ProcessSpec { terminal: None, input: false, ..process(&["cat"]) };
    cx.door = Door::E2b;
    assert_eq!(port.start(&cx, id, spec()).await.expect("started").pid, 8, "an older guest");
    inside.inside().holds = true;
    assert_eq!(port.start(&cx, id, spec()).await.expect("started").pid, 9);
    // A program that the daemon itself starts for a call writes for nobody.
    cx.tool = "run_code";
    assert_eq!(port.start(&cx, id, spec()).await.expect("started").pid, 8);
    let other = stage.cx("process_start");
    assert_eq!(port.start(&other, id, spec()).await.expect("started").pid, 8);
}

#[tokio::test]
async fn what_a_stopped_machine_ran_is_interrupted() {
    let (stage, _, id) = stage().await;
    let (port, cx) = (port(&stage), stage.cx("process_start"));
    port.start(&cx, id, process(&["cat"])).await.expect("started");
    stage.call("workspace_stop", json!({ "workspace_id": "w" })).await.expect("stopped");
    let process = only(&port, &stage).await;
    assert_eq!(process.state, ProcessState::Interrupted);
    let window =
        ProcessWindow { stdout_from: 0, stderr_from: 0, max_bytes: 100, wait: Duration::ZERO };
    let refused = port.output(&cx, process.id, window).await.expect_err("refused");
    assert_eq!(refused.code, "workspace_state");
}

#[tokio::test]
async fn of_those_that_ended_the_last_hundred_are_shown() {
    let (stage, inside, id) = stage().await;
    let (port, cx) = (port(&stage), stage.cx("process_start"));
    let mut last = None;
    for _ in 0..103 {
        let started = port.start(&cx, id, process(&["cat"])).await.expect("started");
        port.stop(&cx, started.id, Duration::ZERO).await.expect("ended");
        stage.once("w", |info| info["running_jobs"].as_array().is_some_and(Vec::is_empty)).await;
        last = Some(started.id);
    }
    let listed = port.processes(&cx).await;
    assert_eq!((listed.len(), listed.last().map(|process| process.id)), (100, last));
    assert_eq!(inside.inside().forgotten, 3);
}
