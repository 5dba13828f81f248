//! Options of URLs for ports of workspaces.

use hivekeep_runtime::ListenerOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// URLs for ports of workspaces, as `http://3000-NAME.localhost:7719`: a reverse proxy that routes by the
/// `Host` header, over the link and without a network. The tool `port_url` gives them. They are private
/// unless asked otherwise. A certificate is for `*.DOMAIN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PortUrlOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Domain whose names `PORT-NAME.DOMAIN` lead here. Names below `localhost` are this host's own without
    /// any name server; of another domain a wildcard record has to lead here.
    pub domain: String,
    /// The port that clients connect to, where that is not the one of `bind`, as behind another proxy.
    #[schemars(range(min = 1, max = 65_535))]
    pub public_port: Option<u16>,
    /// Requests at once, for as long as their answers last; those for one workspace are half of them at most. One
    /// more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: usize,
    /// Upgraded connections at once, such as WebSockets; those to one workspace are half of them at most. One more is
    /// answered 503. One over which nothing passes for an hour ends.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_upgrades: usize,
    /// How long a port may take to accept a connection.
    #[schemars(range(min = 1, max = 86_400))]
    pub dial_timeout_secs: u64,
    /// How long a port may take to begin its answer; the answer itself may last.
    #[schemars(range(min = 1, max = 86_400))]
    pub answer_timeout_secs: u64,
}

impl Default for PortUrlOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7719"),
            domain: "localhost".to_owned(),
            public_port: None,
            max_requests: 512,
            max_upgrades: 512,
            dial_timeout_secs: 15,
            answer_timeout_secs: 300,
        }
    }
}

impl PortUrlOptions {
    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.listener.problems();
        if !is_domain(&self.domain) {
            let why = format!("`{}` is not a valid domain in lower case", self.domain);
            wrong.push(("domain", why));
        }
        wrong
    }
}

/// Labels of letters, digits and hyphens, joined by dots.
fn is_domain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    text.len() <= 180 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_labels_in_lower_case() {
        for domain in ["", ".", "a..b", "a b", "a/b", "a:80", "localhost.", "*.Example"] {
            assert!(!is_domain(domain), "{domain}");
        }
        assert!(is_domain("ports.example.com"));
    }
}
