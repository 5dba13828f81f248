//! Headers on their way through (RFC 9110, section 7.6): those of one hop stay on it.

use std::net::IpAddr;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, header},
};
use hyper::Request;

/// Headers of one hop besides those that `Connection` names. `TE` passes as `trailers` alone, which is
/// not passed on either: trailers of a request are rare, and those of an answer pass by themselves.
const OF_ONE_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Forwarding headers, which are not believed from a client.
const OF_THE_WAY: [HeaderName; 8] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("proxy-connection"),
];

/// Client of a request, and how it reached this host.
#[derive(Debug, Clone)]
pub struct ForwardedFor {
    /// Address of the client's end of the connection.
    pub client: Option<IpAddr>,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// Makes a client's request one for the port. Returns the protocol that it asks to switch to.
pub(super) fn for_port(request: &mut Request<Body>, from: &ForwardedFor) -> Option<HeaderValue> {
    let upgrade = upgrade_of(request.headers());
    // The target in origin form, and the host that it may have named in absolute form.
    let uri = request.uri();
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let named = uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    *request.uri_mut() = target.parse().unwrap_or_default();
    *request.version_mut() = hyper::Version::HTTP_11;
    let headers = request.headers_mut();
    strip(headers);
    for name in &OF_THE_WAY {
        headers.remove(name);
    }
    if let Some(host) = named {
        headers.insert(header::HOST, host);
    }
    let client = from.client.and_then(|client| HeaderValue::from_str(&client.to_string()).ok());
    let host = headers.get(header::HOST).cloned();
    for (name, value) in [
        ("x-forwarded-for", client),
        ("x-forwarded-host", host),
        ("x-forwarded-proto", Some(HeaderValue::from_static(from.scheme))),
    ] {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    if let Some(protocol) = &upgrade {
        switch(headers, protocol.clone());
    }
    upgrade
}

/// Makes a port's answer one for the client; `upgrade` is the protocol that both switch to.
pub(super) fn for_client(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    strip(headers);
    if let Some(protocol) = upgrade {
        switch(headers, protocol);
    }
}

/// Whether a port switched to what it was asked to.
///
/// # Errors
/// The reason.
pub(super) fn switched_to(headers: &HeaderMap, asked: &HeaderValue) -> Result<(), String> {
    let switched = upgrade_of(headers).ok_or("the port switched to no protocol")?;
    match switched.as_bytes().eq_ignore_ascii_case(asked.as_bytes()) {
        true => Ok(()),
        false => Err("the port switched to another protocol than it was asked to".to_owned()),
    }
}

fn switch(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// The protocol of an `Upgrade` that `Connection` names.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| named).cloned()
}

fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        tokens(headers).filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok()).collect();
    // `Connection` cannot take away what decides where a message goes or ends.
    let kept = [header::HOST, header::CONTENT_LENGTH];
    for name in named.iter().filter(|name| !kept.contains(name)).chain(&OF_ONE_HOP) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(given: &[(&str, &str)]) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        for (name, value) in given {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
        }
        request
    }

    fn from() -> ForwardedFor {
        ForwardedFor { client: Some([192, 0, 2, 7].into()), scheme: "https" }
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_of_one_hop_stays_on_it_and_what_is_of_the_way_is_ours() {
        let mut asked = request(&[
            ("host", "3000-w.localhost:1"),
            ("connection", "keep-alive, x-secret, host"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "x"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-port", "1"),
            ("forwarded", "for=10.0.0.1"),
            ("accept", "a"),
            ("accept", "b"),
        ]);
        assert_eq!(for_port(&mut asked, &from()), None);
        let headers = asked.headers();
        let left = ["accept", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
        assert_eq!(names(headers), left);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-host"], "3000-w.localhost:1");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers.get_all("accept").iter().count(), 2);
    }

    #[test]
    fn an_upgrade_is_kept_where_connection_names_it() {
        let mut asked = request(&[("connection", "Upgrade, foo"), ("upgrade", "websocket")]);
        assert_eq!(for_port(&mut asked, &from()).expect("asked"), "websocket");
        assert_eq!(asked.headers()["connection"], "upgrade");
        assert_eq!(asked.headers()["upgrade"], "websocket");
        let mut not = request(&[("upgrade", "h2c")]);
        assert_eq!(for_port(&mut not, &from()), None);
        assert!(!not.headers().contains_key("upgrade"));
    }

    #[test]
    fn a_port_switches_only_to_what_it_was_asked_to() {
        let asked = HeaderValue::from_static("websocket");
        let answer = |given: &[(&str, &str)]| switched_to(request(given).headers(), &asked);
        assert_eq!(answer(&[("connection", "Upgrade"), ("upgrade", "WebSocket")]), Ok(()));
        assert!(answer(&[("connection", "Upgrade"), ("upgrade", "h2c")]).is_err());
        assert!(answer(&[("upgrade", "websocket")]).is_err());
    }

    #[test]
    fn an_absolute_target_becomes_a_path_and_its_host() {
        let mut asked = request(&[("host", "other")]);
        *asked.uri_mut() = "http://3000-w.localhost:1/a?b=c".parse().expect("a target");
        for_port(&mut asked, &from());
        assert_eq!(
            (asked.uri().to_string().as_str(), &asked.headers()["host"]),
            ("/a?b=c", &HeaderValue::from_static("3000-w.localhost:1"))
        );
    }
}
