//! Commands and processes of other families, on the workspaces' own execution and jobs.
//!
//! A command is an [`exec`](crate::commands::exec) of a program, a process is a background job with
//! an open input: the same records, the same actor that follows them, the same refusals.
//! [`processes`] has the part of processes.

mod processes;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, JobId, Layer, ToolError, WorkspaceId};
use hivekeep_link::{CallTerms, Link, link_error};
use hivekeep_ports::{
    CommandEnd, CommandLimits, CommandRunner, CommandSpec, CommandStream, EntryPoint, PlaceProcess,
    ProcessOutput, ProcessSpec, ProcessWindow, TerminalSize,
};
use hivekeep_protocol::{Argv, RunCommand, RunCommandReply, Stream};
use tokio::time::Instant;

use crate::{
    codes,
    commands::{
        ANSWER_MARGIN,
        env::joined,
        exit_code, once, teller,
        user::{as_user, entry_point},
    },
    handle::WorkspaceHandle,
    ledger::Ledger,
    messages::GuestMsg,
    shared::Shared,
    tail::Tail,
};

/// Variables that depend on the user that a command runs as.
const OF_USER: [&str; 3] = ["HOME", "USER", "LOGNAME"];

/// Reaches the guest of every workspace for the session that owns it. Cheap to clone.
#[derive(Clone)]
pub struct CommandsHandle(Arc<Shared>);

impl CommandsHandle {
    /// A handle for the workspaces of this daemon.
    pub fn new(workspaces: Arc<Shared>) -> Self {
        Self(workspaces)
    }

    fn workspace(&self, id: WorkspaceId) -> Result<WorkspaceHandle, ToolError> {
        let card = self.0.directory.any(id).filter(|card| card.pool.is_none());
        let card = card.ok_or_else(|| not_found(id))?;
        Ok(WorkspaceHandle { id, shared: self.0.clone(), actor: card.address })
    }

    fn ledger(&self, id: WorkspaceId) -> Result<Ledger, ToolError> {
        self.0.logs.state(id).ok_or_else(|| not_found(id))
    }

    /// Variables of a command: the image's, the workspace's own as far as the command inherits them, the
    /// trace of the call, and those of the command itself.
    fn environment(
        &self,
        cx: &CallCx,
        id: WorkspaceId,
        command: &CommandSpec,
    ) -> Result<Vec<(String, String)>, ToolError> {
        let (ledger, own) = (self.ledger(id)?, command.env.clone());
        let mut env = joined(&ledger, |name| command.inherits(name), cx.trace.as_ref(), own)?;
        if command.user.is_some() {
            // The image's and the workspace's values are for another user; the guest sets the right ones.
            env.retain(|(name, _)| {
                !OF_USER.contains(&name.as_str()) || command.env.contains_key(name)
            });
        }
        Ok(env)
    }

    /// The link to the guest, for the session that owns the workspace.
    async fn enter(&self, cx: &CallCx, workspace: &WorkspaceHandle) -> Result<Link, ToolError> {
        let ask = |reply| GuestMsg::Enter(Box::new(cx.clone()), reply).into();
        let link = cx.guard(async { Ok(workspace.actor.ask(cx.remaining(), ask).await?) });
        link.await?
    }
}

fn not_found(id: WorkspaceId) -> ToolError {
    let code = codes::WORKSPACE_NOT_FOUND;
    ToolError::not_found(Layer::Resolve, code, "workspace", &id.to_string())
        .next("workspace_list shows the workspaces there are")
}

#[async_trait]
impl CommandRunner for CommandsHandle {
    async fn run(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        command: CommandSpec,
        limits: CommandLimits,
    ) -> Result<CommandEnd, ToolError> {
        let workspace = self.workspace(workspace)?;
        let env = self.environment(cx, workspace.id, &command)?;
        let link = self.enter(cx, &workspace).await?;
        let request = RunCommand {
            argv: as_user(&self.ledger(workspace.id)?, command.user, Argv::Direct(command.argv))?,
            env,
            workdir: Some(command.workdir),
            timeout_ms: limits.timeout_secs.saturating_mul(1000),
            max_output_bytes: limits.output_bytes,
        };
        let limit = Duration::from_secs(limits.timeout_secs) + ANSWER_MARGIN;
        let deadline = (Instant::now() + limit).min(cx.deadline);
        let wait = CallTerms { deadline, cancel: cx.cancel.clone() };
        let output =
            match once(cx, &link, &request, limits.tail, &wait, &self.0.daemon.closing).await? {
                Some(output) => output,
                None if limits.tail => return last(cx, &link, request, wait).await,
                None => link.exec(request, wait, teller(cx)).await.map_err(link_error)?,
            };
        let stream = |part: hivekeep_link::CapturedOutput| CommandStream {
            bytes: part.bytes,
            total_bytes: part.total_bytes,
        };
        Ok(end(&output.done, stream(output.stdout), stream(output.stderr)))
    }

    async fn entry_point(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
    ) -> Result<EntryPoint, ToolError> {
        let workspace = self.workspace(workspace)?;
        // Entering checks that the session owns the workspace, and that a disk and the image's defaults are
        // recorded.
        self.enter(cx, &workspace).await?;
        entry_point(&self.ledger(workspace.id)?)
    }

    async fn start(
        &self,
        cx: &CallCx,
        workspace: WorkspaceId,
        process: ProcessSpec,
    ) -> Result<PlaceProcess, ToolError> {
        self.start_process(cx, workspace, process).await
    }

    async fn processes(&self, cx: &CallCx) -> Vec<PlaceProcess> {
        self.list_processes(cx).await
    }

    async fn output(
        &self,
        cx: &CallCx,
        process: JobId,
        window: ProcessWindow,
    ) -> Result<ProcessOutput, ToolError> {
        self.process_output(cx, process, window).await
    }

    async fn input(
        &self,
        cx: &CallCx,
        process: JobId,
        bytes: Vec<u8>,
        close: bool,
    ) -> Result<(u64, bool), ToolError> {
        self.process_input(cx, process, bytes, close).await
    }

    async fn resize(
        &self,
        cx: &CallCx,
        process: JobId,
        size: TerminalSize,
    ) -> Result<(), ToolError> {
        self.resize_process(cx, process, size).await
    }

    async fn signal(
        &self,
        cx: &CallCx,
        process: JobId,
        signal: i32,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        self.signal_process(cx, process, signal).await
    }

    async fn stop(
        &self,
        cx: &CallCx,
        process: JobId,
        grace: Duration,
    ) -> Result<(PlaceProcess, bool), ToolError> {
        self.stop_process(cx, process, grace).await
    }
}

/// Runs a command and keeps the last bytes of its output.
async fn last(
    cx: &CallCx,
    link: &Link,
    request: RunCommand,
    wait: CallTerms,
) -> Result<CommandEnd, ToolError> {
    let most = usize::try_from(request.max_output_bytes).unwrap_or(usize::MAX);
    let (mut stdout, mut stderr, mut tell) = (Tail::new(most), Tail::new(most), teller(cx));
    let request = RunCommand { max_output_bytes: u64::MAX, ..request };
    let follow = |stream, bytes: &[u8]| {
        if stream == Stream::Stderr { &mut stderr } else { &mut stdout }.push(bytes);
        tell(stream, bytes);
    };
    let done = link.exec_followed(request, wait, follow).await.map_err(link_error)?;
    let stream = |tail: Tail| {
        let (bytes, total_bytes) = tail.into_parts();
        CommandStream { bytes, total_bytes }
    };
    Ok(end(&done, stream(stdout), stream(stderr)))
}

fn end(done: &RunCommandReply, stdout: CommandStream, stderr: CommandStream) -> CommandEnd {
    let (exit_code, signal) = exit_code(done.exit);
    CommandEnd {
        exit_code,
        signal,
        timed_out: done.timed_out,
        stdout: CommandStream {
            total_bytes: stdout.total_bytes.max(done.stdout_total_bytes),
            ..stdout
        },
        stderr: CommandStream {
            total_bytes: stderr.total_bytes.max(done.stderr_total_bytes),
            ..stderr
        },
        killed_stragglers: done.killed_stragglers,
        elapsed_ms: done.elapsed_ms,
    }
}
