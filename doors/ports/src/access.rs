//! Access to private ports, and removal of what opens them from requests.
//!
//! | credential | where | opens |
//! |---|---|---|
//! | a bearer token | `Authorization`, `e2b-traffic-access-token` | its user's ports; an operator's: all |
//! | a signed link | the same, or `?hivekeep_token=` | its port, until it expires |
//! | a cookie | `Cookie`, for requests of the port's own pages | as the link that it was made of |

use axum::http::{HeaderMap, Method, Uri, header, request::Parts};
use chrono::Utc;
use hivekeep_door_server::{
    credentials,
    http::caller::{self, HttpCaller},
};
use hivekeep_kernel::WorkspaceId;
use hivekeep_ports::FoundWorkspace;

use super::{
    PortDoor,
    cookies::{self, PortLink},
    host::{PortHost, TOKEN_PARAMETER},
};

/// Header in which E2B's clients show their token.
const E2B_TOKEN: &str = "e2b-traffic-access-token";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request passes.
    Pass,
    /// The client repeats the request without its link, which becomes a cookie.
    Exchange { cookie: String, location: String },
    /// The request has nothing that opens the port.
    Unknown,
    /// The request's credential, link or cookie does not open this port.
    Refused(&'static str),
}

/// Judges a request, and takes out of it what is not for the guest.
pub(super) fn judge(
    door: &PortDoor,
    host: &PortHost,
    workspace: &FoundWorkspace,
    parts: &mut Parts,
) -> Verdict {
    let shown = Shown::take(parts);
    if door.urls.public.has(workspace.id, host.port) {
        return Verdict::Pass;
    }
    let opens = |token: &str| door.urls.key.verify(PortLink::Link, workspace.id, host.port, token);
    if let Some(token) = &shown.link {
        return match opens(token) {
            None => Verdict::Refused("the link has expired, or is for another port"),
            Some(_) if !shown.navigates => Verdict::Pass,
            Some(until) => {
                let cookie = door.urls.key.sign(PortLink::Cookie, workspace.id, host.port, until);
                let secs = (until - Utc::now()).num_seconds().max(1);
                // Written out in full: a path of `//` alone would name another host.
                let clean = parts.uri.path_and_query().map_or("/", |it| it.as_str());
                let location = format!("{}://{}{clean}", door.urls.scheme, host.authority);
                Verdict::Exchange {
                    cookie: cookies::set(&cookie, secs, door.urls.scheme),
                    location,
                }
            }
        };
    }
    let mut refused = None;
    for token in &shown.tokens {
        match may(door, workspace, token) {
            Some(Ok(())) => return Verdict::Pass,
            Some(Err(why)) => refused = Some(why),
            None if opens(token).is_some() => return Verdict::Pass,
            None => {}
        }
    }
    let known = |cookie: &String| is_ours(door, workspace.id, host.port, cookie);
    match (shown.cookies.iter().any(known), same_origin(&parts.headers, host)) {
        (true, true) => Verdict::Pass,
        (true, false) => Verdict::Refused("the request comes from a page of elsewhere"),
        (false, _) => refused.map_or(Verdict::Unknown, Verdict::Refused),
    }
}

fn is_ours(door: &PortDoor, workspace: WorkspaceId, port: u16, cookie: &str) -> bool {
    door.urls.key.verify(PortLink::Cookie, workspace, port, cookie).is_some()
}

/// Whether a credential opens the workspace's ports; `None` for what is no credential.
fn may(
    door: &PortDoor,
    workspace: &FoundWorkspace,
    token: &str,
) -> Option<Result<(), &'static str>> {
    let caller = HttpCaller::from(door.credentials.find(token.as_bytes())?);
    let own = workspace.owner.and_then(|session| (door.users)(session)) == Some(caller.user);
    Some(match () {
        () if !caller.may_change() => Err("a read-only credential opens no port"),
        () if own || caller.is_operator() => Ok(()),
        () => Err("the workspace is another user's"),
    })
}

/// Whether a request is of the port's own pages, or no page's: a cookie comes along with those of others.
fn same_origin(headers: &HeaderMap, host: &PortHost) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let origin = match text("origin") {
        None => true,
        Some(origin) => {
            origin.split_once("://").is_some_and(|(_, it)| it.eq_ignore_ascii_case(&host.authority))
        }
    };
    let elsewhere = matches!(text("sec-fetch-site"), Some("same-site" | "cross-site"));
    origin && (!elsewhere || text("sec-fetch-mode") == Some("navigate"))
}

/// Credentials, links and cookies of a request.
#[derive(Debug, Default)]
struct Shown {
    /// Link in the query.
    link: Option<String>,
    /// Credentials and links in headers.
    tokens: Vec<String>,
    cookies: Vec<String>,
    /// Whether a client would follow a redirection with the same request.
    navigates: bool,
}

impl Shown {
    /// Takes the credentials out of a request.
    fn take(parts: &mut Parts) -> Self {
        let mut shown = Self::default();
        let (link, uri) = split_link(&parts.uri);
        shown.link = link;
        parts.uri = uri;
        let safe = matches!(parts.method, Method::GET | Method::HEAD);
        shown.navigates = safe && !parts.headers.contains_key(header::UPGRADE);
        if let Some(value) = parts.headers.remove(E2B_TOKEN) {
            shown.tokens.extend(value.to_str().map(str::to_owned).ok());
        }
        let bearer = caller::bearer_of(&parts.headers).and_then(|it| std::str::from_utf8(it).ok());
        if let Some(token) = bearer.map(str::to_owned) {
            // A program in the guest may have tokens of its own, which are passed on.
            if credentials::looks_like_one(&token) || looks_like_a_link(&token) {
                parts.headers.remove(header::AUTHORIZATION);
            }
            shown.tokens.push(token);
        }
        shown.cookies = cookies::ours(&parts.headers);
        cookies::strip(&mut parts.headers);
        shown
    }
}

/// A time, a dot and a MAC in hexadecimal digits.
fn looks_like_a_link(token: &str) -> bool {
    token.split_once('.').is_some_and(|(time, mac)| {
        time.bytes().all(|byte| byte.is_ascii_digit())
            && mac.len() == 64
            && mac.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// The token of a target's query, and the target without it.
fn split_link(uri: &Uri) -> (Option<String>, Uri) {
    let Some(query) = uri.query() else { return (None, uri.clone()) };
    let is_token = |pair: &&str| pair.split('=').next() == Some(TOKEN_PARAMETER);
    let token = query.split('&').find(is_token);
    let token = token.map(|pair| pair.split_once('=').map_or("", |(_, value)| value).to_owned());
    if token.is_none() {
        return (None, uri.clone());
    }
    let rest: Vec<&str> = query.split('&').filter(|pair| !is_token(pair)).collect();
    let target = match rest.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), rest.join("&")),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = target.parse().ok();
    (token, Uri::from_parts(parts).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};

    use super::*;

    fn parts(target: &str, given: &[(&str, &str)]) -> Parts {
        let mut request = Request::new(());
        *request.uri_mut() = target.parse().expect("a target");
        for (name, value) in given {
            let name = header::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
        }
        request.into_parts().0
    }

    #[test]
    fn what_is_shown_is_taken_out_and_what_is_the_guests_stays() {
        let link = format!("123.{}", "0a".repeat(32));
        let mut sent = parts(
            "/a?x=1&hivekeep_token=T&y=%26",
            &[
                ("authorization", "Bearer hivekeep_abc"),
                ("e2b-traffic-access-token", &link),
                ("cookie", "theirs=1; hivekeep_port=c"),
            ],
        );
        let shown = Shown::take(&mut sent);
        assert_eq!(sent.uri.to_string(), "/a?x=1&y=%26");
        assert_eq!(shown.link.as_deref(), Some("T"));
        assert_eq!(shown.tokens, [link.clone(), "hivekeep_abc".to_owned()]);
        assert_eq!((shown.cookies, shown.navigates), (vec!["c".to_owned()], true));
        assert_eq!(sent.headers.len(), 1);
        assert_eq!(sent.headers["cookie"], "theirs=1");
        for (value, stays) in
            [("Bearer their-own", true), ("Basic YTpi", true), (&*format!("bearer {link}"), false)]
        {
            let mut sent = parts("/", &[("authorization", value)]);
            Shown::take(&mut sent);
            assert_eq!(sent.headers.contains_key("authorization"), stays, "{value}");
        }
    }

    #[test]
    fn only_a_plain_request_is_sent_again_without_its_link() {
        let mut upgrade = parts("/?hivekeep_token=T", &[("upgrade", "websocket")]);
        assert!(!Shown::take(&mut upgrade).navigates);
        assert_eq!(upgrade.uri.to_string(), "/");
        let mut post = parts("/?hivekeep_token=T", &[]);
        post.method = Method::POST;
        assert!(!Shown::take(&mut post).navigates);
    }

    #[test]
    fn a_cookie_counts_for_the_pages_of_its_own_origin() {
        let host =
            PortHost { port: 80, name: "a".to_owned(), authority: "80-a.localhost:1".to_owned() };
        let same = |given: &[(&str, &str)]| same_origin(&parts("/", given).headers, &host);
        assert!(same(&[]));
        assert!(same(&[("origin", "http://80-a.localhost:1"), ("sec-fetch-site", "same-origin")]));
        assert!(same(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
        for origin in ["http://80-b.localhost:1", "http://80-a.localhost", "null", ""] {
            assert!(!same(&[("origin", origin)]), "{origin}");
        }
        assert!(!same(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")]));
    }
}
