//! A request, from its host to the port's answer.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use hivekeep_kernel::{CallCx, SessionId};
use hivekeep_ports::FoundWorkspace;
use tokio_util::sync::CancellationToken;

use super::{
    PortDoor,
    access::{self, Verdict},
    answer::{self, Refusal},
    cookies,
    host::{HostRefusal, PortHost},
};
use crate::{
    codes,
    doors::{
        http::{
            body,
            server::{self, PeerAddress},
        },
        proxy::{self, ForwardError, ForwardTerms, ForwardedFor},
    },
};

/// Serves a request; what is refused is said as the client wants it.
pub(super) async fn serve(State(door): State<Arc<PortDoor>>, request: Request) -> Response {
    let wants_page = answer::wants_page(request.headers());
    match pass(&door, request).await {
        Ok(answer) => answer,
        Err(refusal) => refusal.answer(wants_page),
    }
}

async fn pass(door: &PortDoor, request: Request) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let host = PortHost::of(&parts.uri, &parts.headers, &door.urls.domain).map_err(no_host)?;
    let workspace = found(door, &host).ok_or_else(|| {
        let why = format!("there is no workspace `{}`", host.name);
        Refusal::new(StatusCode::NOT_FOUND, "unknown_host", why)
    })?;
    match access::judge(door, &host, &workspace, &mut parts) {
        Verdict::Pass => {}
        Verdict::Exchange { cookie, location } => return Ok(answer::exchange(&cookie, &location)),
        Verdict::Unknown => {
            let why = "this port is private: open it by a link that the tool `port_url` gives, or \
                       show a bearer credential";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "port_private", why));
        }
        Verdict::Refused(why) => {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "port_private", why));
        }
    }
    let owner = workspace.owner.ok_or_else(|| {
        let why = format!("workspace `{}` belongs to no session; adopt it first", workspace.name);
        Refusal::new(StatusCode::BAD_GATEWAY, codes::NOT_OWNER.name, why)
    })?;
    let place = door.pools.requests.take(workspace.id).map_err(|full| {
        let (status, code) = (StatusCode::SERVICE_UNAVAILABLE, codes::TOO_MANY_REQUESTS.name);
        Refusal::new(status, code, full.to_string())
    })?;
    let options = &door.options;
    let client = parts.extensions.get::<PeerAddress>().map(|peer| peer.0.ip());
    let terms = ForwardTerms {
        answer_timeout: Duration::from_secs(options.answer_timeout_secs),
        forwarded: ForwardedFor { client, scheme: door.urls.scheme },
        tunnels: door.pools.tunnels.clone(),
    };
    let body = body::limit_pauses(body, door.body_patience);
    let request = Request::from_parts(parts, body);
    let cx = context(owner, Duration::from_secs(options.dial_timeout_secs));
    let target = (workspace.id, host.port);
    let answer = proxy::forward(door.ports.as_ref(), &cx, target, request, &terms).await;
    let mut answer = answer.map_err(|error| unanswered(&error))?;
    cookies::confine(answer.headers_mut());
    Ok(server::hold_place(place, answer))
}

/// The workspace of a host: by the digits of its id, its id or its name.
fn found(door: &PortDoor, host: &PortHost) -> Option<FoundWorkspace> {
    let by_digits = host.as_id().and_then(|id| door.workspaces.find(&id));
    by_digits.or_else(|| door.workspaces.find(&host.name))
}

/// Context of a connection for the session that owns the workspace: who asks was judged here, whose it is
/// by then its actor judges.
fn context(owner: SessionId, limit: Duration) -> CallCx {
    let span = tracing::debug_span!("port_url");
    CallCx::internal(owner, limit, CancellationToken::new(), span)
}

fn no_host(refusal: HostRefusal) -> Refusal {
    match refusal {
        HostRefusal::Foreign => {
            let why = "this `Host` is not below `http.ports.domain`";
            Refusal::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", why)
        }
        HostRefusal::NoPort => {
            let why = "this `Host` is not a valid PORT-NAME";
            Refusal::new(StatusCode::NOT_FOUND, "unknown_host", why)
        }
    }
}

fn unanswered(error: &ForwardError) -> Refusal {
    let code = match error {
        ForwardError::Dial(error) => codes::all()
            .into_iter()
            .find(|code| error.code == code.name)
            .map_or("port_unreachable", |code| code.name),
        ForwardError::Late(_) => "port_silent",
        ForwardError::Broken(_) => "port_broken",
        ForwardError::Full(_) => "too_many_upgrades",
    };
    Refusal::new(error.status(), code, error.to_string())
}
