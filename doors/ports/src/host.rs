//! Names of ports in the `Host` header, `PORT-NAME.DOMAIN`, with or without a port of the listener, and URLs of
//! them.

use async_trait::async_trait;
use axum::http::{HeaderMap, Uri, header, uri::Authority};
use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{ToolError, WorkspaceId};
use hivekeep_ports::{PortUrl, PortUrlRequest, PortUrls};

use super::{
    cookies::{LinkKey, PortLink},
    public::PublicPorts,
};

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;
/// Longest label of a name in DNS.
const MAX_LABEL: usize = 63;

/// A port of a workspace, by the first label of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortHost {
    pub(super) port: u16,
    /// Name or id of the workspace, as it stands in the label.
    pub(super) name: String,
    /// The whole authority, in lower case.
    pub(super) authority: String,
}

/// The reason why a host names no port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostRefusal {
    /// The host is not below the domain, not given once, or the target names another.
    Foreign,
    /// The host is below the domain, and no `PORT-NAME`.
    NoPort,
}

impl PortHost {
    /// Reads the host of a request.
    ///
    /// # Errors
    /// See [`HostRefusal`].
    pub(super) fn of(uri: &Uri, headers: &HeaderMap, domain: &str) -> Result<Self, HostRefusal> {
        let mut given = headers.get_all(header::HOST).iter();
        let (first, second) = (given.next(), given.next());
        let host = first.filter(|_| second.is_none()).and_then(|host| host.to_str().ok());
        let authority = host.ok_or(HostRefusal::Foreign)?.to_ascii_lowercase();
        // A target in absolute form names its host itself; both have to be the same.
        let target = uri.authority().map(Authority::as_str);
        if target.is_some_and(|target| !target.eq_ignore_ascii_case(&authority)) {
            return Err(HostRefusal::Foreign);
        }
        let name = match authority.split_once(':') {
            None => authority.as_str(),
            Some((name, port)) if port.parse::<u16>().is_ok() => name,
            Some(_) => return Err(HostRefusal::Foreign),
        };
        let below = name.strip_suffix(domain).and_then(|below| below.strip_suffix('.'));
        let label = below.ok_or(HostRefusal::Foreign)?;
        let (port, name) = label.split_once('-').ok_or(HostRefusal::NoPort)?;
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match port.parse() {
            Ok(port @ 1..) if digits && !name.is_empty() && name.bytes().all(plain) => {
                Ok(Self { port, name: name.to_owned(), authority })
            }
            _ => Err(HostRefusal::NoPort),
        }
    }

    /// The id that the name may be, without its prefix as a label of DNS has it.
    pub(super) fn as_id(&self) -> Option<String> {
        let hex = self.name.len() == ID_DIGITS && self.name.bytes().all(|b| b.is_ascii_hexdigit());
        hex.then(|| format!("ws_{}", self.name))
    }
}

/// Label of a port: by the workspace's name, or by its id's digits where that would be too long.
pub(super) fn label(port: &str, name: &str, id_digits: &str) -> String {
    match port.len() + 1 + name.len() <= MAX_LABEL {
        true => format!("{port}-{name}"),
        false => format!("{port}-{id_digits}"),
    }
}

/// Name of a signed link's parameter.
pub(super) const TOKEN_PARAMETER: &str = "hivekeep_token";

/// Makes and recognises URLs.
pub(super) struct Urls {
    pub(super) scheme: &'static str,
    pub(super) domain: String,
    /// `:PORT`, or nothing where that is the scheme's own.
    port: String,
    pub(super) key: LinkKey,
    pub(super) public: PublicPorts,
}

impl Urls {
    pub(super) fn new(
        scheme: &'static str,
        domain: &str,
        port: u16,
        key: LinkKey,
        public: PublicPorts,
    ) -> Self {
        let port = match (scheme, port) {
            ("http", 80) | ("https", 443) => String::new(),
            _ => format!(":{port}"),
        };
        Self { scheme, domain: domain.to_owned(), port, key, public }
    }

    /// URL for a label's parts.
    pub(super) fn of(&self, name: &str, port: &str) -> String {
        format!("{}://{port}-{name}.{}{}/", self.scheme, self.domain, self.port)
    }

    fn of_workspace(&self, workspace: WorkspaceId, name: &str, port: u16) -> String {
        let digits = workspace.uuid().simple().to_string();
        let label = label(&port.to_string(), name, &digits);
        format!("{}://{label}.{}{}/", self.scheme, self.domain, self.port)
    }
}

#[async_trait]
impl PortUrls for Urls {
    async fn url(
        &self,
        workspace: WorkspaceId,
        name: &str,
        port: u16,
        request: PortUrlRequest,
    ) -> Result<PortUrl, ToolError> {
        if let Some(public) = request.public {
            self.public.set(workspace, port, public).await?;
        }
        let url = self.of_workspace(workspace, name, port);
        let public = self.public.has(workspace, port);
        let secs = i64::try_from(request.expires_secs).unwrap_or(i64::MAX);
        let far = || ToolError::invalid("`expires_secs` is beyond what a date can say");
        let expires_at =
            TimeDelta::try_seconds(secs).and_then(|it| Utc::now().checked_add_signed(it));
        let expires_at = expires_at.ok_or_else(far)?;
        let link = (!public).then(|| {
            let token = self.key.sign(PortLink::Link, workspace, port, expires_at);
            (format!("{url}?{TOKEN_PARAMETER}={token}"), expires_at)
        });
        Ok(PortUrl { url, public, link })
    }

    fn public(&self, workspace: WorkspaceId, name: &str) -> Vec<(u16, String)> {
        let ports = self.public.of(workspace).into_iter();
        ports.map(|port| (port, self.of_workspace(workspace, name, port))).collect()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(target: &str, hosts: &[&str]) -> Result<(u16, String), HostRefusal> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, HeaderValue::from_str(host).expect("a value"));
        }
        let uri = target.parse().expect("a target");
        PortHost::of(&uri, &headers, "localhost").map(|host| (host.port, host.name))
    }

    #[test]
    fn a_host_is_a_port_of_a_workspace() {
        let web = |port| Ok((port, "my-web".to_owned()));
        assert_eq!(of("/", &["3000-my-web.localhost:7719"]), web(3000));
        assert_eq!(of("/", &["65535-MY-web.LOCALHOST"]), web(65_535));
        assert_eq!(of("http://80-my-web.localhost/a", &["80-my-web.localhost"]), web(80));
        let id = format!("8080-ws_{}.localhost", "0a".repeat(16));
        assert_eq!(of("/", &[&id]), Ok((8080, format!("ws_{}", "0a".repeat(16)))));
    }

    #[test]
    fn what_is_elsewhere_is_foreign_and_what_is_ours_and_no_port_is_unknown() {
        for host in [
            "localhost.evil.example",
            "3000-web.localhost.evil.example",
            "evil.example",
            "localhost",
            "xlocalhost",
            "127.0.0.1:7719",
            "[::1]:7719",
            "3000-web.localhost:x",
            "3000-web.localhost:99999",
            "",
        ] {
            assert_eq!(of("/", &[host]), Err(HostRefusal::Foreign), "{host}");
        }
        assert_eq!(of("/", &[]), Err(HostRefusal::Foreign));
        let twice = ["3000-web.localhost", "3000-web.localhost"];
        assert_eq!(of("/", &twice), Err(HostRefusal::Foreign));
        let other = of("http://3000-a.localhost/", &["3000-b.localhost"]);
        assert_eq!(other, Err(HostRefusal::Foreign));
        for host in [
            "web.localhost",
            "0-web.localhost",
            "65536-web.localhost",
            "+80-web.localhost",
            "80-.localhost",
            "-web.localhost",
            "80-a.b.localhost",
            "a.80-web.localhost",
        ] {
            assert_eq!(of("/", &[host]), Err(HostRefusal::NoPort), "{host}");
        }
    }

    #[test]
    fn a_label_is_never_too_long_for_dns() {
        let (long, id) = ("a".repeat(60), "0a".repeat(16));
        assert_eq!(label("3000", "web", &id), "3000-web");
        assert_eq!(label("3000", &long, &id), format!("3000-{id}"));
        let host = of("/", &[&format!("3000-{id}.localhost")]).expect("a port");
        let host = PortHost { port: host.0, name: host.1, authority: String::new() };
        assert_eq!(host.as_id(), Some(format!("ws_{id}")));
    }
}
