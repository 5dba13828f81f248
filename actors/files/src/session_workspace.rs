//! Workspaces of a session's own: made when the first call needs one, found by their names from then on.
//! One is the session's place; a place that commands cannot enter otherwise has a sandbox beside it that
//! mounts it.
//!
//! Its name follows from the session's id, and names are unique: two calls at once, or a daemon that is
//! killed over a creation, make no second one. Nothing is recorded here; who has made it is the
//! workspaces' family, which undoes a creation that was cut short.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, fault_point};
use hivekeep_ports::{
    FoundWorkspace, MOUNTED_PLACE, OwnWorkspace, OwnWorkspaces, WorkspaceFiles, WorkspaceReadiness,
    own_workspace_name,
};
use hivekeep_runtime::{OnBehalfOf, Ports, ToolClient};
use serde_json::{Map, Value, json};

use crate::{SessionWorkspaceOptions, codes};

/// Time for a creation or a start, whatever becomes of the call that needs it.
const MAKING: Duration = Duration::from_secs(300);

/// Makes and finds the workspaces of sessions.
pub(crate) struct SessionWorkspaces {
    pub(crate) files: Arc<dyn WorkspaceFiles>,
    pub(crate) tools: ToolClient<SessionId>,
    pub(crate) options: SessionWorkspaceOptions,
    /// Ports of the daemon, searched when needed: [`OwnWorkspaces`] is offered by a family behind this one.
    pub(crate) ports: Ports,
}

/// Name of the sandbox beside a place: places have longer names than workspaces may.
fn name_beside(session: SessionId, source: &str) -> String {
    let digest = blake3::hash(source.as_bytes()).to_hex();
    format!("{}-{}", own_workspace_name(session), &digest[..16])
}

impl SessionWorkspaces {
    /// The session's own workspace, running. A creation that its call does not wait for goes on, and is
    /// found by the next.
    ///
    /// # Errors
    /// Those of making and starting a workspace; `not_owner` where another session took it over.
    pub(crate) async fn ready(&self, cx: &CallCx) -> Result<FoundWorkspace, ToolError> {
        let name = own_workspace_name(cx.session);
        let request = || {
            let decided = self.decided(cx.session).map(|own| own.request).unwrap_or_default();
            self.request(&name, decided)
        };
        self.made(cx, &name, request).await
    }

    /// Decision on a session's own workspace, of whoever opened the session.
    pub(crate) fn decided(&self, session: SessionId) -> Option<OwnWorkspace> {
        self.ports.find::<dyn OwnWorkspaces>()?.of(session)
    }

    /// The session's sandbox that mounts a place, running.
    ///
    /// # Errors
    /// As [`Self::ready`]; `volumes_unsupported`, `place_unknown` and `volume_not_found` of the mount.
    pub(crate) async fn beside(
        &self,
        cx: &CallCx,
        source: &str,
        read_only: bool,
    ) -> Result<FoundWorkspace, ToolError> {
        let name = name_beside(cx.session, source);
        let request = || {
            let mut request = self.request(&name, Map::new());
            request["isolation"] = json!("sandbox");
            let mount = json!({ "volume": source, "path": MOUNTED_PLACE, "read_only": read_only });
            request["volumes"] = json!([mount]);
            request
        };
        self.made(cx, &name, request).await
    }

    async fn made(
        &self,
        cx: &CallCx,
        name: &str,
        request: impl Fn() -> Value,
    ) -> Result<FoundWorkspace, ToolError> {
        let caller = OnBehalfOf::call(cx);
        loop {
            let found = self.files.find(name);
            let error = match found {
                Some(found) => {
                    own(cx, &found)?;
                    match found.readiness {
                        WorkspaceReadiness::Ready => return Ok(found),
                        WorkspaceReadiness::Changing => changing(name),
                        WorkspaceReadiness::Off => {
                            cx.progress.report(0.0, None, "starting the session's workspace");
                            let start = json!({ "workspace_id": name });
                            match self.go_on(cx, "workspace_start", start).await {
                                Ok(()) => continue,
                                Err(error) => error,
                            }
                        }
                    }
                }
                None => {
                    cx.progress.report(0.0, None, "making the session's workspace");
                    match self.go_on(cx, "workspace_create", request()).await {
                        Ok(()) => {
                            fault_point!("places.after_created");
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            // Another call makes or starts it.
            let passing =
                error.is_any(&[codes::NAME_TAKEN, codes::WORKSPACE_BUSY, codes::WORKSPACE_STATE]);
            caller.wait_or(error, passing).await?;
        }
    }

    /// Calls a tool whose work goes on when nobody waits for it.
    async fn go_on(&self, cx: &CallCx, tool: &'static str, args: Value) -> Result<(), ToolError> {
        // The machine is the other tool's work; this call only waits.
        cx.slot.give_back();
        let (tools, session) = (self.tools.clone(), cx.session);
        let reserved = cx.reserved.clone();
        let work = tokio::spawn(async move {
            let caller = OnBehalfOf { reserved, ..OnBehalfOf::own(session, MAKING) };
            let done: Result<Value, _> = tools.call(session, &caller, tool, args).await;
            done.map(drop)
        });
        work.await.map_err(|panic| ToolError::internal(format!("{tool}: {panic}")))?
    }

    /// Request for a workspace: as it was decided, or else as it is configured.
    fn request(&self, name: &str, decided: Map<String, Value>) -> Value {
        let SessionWorkspaceOptions { isolation, image, vcpus, memory_mb, disk_gb } = &self.options;
        let mut request = json!({
            "name": name, "isolation": isolation, "base_image": image,
            "vcpus": vcpus, "memory_mb": memory_mb, "disk_gb": disk_gb,
        });
        if let Value::Object(fields) = &mut request {
            fields.extend(decided);
            fields.retain(|_, value| !value.is_null());
        }
        request
    }
}

/// Whether a workspace is the caller's.
///
/// # Errors
/// `not_owner`.
pub(crate) fn own(cx: &CallCx, found: &FoundWorkspace) -> Result<(), ToolError> {
    if found.owner == Some(cx.session) {
        return Ok(());
    }
    Err(ToolError::not_owner())
}

fn changing(name: &str) -> ToolError {
    let message = format!("workspace `{name}` is on its way to another state");
    ToolError::new(Layer::Actor, codes::WORKSPACE_BUSY, message)
        .next("repeat the call; workspace_list shows its state")
        .retry_after(Duration::from_millis(250))
}
