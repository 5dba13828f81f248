//! Ports that answer what a test says, and remember what they were asked.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, JobId, Layer, ScriptId, SessionId, User, WorkspaceId};
use hivekeep_ports::{
    CommandEnd, CommandLimits, CommandRunner, CommandSpec, EntryPoint, LateTools, PlaceProcess,
    PlaceWorkspace, Places, ProcessOutput, ProcessSpan, ProcessSpec, ProcessState, ProcessWindow,
    ScriptLibrary, ScriptProgram, TerminalSize, WorkspacePorts,
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::Value;

use super::{Answer, code::Port};
use crate::{CommandFamily, Options, codes, tests::ToolError};

#[derive(Default)]
struct Told {
    end: CommandEnd,
    missing: Option<String>,
    ran: Option<(CommandSpec, CommandLimits)>,
    process: Option<(PlaceProcess, ProcessSpec)>,
    wrote: (ProcessSpan, ProcessSpan),
    grace: Duration,
    window: Option<ProcessWindow>,
    /// State of processes from their start on.
    born: Option<ProcessState>,
    input: Vec<u8>,
    size: Option<TerminalSize>,
    signal: i32,
    programs: Vec<(String, String, String)>,
}

/// A guest that runs nothing.
#[derive(Default)]
pub(super) struct Fake(Mutex<Told>);

pub(super) struct Stage {
    pub(super) rig: Rig<CommandFamily>,
    pub(super) fake: Arc<Fake>,
    pub(super) port: Arc<Port>,
}

impl Stage {
    pub(super) async fn new(options: Options) -> Self {
        let fake = Arc::new(Fake::default());
        let offered = fake.clone();
        let port = Arc::new(Port::default());
        let offered_port = port.clone();
        let services = RigServices {
            sessions: Arc::new(FakeUsers::all(User::Uid(0))),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(move |ports| {
                ports.offer::<dyn CommandRunner>(offered.clone());
                ports.offer::<dyn Places>(offered.clone());
                ports.offer::<dyn WorkspacePorts>(offered_port.clone());
                ports.offer::<dyn ScriptLibrary>(Arc::new(Library(ScriptId::new())));
            }),
        };
        Self { rig: Rig::new(options, services).await, fake, port }
    }

    pub(super) async fn call(&self, tool: &str, args: Value) -> Answer<Value> {
        self.rig.call(tool, args).await
    }
}

impl Fake {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("lock")
    }

    pub(super) fn ends(&self, end: CommandEnd) {
        self.told().end = end;
    }

    pub(super) fn has_no(&self, program: &str) {
        self.told().missing = Some(program.to_owned());
    }

    pub(super) fn last(&self) -> (CommandSpec, CommandLimits) {
        self.told().ran.clone().expect("something ran")
    }

    /// Processes are in this state as soon as they are started.
    pub(super) fn starts_as(&self, state: ProcessState) {
        self.told().born = Some(state);
    }

    pub(super) fn was_idle(&self) -> bool {
        self.told().ran.is_none() && self.told().process.is_none()
    }

    pub(super) fn started(&self) -> ProcessSpec {
        self.told().process.clone().expect("started").1
    }

    pub(super) fn is(&self, state: ProcessState) {
        self.told().process.as_mut().expect("started").0.state = state;
    }

    pub(super) fn wrote(&self, stdout: ProcessSpan, stderr: ProcessSpan) {
        self.told().wrote = (stdout, stderr);
    }

    /// Programs that were put: place, path, text.
    pub(super) fn programs(&self) -> Vec<(String, String, String)> {
        self.told().programs.clone()
    }

    pub(super) fn grace_secs(&self) -> u64 {
        self.told().grace.as_secs()
    }

    /// Longest wait of the last read.
    pub(super) fn waited(&self) -> Duration {
        self.told().window.expect("it was read").wait
    }

    /// Bytes of the last input.
    pub(super) fn input_was(&self) -> Vec<u8> {
        self.told().input.clone()
    }

    /// Last size and signal.
    pub(super) fn size_and_signal(&self) -> (Option<TerminalSize>, i32) {
        let told = self.told();
        (told.size, told.signal)
    }

    fn process(&self) -> PlaceProcess {
        self.told().process.clone().expect("started").0
    }
}

#[async_trait]
impl Places for Fake {
    async fn workspace(&self, _: &CallCx, place: Option<&str>) -> Answer<PlaceWorkspace> {
        let place = place.unwrap_or("own").to_owned();
        let root = format!("/root-of-{place}");
        let user = place.split_once('@').map(|(user, _)| user.to_owned());
        Ok(PlaceWorkspace { workspace: WorkspaceId::new(), place, root, user })
    }

    async fn put_program(
        &self,
        _: &CallCx,
        place: &PlaceWorkspace,
        path: &str,
        text: String,
    ) -> Answer<()> {
        self.told().programs.push((place.place.clone(), path.to_owned(), text));
        Ok(())
    }
}

#[async_trait]
impl CommandRunner for Fake {
    async fn run(
        &self,
        _: &CallCx,
        _: WorkspaceId,
        command: CommandSpec,
        limits: CommandLimits,
    ) -> Answer<CommandEnd> {
        let mut told = self.told();
        if told.missing.as_deref() == command.argv.first().map(String::as_str) {
            return Err(ToolError::new(Layer::Guest, codes::CANNOT_START, "not found in PATH"));
        }
        told.ran = Some((command, limits));
        Ok(told.end.clone())
    }

    async fn entry_point(&self, _: &CallCx, _: WorkspaceId) -> Answer<EntryPoint> {
        Ok(EntryPoint {
            program: vec!["/tini".to_owned(), "/app".to_owned()],
            default_args: vec!["--help".to_owned()],
            working_dir: "/srv".to_owned(),
        })
    }

    async fn start(
        &self,
        _: &CallCx,
        workspace: WorkspaceId,
        spec: ProcessSpec,
    ) -> Answer<PlaceProcess> {
        let process = PlaceProcess {
            id: JobId::new(),
            workspace,
            place: spec.place.clone(),
            argv: spec.command.argv.clone(),
            workdir: spec.command.workdir.clone(),
            terminal: spec.terminal.is_some(),
            pid: 42,
            started_unix_ms: 1_000,
            state: self.told().born.clone().unwrap_or(ProcessState::Running),
            ended_unix_ms: None,
        };
        if self.told().missing.as_ref() == spec.command.argv.first() {
            return Err(ToolError::new(Layer::Guest, codes::CANNOT_START, "not found"));
        }
        self.told().process = Some((process.clone(), spec));
        Ok(process)
    }

    async fn processes(&self, _: &CallCx) -> Vec<PlaceProcess> {
        vec![self.process()]
    }

    async fn output(&self, _: &CallCx, _: JobId, window: ProcessWindow) -> Answer<ProcessOutput> {
        self.told().window = Some(window);
        let (stdout, stderr) = self.told().wrote.clone();
        Ok(ProcessOutput { process: self.process(), stdout, stderr })
    }

    async fn input(
        &self,
        _: &CallCx,
        _: JobId,
        bytes: Vec<u8>,
        close: bool,
    ) -> Answer<(u64, bool)> {
        let taken = bytes.len().min(3) as u64;
        self.told().input = bytes;
        Ok((taken, close))
    }

    async fn resize(&self, _: &CallCx, _: JobId, size: TerminalSize) -> Answer<()> {
        self.told().size = Some(size);
        Ok(())
    }

    async fn signal(&self, _: &CallCx, _: JobId, signal: i32) -> Answer<(PlaceProcess, bool)> {
        self.told().signal = signal;
        Ok((self.process(), false))
    }

    async fn stop(&self, _: &CallCx, _: JobId, grace: Duration) -> Answer<(PlaceProcess, bool)> {
        self.told().grace = grace;
        Ok((self.process(), false))
    }
}

/// One script of everybody's with two versions.
struct Library(ScriptId);

impl ScriptLibrary for Library {
    fn program(&self, _: SessionId, name: &str, version: Option<u64>) -> Answer<ScriptProgram> {
        let version = version.unwrap_or(2);
        if name != "my tool" || version > 2 {
            return Err(ToolError::foreign(Layer::Actor, "script_not_found", "no such script"));
        }
        let code = ["#!/usr/bin/env python3\n1", "2"][version as usize - 1].to_owned();
        Ok(ScriptProgram { id: self.0, version, code })
    }
}
