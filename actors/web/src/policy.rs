//! Egress policy: which URLs and addresses a session may reach through the host.

use std::net::IpAddr;

use hivekeep_kernel::{Layer, ToolError};
use ipnet::IpNet;
use url::{Host, Url};

use crate::{Options, address::is_global, codes};

/// Most bytes of a URL.
pub(crate) const MAX_URL_BYTES: usize = 2048;

/// Rules of the configuration, parsed.
#[derive(Debug, Default)]
pub(crate) struct EgressPolicy {
    /// Empty: every domain.
    allow_domains: Vec<String>,
    deny_domains: Vec<String>,
    /// Empty: every port.
    ports: Vec<u16>,
    /// Networks that may be reached although they are not global.
    networks: Vec<IpNet>,
    /// Names of hosts whose addresses may be of any kind.
    names: Vec<String>,
}

impl EgressPolicy {
    /// Parses the rules.
    ///
    /// # Errors
    /// Keys of the section with reasons.
    pub(crate) fn new(options: &Options) -> Result<Self, Vec<(&'static str, String)>> {
        let mut policy = Self { ports: options.ports.clone(), ..Self::default() };
        let mut wrong = Vec::new();
        for (key, domains, parsed) in [
            ("allow_domains", &options.allow_domains, &mut policy.allow_domains),
            ("deny_domains", &options.deny_domains, &mut policy.deny_domains),
        ] {
            for domain in domains {
                match host_name(domain) {
                    Some(name) => parsed.push(name),
                    None => wrong.push((key, format!("`{domain}` is not a valid domain"))),
                }
            }
        }
        for network in &options.allow_networks {
            let address = network.parse::<IpAddr>().map(IpNet::from);
            match (network.parse::<IpNet>().or(address), host_name(network)) {
                (Ok(net), _) => policy.networks.push(net),
                (Err(_), Some(name)) => policy.names.push(name),
                (Err(_), None) => wrong.push((
                    "allow_networks",
                    format!("`{network}` is not a valid network, address or name"),
                )),
            }
        }
        if wrong.is_empty() { Ok(policy) } else { Err(wrong) }
    }

    /// Judges a URL before it is requested. An address that a name stands for is judged when it is
    /// resolved ([`Self::allows`]).
    ///
    /// # Errors
    /// `web_url_refused`, `web_target_denied`, `web_address_refused`.
    pub(crate) fn admit(&self, url: &Url) -> Result<(), ToolError> {
        let refused = |why: String| {
            Err(ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, why)
                .next("give an http or https URL without user and password"))
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refused(format!("URLs of the scheme `{}` are not fetched", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("the URL carries a user or a password".to_owned());
        }
        if url.as_str().len() > MAX_URL_BYTES {
            return refused(format!("the URL is longer than {MAX_URL_BYTES} bytes"));
        }
        let Some(host) = url.host() else {
            return refused("the URL names no host".to_owned());
        };
        self.admit_target(&canonical(&host), url.port_or_known_default().unwrap_or_default())?;
        let literal = match host {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(_) => return Ok(()),
        };
        if self.allows("", literal) { Ok(()) } else { Err(address_refused(&literal.to_string())) }
    }

    fn admit_target(&self, host: &str, port: u16) -> Result<(), ToolError> {
        let below = |domains: &[String]| domains.iter().any(|domain| is_below(host, domain));
        let listed = self.allow_domains.is_empty() || below(&self.allow_domains);
        let port_fits = self.ports.is_empty() || self.ports.contains(&port);
        if listed && port_fits && !below(&self.deny_domains) {
            return Ok(());
        }
        let message = if port_fits {
            format!("the operator's rules do not let sessions fetch from `{host}`")
        } else {
            format!("port {port} is not one of those that may be fetched from: {:?}", self.ports)
        };
        Err(ToolError::new(Layer::Policy, codes::WEB_TARGET_DENIED, message)
            .next("use another source, or ask the operator"))
    }

    /// True if a connection may be made to an address that `name` stands for.
    pub(crate) fn allows(&self, name: &str, address: IpAddr) -> bool {
        let name = name.trim_end_matches('.');
        is_global(address)
            || self.networks.iter().any(|net| net.contains(&address))
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The refusal of a host by its address.
pub(crate) fn address_refused(host: &str) -> ToolError {
    let message = format!("`{host}` is not an address of the public internet, or has none");
    ToolError::new(Layer::Policy, codes::WEB_ADDRESS_REFUSED, message)
        .next("fetch a public address, or ask the operator for `web.allow_networks`")
}

/// Name as URLs have it: in lower case and ASCII, without a dot at its end.
fn host_name(text: &str) -> Option<String> {
    Host::parse(text).ok().map(|host| canonical(&host)).filter(|name| !name.is_empty())
}

fn canonical<S: AsRef<str>>(host: &Host<S>) -> String {
    let text = match host {
        Host::Domain(name) => name.as_ref().to_ascii_lowercase(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    text.trim_end_matches('.').to_owned()
}

/// True for the domain itself and each name below it.
fn is_below(host: &str, domain: &str) -> bool {
    let rest = host.strip_suffix(domain);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
