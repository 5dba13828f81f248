//! Answers of the door itself: a page for people, JSON for programs.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::json;

use crate::doors::http::caller;

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
pub(super) fn exchange(cookie: &str, location: &str) -> Response {
    let mut answer = with_headers(StatusCode::FOUND, Body::empty());
    for (name, value) in [(header::SET_COOKIE, cookie), (header::LOCATION, location)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Whether a client is a browser that shows a page.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
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
