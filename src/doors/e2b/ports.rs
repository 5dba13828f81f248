//! Other ports of a sandbox than the data plane's: passed on over the workspace's link. Private unless asked.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::request::Parts,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use hivekeep_kernel::{
    CallCx,
    ports::{WorkspaceFiles, WorkspacePorts},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    control::PUBLIC_PORTS,
    error::{E2bError, Kind},
    interpreter::INTERPRETER_PORT,
    state::{E2b, Owner},
    target::{ENVD_PORT, SandboxPort},
};
use crate::doors::{
    http::{idle, server::PeerAddress},
    ports::cookies,
    proxy::{self, ForwardTerms, ForwardedFor},
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
        let owner = self.who_may(sandbox, &parts).await?;
        let workspaces = self.core.ports.need::<dyn WorkspaceFiles>()?;
        let ports = self.core.ports.need::<dyn WorkspacePorts>()?;
        let gone = || E2bError::no_sandbox(&sandbox.id);
        let workspace = workspaces.find(&sandbox.id).ok_or_else(gone)?;
        // A sandbox sees no key and no token of its owner's.
        for name in [TRAFFIC_TOKEN, ACCESS_TOKEN, "x-api-key", "e2b-sandbox-id", "e2b-sandbox-port"]
        {
            parts.headers.remove(name);
        }
        let client = parts.extensions.get::<PeerAddress>().map(|peer| peer.0.ip());
        let scheme = if self.options.tls_cert.is_some() { "https" } else { "http" };
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
        let body = idle::limit(body, Duration::from_secs(self.options.body_timeout_secs));
        let request = Request::from_parts(parts, body);
        let target = (workspace.id, sandbox.port);
        let answer = proxy::forward(&*ports, &cx, target, request, &terms).await;
        let mut answer = answer.map_err(|error| match error {
            proxy::ForwardError::Dial(error) if !error.is(hivekeep_link::codes::PORT_CLOSED) => {
                error.into()
            }
            // The SDKs look for `port is not open`.
            error => {
                let why = format!("The sandbox's port is not open ({}): {error}", sandbox.port);
                E2bError::new(Kind::Gone, why)
            }
        })?;
        // A sandbox sets no cookie for another one, or for this host.
        cookies::confine(answer.headers_mut());
        Ok(answer)
    }

    /// Whom a port is reached for: whose token is shown, or the owner of a public one.
    async fn who_may(&self, sandbox: &SandboxPort, parts: &Parts) -> Result<Owner, E2bError> {
        let shown = |name: &str| parts.headers.get(name).map(|value| value.as_bytes());
        let (traffic, access) = (shown(TRAFFIC_TOKEN), shown(ACCESS_TOKEN));
        let by_traffic = traffic.and_then(|it| self.tokens.traffic_credential(it, &sandbox.id));
        let by_access = || access.and_then(|it| self.tokens.credential(it, &sandbox.id));
        if let Some(row) = by_traffic.or_else(by_access).and_then(|id| self.live(id)) {
            return self.owner_of(&row).await;
        }
        let private = "this port is private: show `e2b-traffic-access-token`";
        let private = || E2bError::new(Kind::PermissionDenied, private);
        let workspaces = self.core.ports.need::<dyn WorkspaceFiles>()?;
        let found = workspaces.find(&sandbox.id).ok_or_else(private)?;
        let session = found.owner.ok_or_else(private)?;
        let row = self.credential_of(session).ok_or_else(private)?;
        let owner = Owner { session, ..self.owner_of(&row).await? };
        match self.has_public_ports(&owner, &found.name).await? {
            true => Ok(owner),
            false => Err(private()),
        }
    }

    async fn has_public_ports(&self, owner: &Owner, name: &str) -> Result<bool, E2bError> {
        let asked = json!({ "labels": { PUBLIC_PORTS: "true" } });
        let listed = self.call(owner, "workspace_list", asked).await?;
        let rows = listed["workspaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(rows.iter().any(|row| row["name"] == *name))
    }
}
