//! Allow-lists of the `Host` and `Origin` headers, against DNS rebinding and foreign pages.
//!
//! A page of a browser that points a name of its own at this host sends that name as `Host`, and a page
//! of elsewhere sends its own `Origin`: neither can be forged from within a page.

use axum::http::{HeaderMap, Request, Uri, header, uri::Authority};

use super::caller::PeerUid;

/// The reason why a request is not for us, or not from whom we serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// No `Host`, two of them, or one that is not on the list.
    Host,
    /// An `Origin` that is not on the list.
    Origin,
}

impl Foreign {
    /// Reason, for whoever sent the request.
    pub fn why(self) -> &'static str {
        match self {
            Self::Host => {
                "this `Host` is not served; the operator's `allowed_hosts` names those that are"
            }
            Self::Origin => {
                "this `Origin` is not served; the operator's `allowed_origins` names those that are"
            }
        }
    }
}

/// The hosts and origins that a door serves.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    hosts: Vec<(String, Option<String>)>,
    origins: Vec<String>,
}

impl AllowedHosts {
    /// Lists as the configuration has them.
    pub fn new(hosts: &[String], origins: &[String]) -> Self {
        let hosts = hosts.iter().map(|host| split(host)).collect();
        let origins = origins.iter().map(|origin| origin.to_ascii_lowercase()).collect();
        Self { hosts, origins }
    }

    /// Checks a request, unless it came over the Unix socket, which no page reaches.
    pub fn check_request<B>(&self, request: &Request<B>) -> Result<(), Foreign> {
        match request.extensions().get::<PeerUid>() {
            Some(_) => Ok(()),
            None => self.check(request.uri(), request.headers()),
        }
    }

    /// Checks both headers of a request.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
        let named = one(headers, &header::HOST);
        // A target in absolute form names its host itself; both have to be allowed.
        let target = uri.authority().map(Authority::as_str);
        let hosts = [named.flatten(), target];
        let all = hosts.into_iter().flatten().all(|host| self.has_host(host));
        if named.is_none() || hosts == [None, None] || !all {
            return Err(Foreign::Host);
        }
        match one(headers, &header::ORIGIN) {
            Some(None) => Ok(()),
            Some(Some(origin)) if self.has_origin(origin) => Ok(()),
            _ => Err(Foreign::Origin),
        }
    }

    fn has_host(&self, host: &str) -> bool {
        let (name, port) = split(host);
        let same = |(known, at): &(String, Option<String>)| {
            *known == name && (at.is_none() || *at == port)
        };
        !name.is_empty() && self.hosts.iter().any(same)
    }

    /// An origin is on the list as it is, or by a port of `*`.
    fn has_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        self.origins.iter().any(|known| match known.strip_suffix(":*") {
            None => *known == origin,
            Some(base) => match origin.strip_prefix(base) {
                Some("") => true,
                Some(rest) => rest.strip_prefix(':').is_some_and(is_port),
                None => false,
            },
        })
    }
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `None` when a header is there twice or is no text.
fn one<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> Option<Option<&'h str>> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        _ => None,
    }
}

/// Name and port of an authority, in lower case; brackets of IPv6 addresses are left out. Whoever
/// names a user, or writes anything else, has no name.
fn split(authority: &str) -> (String, Option<String>) {
    let authority = authority.trim().to_ascii_lowercase();
    let nothing = (String::new(), None);
    if let Some(rest) = authority.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((address, "")) => (address.to_owned(), None),
            Some((address, port)) => match port.strip_prefix(':') {
                Some(port) if is_port(port) => (address.to_owned(), Some(port.to_owned())),
                _ => nothing,
            },
            None => nothing,
        };
    }
    match authority.split_once(':') {
        None => (authority, None),
        Some((name, port)) if is_port(port) => (name.to_owned(), Some(port.to_owned())),
        // An IPv6 address of an allow-list, without brackets.
        Some(_) if authority.parse::<std::net::Ipv6Addr>().is_ok() => (authority, None),
        Some(_) => nothing,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn allowed() -> AllowedHosts {
        let hosts = ["localhost", "::1", "api.example:7718"].map(str::to_owned);
        let origins = ["http://friend.example:*", "https://one.example"].map(str::to_owned);
        AllowedHosts::new(&hosts, &origins)
    }

    fn check(uri: &str, given: &[(header::HeaderName, &str)]) -> Result<(), Foreign> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        allowed().check(&uri.parse().expect("a target"), &headers)
    }

    #[test]
    fn a_host_is_on_the_list_or_foreign() {
        for host in ["localhost", "LOCALHOST:1", "[::1]:7718", "[::1]", "api.example:7718"] {
            assert_eq!(check("/api", &[(header::HOST, host)]), Ok(()), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "api.example",
            "api.example:1",
            "localhost@evil.example",
            "me@localhost",
            "localhost:x",
            "[::1",
            "[::1]x",
            "127.0.0.1",
        ] {
            assert_eq!(check("/api", &[(header::HOST, host)]), Err(Foreign::Host), "{host}");
        }
        assert_eq!(check("/api", &[]), Err(Foreign::Host));
        let twice = [(header::HOST, "localhost"), (header::HOST, "evil.example")];
        assert_eq!(check("/api", &twice), Err(Foreign::Host));
        let ours = [(header::HOST, "localhost")];
        assert_eq!(check("http://evil.example/api", &ours), Err(Foreign::Host));
        assert_eq!(check("http://localhost/api", &ours), Ok(()));
    }

    #[test]
    fn an_origin_is_none_or_on_the_list() {
        let with = |origin| check("/", &[(header::HOST, "localhost"), (header::ORIGIN, origin)]);
        for good in ["http://friend.example", "http://friend.example:99", "https://ONE.example"] {
            assert_eq!(with(good), Ok(()), "{good}");
        }
        for bad in [
            "null",
            "http://evil.example",
            "https://friend.example",
            "http://friend.example.evil",
            "http://friend.example:",
            "http://friend.example:1x",
            "https://one.example:8443",
            "http://localhost",
        ] {
            assert_eq!(with(bad), Err(Foreign::Origin), "{bad}");
        }
    }
}
