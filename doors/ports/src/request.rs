//! A request, from its host to the port's answer, or to the door's own: a page for people, JSON for programs.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use hivekeep_door_server::{
    codes,
    http::{
        body, caller,
        server::{self, PeerAddress},
    },
    proxy::{self, ForwardError, ForwardTerms, ForwardedFor, cookies},
};
use hivekeep_kernel::{CallCx, SessionId};
use hivekeep_ports::FoundWorkspace;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    PortDoor,
    access::{self, Verdict},
    host::{HostRefusal, PortHost},
};

/// Serves a request; what is refused is said as the client wants it.
pub(super) async fn serve(State(door): State<Arc<PortDoor>>, request: Request) -> Response {
    let wants_page = wants_page(request.headers());
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
        Verdict::Exchange { cookie, location } => return Ok(exchange(&cookie, &location)),
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

/// A request that is not passed on, or has no answer of the port.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// A stable word.
    pub(super) code: &'static str,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, why: impl Into<String>) -> Self {
        Self { status, code, why: why.into() }
    }

    /// The answer, as the client wants it.
    pub(super) fn answer(&self, wants_page: bool) -> Response {
        let (kind, body) = match wants_page {
            true => ("text/html; charset=utf-8", self.page()),
            false => {
                let error = json!({ "code": self.code, "message": self.why });
                ("application/json", format!("{}\n", json!({ "error": error })))
            }
        };
        let mut answer = with_headers(self.status, Body::from(body));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static(caller::CHALLENGE);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        answer
    }

    fn page(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or_default();
        let (status, why) = (self.status.as_u16(), escaped(&self.why));
        format!(
            "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{status} {title}</title>\n\
             <h1>{title}</h1>\n<p>{why}</p>\n<p><code>{}</code></p></html>\n",
            self.code
        )
    }
}

/// The way of a link that became a cookie.
fn exchange(cookie: &str, location: &str) -> Response {
    let mut answer = with_headers(StatusCode::FOUND, Body::empty());
    for (name, value) in [(header::SET_COOKIE, cookie), (header::LOCATION, location)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Whether a client is a browser that shows a page.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn with_headers(status: StatusCode, body: Body) -> Response {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers: [(HeaderName, &str); 5] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-hivekeep"), "port-url"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_a_guest_said_and_no_more() {
        let why = "port 80: <script>alert(1)</script> & \"x\"";
        let page = Refusal::new(StatusCode::BAD_GATEWAY, "port_closed", why).page();
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;"), "{page}");
        assert!(page.contains("502 Bad Gateway") && page.contains("port_closed"), "{page}");
    }
}
