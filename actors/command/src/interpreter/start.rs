//! Lazy start of the interpreter: by the first call that finds its port closed.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::{
    CallCx, Layer, ToolError,
    ports::{
        ByteStream, InternalCall, PlaceWorkspace, ProcessSpec, ProcessState, ProcessWindow,
        WorkspacePorts,
    },
};
use serde_json::json;

use super::{Answer, failed, wire::Exchange};
use crate::{codes, commands::CommandService};

/// Port that it listens on, on the loopback of the workspace.
const PORT: u16 = 49_999;
/// Program in the image.
const SERVER: &str = "/usr/lib/code-interpreter";
/// User that it runs as.
const USER: &str = "user";
/// Time to start, which reads a hundred megabytes of Python from the disk at worst.
const START: Duration = Duration::from_secs(60);

impl CommandService {
    /// A connection to the interpreter of a place, which is started if it does not run.
    ///
    /// # Errors
    /// `no_interpreter`; `interpreter_failed` if it ends instead of listening; those of a call of the guest.
    pub(super) async fn interpreter(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
    ) -> Answer<Exchange> {
        let ports = self.ports.need::<dyn WorkspacePorts>()?;
        let stream: Box<dyn ByteStream> = match ports.dial(cx, place.workspace, PORT).await {
            Err(error) if is_of_guest(&error) => {
                let ended = self.start_interpreter(cx, place).await?;
                let dialled = ports.dial(cx, place.workspace, PORT).await;
                // The interpreter may have ended because another one listens already.
                dialled.map_err(|error| ended.map_or(error, failed))?
            }
            dialled => dialled?,
        };
        Exchange::over(stream).await
    }

    /// Starts the interpreter and waits until it listens; its error output if it ended instead.
    async fn start_interpreter(
        &self,
        cx: &CallCx,
        place: &PlaceWorkspace,
    ) -> Answer<Option<String>> {
        let argv = vec![SERVER.to_owned()];
        let mut command = self.spec(place, argv, place.root.clone(), BTreeMap::new())?;
        command.user = Some(USER.to_owned());
        let place_name = place.place.clone();
        let process = ProcessSpec { command, terminal: None, input: false, place: place_name };
        let id = match self.commands.start(cx, place.workspace, process).await {
            Err(error) if is_of_guest(&error) => {
                return Err(self.no_interpreter(cx, place, &error.message).await);
            }
            started => started?.id,
        };
        let listens = async {
            let (mut said, mut from) = (String::new(), 0);
            loop {
                let wait = Duration::from_secs(5);
                let window =
                    ProcessWindow { stdout_from: 0, stderr_from: from, max_bytes: 4096, wait };
                let read = self.commands.output(cx, id, window).await?;
                if !read.stdout.bytes.is_empty() {
                    return Ok(None);
                }
                from = read.stderr.next();
                if !read.stderr.bytes.is_empty() {
                    said = String::from_utf8_lossy(&read.stderr.bytes).into_owned();
                }
                // Status of a shell for a program that cannot be executed.
                if let ProcessState::Exited(126 | 127) = read.process.state {
                    return Err(self.no_interpreter(cx, place, said.trim()).await);
                }
                if read.process.state != ProcessState::Running {
                    return Ok(Some(format!("the interpreter did not start: {}", said.trim())));
                }
            }
        };
        match tokio::time::timeout(START, cx.guard(listens)).await {
            Ok(listens) => listens,
            Err(_) => {
                Err(failed(format!("the interpreter did not listen within {} s", START.as_secs())))
            }
        }
    }

    /// Refusal for a place without an interpreter, with the name of its image where that is known.
    async fn no_interpreter(&self, cx: &CallCx, place: &PlaceWorkspace, why: &str) -> ToolError {
        let call = InternalCall {
            session: cx.session,
            deadline: cx.deadline,
            cancel: cx.cancel.clone(),
            progress: hivekeep_kernel::Progress::default(),
            reserved: None,
        };
        let asked = json!({ "workspace_id": place.workspace });
        let told = self.daemon_tools.call(call, "workspace_info", asked).await.ok();
        let image = told.as_ref().and_then(|info| info["base_image"].as_str()).unwrap_or("unknown");
        let message = format!(
            "the place `{}` has no code interpreter: its image is `{image}` ({why})",
            place.place
        );
        ToolError::new(Layer::Guest, codes::NO_INTERPRETER, message).detail("image", image)
    }
}

/// Whether a guest refused for good: it has no listener, or no such program or user.
fn is_of_guest(error: &ToolError) -> bool {
    error.layer == Layer::Guest && !error.retryable
}
