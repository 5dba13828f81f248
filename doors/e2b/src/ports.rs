//! Other ports of a sandbox than the data plane's: passed on over the workspace's link. Private unless asked.
//!
//! The code interpreter is started by the tool that runs code, the first time that its port is asked for.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::request::Parts,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hivekeep_door_server::{
    http::{
        body,
        server::{self, PeerAddress},
    },
    proxy::{self, ForwardTerms, ForwardedFor, cookies},
};
use hivekeep_kernel::{CallCx, ToolError, User, WorkspaceId};
use hivekeep_ports::{FoundWorkspace, WorkspacePorts};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    access::TokenKind,
    control::PUBLIC_PORTS,
    error::{E2bError, Kind},
    state::{E2b, Owner},
    target::{ENVD_PORT, SandboxPort},
};

/// Header with the token of a private port.
const TRAFFIC_TOKEN: &str = "e2b-traffic-access-token";
/// Header with the token of the data plane, which the SDKs show to the ports of their own services.
const ACCESS_TOKEN: &str = "x-access-token";
/// Time to connect to a port.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a port to begin its answer: cells of an interpreter run for minutes before they say something.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Passes a request on that is for another port; others go to the routes.
pub(super) async fn route(State(e2b): State<Arc<E2b>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match e2b.sandbox_named(&parts) {
        Ok(Some(sandbox)) if sandbox.port != ENVD_PORT => {
            let passed = e2b.pass(&sandbox, parts, body).await;
            passed.unwrap_or_else(|error| error.into_response())
        }
        _ => next.run(Request::from_parts(parts, body)).await,
    }
}

impl E2b {
    async fn pass(
        &self,
        sandbox: &SandboxPort,
        mut parts: Parts,
        body: axum::body::Body,
    ) -> Result<Response, E2bError> {
        let (owner, asking) = self.who_may(sandbox, &parts).await?;
        let place = self.place(asking)?;
        let workspace = self.workspace(&sandbox.id)?;
        let ports = self.core.ports.need::<dyn WorkspacePorts>()?;
        // A sandbox sees no key and no token of its owner's.
        for name in [TRAFFIC_TOKEN, ACCESS_TOKEN, "x-api-key", "e2b-sandbox-id", "e2b-sandbox-port"]
        {
            parts.headers.remove(name);
        }
        let client = parts.extensions.get::<PeerAddress>().map(|peer| peer.0.ip());
        let scheme = if self.options.listener.tls_cert.is_some() { "https" } else { "http" };
        let terms = ForwardTerms {
            answer_timeout: ANSWER_TIMEOUT,
            forwarded: ForwardedFor { client, scheme },
            tunnels: self.tunnels.clone(),
        };
        let span = tracing::debug_span!("e2b_port", port = sandbox.port);
        let cx = CallCx::internal(owner.session, DIAL_TIMEOUT, CancellationToken::new(), span);
        if sandbox.port == INTERPRETER_PORT {
            self.start_interpreter(&owner, &*ports, &cx, (workspace.id, &sandbox.id)).await?;
        }
        let body = body::limit_pauses(body, self.bodies.patience);
        let request = Request::from_parts(parts, body);
        let target = (workspace.id, sandbox.port);
        let answer = proxy::forward(&*ports, &cx, target, request, &terms).await;
        let mut answer = answer.map_err(|error| match error {
            proxy::ForwardError::Dial(error) if !error.is(hivekeep_link::codes::PORT_CLOSED) => {
                error.into()
            }
            proxy::ForwardError::Full(full) => ToolError::from(full).into(),
            // The SDKs look for `port is not open`.
            error => {
                let why = format!("The sandbox's port is not open ({}): {error}", sandbox.port);
                E2bError::new(Kind::Gone, why)
            }
        })?;
        // A sandbox sets no cookie for another one, or for this host.
        cookies::confine(answer.headers_mut());
        Ok(server::hold_place(place, answer))
    }

    /// Whom a port is reached for, and who asks: whose token is shown, or anybody for the owner of a public one.
    async fn who_may(
        &self,
        sandbox: &SandboxPort,
        parts: &Parts,
    ) -> Result<(Owner, User), E2bError> {
        for (header, kind) in
            [(TRAFFIC_TOKEN, TokenKind::Traffic), (ACCESS_TOKEN, TokenKind::Access)]
        {
            let Some(token) = parts.headers.get(header) else { continue };
            if let Some(row) = self.shown(kind, token.as_bytes(), &sandbox.id)? {
                return Ok((self.owner_of(&row).await?, row.user()));
            }
        }
        let private = "this port is private: show `e2b-traffic-access-token`";
        let private = || E2bError::new(Kind::PermissionDenied, private);
        let found = self.workspace(&sandbox.id).map_err(|_| private())?;
        if !self.is_public(&found, sandbox.port)? {
            return Err(private());
        }
        let session = found.owner.ok_or_else(private)?;
        let row = self.credential_of(session).ok_or_else(private)?;
        Ok((Owner { session, ..self.owner_of(&row).await? }, User::Nobody))
    }

    /// Whether anybody reaches a port. Those through which code is run are never public.
    fn is_public(&self, found: &FoundWorkspace, port: u16) -> Result<bool, E2bError> {
        let runs_code = [INTERPRETER_PORT, ENVD_PORT].contains(&port);
        Ok(!runs_code && self.directory()?.has_label(found.id, PUBLIC_PORTS, "true"))
    }
}

/// Port of the interpreter in the published system, and here.
const INTERPRETER_PORT: u16 = 49_999;
/// Tool that runs code, and starts what runs it.
const INTERPRETER_TOOL: &str = "run_code";

impl E2b {
    /// Starts the interpreter of a sandbox where nothing listens on its port. That is a call of `run_code` without
    /// code; who may not make such a call does not reach the port.
    ///
    /// # Errors
    /// `no_interpreter` and others of the call.
    async fn start_interpreter(
        &self,
        owner: &Owner,
        ports: &dyn WorkspacePorts,
        cx: &CallCx,
        (workspace, id): (WorkspaceId, &str),
    ) -> Result<(), E2bError> {
        if !self.may(owner, INTERPRETER_TOOL) {
            let why = format!("a policy denies `{INTERPRETER_TOOL}`");
            return Err(E2bError::new(Kind::PermissionDenied, why));
        }
        match ports.dial(cx, workspace, INTERPRETER_PORT).await {
            Err(error) if error.is(hivekeep_link::codes::PORT_CLOSED) => {
                let place = format!("{}@{id}:~", self.options.user);
                self.call(owner, INTERPRETER_TOOL, json!({ "code": "", "place": place })).await?;
            }
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        Ok(())
    }
}
