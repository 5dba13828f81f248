//! Egress filter: which URLs and addresses a session may reach through the host.
//!
//! Used twice for each connection: for the URL or the target by name, and, when the name is resolved,
//! for each address that it stands for, so that a name cannot lead elsewhere a moment later. An address of
//! this host, public ones included, leads to the host's own services.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Mutex,
    time::{Duration, Instant},
};

use hivekeep_kernel::lock;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::{ifaddrs::getifaddrs, sys::socket::SockaddrStorage};
use url::{Host, Url};

/// Most bytes of a URL.
pub const MAX_URL_BYTES: usize = 2048;

/// Refusal of a URL or a target, with the reason for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRefusal {
    /// The URL is of no kind that is requested.
    #[error("{0}")]
    Url(String),
    /// The operator's lists of domains or ports leave the target out.
    #[error("{0}")]
    Target(String),
    /// The host has no address that may be connected to.
    #[error("`{0}` has no address of the public internet, or only this host's own")]
    Address(String),
}

/// Lists of a section of the configuration, as they are written there.
#[derive(Debug, Clone, Copy, Default)]
pub struct EgressLists<'a> {
    /// Domains that may be reached, each with all names below it. Empty: every domain.
    pub allow_domains: &'a [String],
    /// Domains that may not; they win.
    pub deny_domains: &'a [String],
    /// Networks, addresses and names that may be reached although they are not global.
    pub allow_networks: &'a [String],
    /// Ports that may be reached. Empty: every port.
    pub ports: &'a [u16],
}

/// Rules of the configuration, parsed.
#[derive(Debug, Default)]
pub struct EgressRules {
    allow_domains: Vec<String>,
    deny_domains: Vec<String>,
    ports: Vec<u16>,
    networks: Vec<IpNet>,
    /// Names of hosts whose addresses may be of any kind.
    names: Vec<String>,
    /// Not of the public internet, whatever they are.
    own: OwnAddresses,
}

impl EgressRules {
    /// Parses the lists.
    ///
    /// # Errors
    /// Keys of the section with reasons.
    pub fn new(lists: EgressLists<'_>) -> Result<Self, Vec<(&'static str, String)>> {
        let mut rules = Self { ports: lists.ports.to_vec(), ..Self::default() };
        let mut wrong = Vec::new();
        for (key, domains, parsed) in [
            ("allow_domains", lists.allow_domains, &mut rules.allow_domains),
            ("deny_domains", lists.deny_domains, &mut rules.deny_domains),
        ] {
            for domain in domains {
                match host_name(domain) {
                    Some(name) => parsed.push(name),
                    None => wrong.push((key, format!("`{domain}` is not a valid domain"))),
                }
            }
        }
        for network in lists.allow_networks {
            let address = network.parse::<IpAddr>().map(IpNet::from);
            match (network.parse::<IpNet>().or(address), host_name(network)) {
                (Ok(net), _) => rules.networks.push(net),
                (Err(_), Some(name)) => rules.names.push(name),
                (Err(_), None) => wrong.push((
                    "allow_networks",
                    format!("`{network}` is not a valid network, address or name"),
                )),
            }
        }
        if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
    }

    /// Judges a URL before it is requested. An address that a name stands for is judged when it is
    /// resolved ([`Self::allows`]).
    ///
    /// # Errors
    /// The refusal.
    pub fn admit(&self, url: &Url) -> Result<(), EgressRefusal> {
        let refused = |why: String| Err(EgressRefusal::Url(why));
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
        self.admit_host(&host, url.port_or_known_default().unwrap_or_default())
    }

    /// Judges a target of a connection by its name or literal address, and its port.
    ///
    /// # Errors
    /// The refusal.
    pub fn admit_target(&self, host: &str, port: u16) -> Result<(), EgressRefusal> {
        let address = host.parse().map(|address| match address {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        });
        let parsed = address.or_else(|_| Host::parse(host));
        let unnamed = |_| EgressRefusal::Url(format!("`{host:.80}` is not a valid host"));
        self.admit_host(&parsed.map_err(unnamed)?, port)
    }

    fn admit_host<S: AsRef<str>>(&self, host: &Host<S>, port: u16) -> Result<(), EgressRefusal> {
        let name = canonical(host);
        let below = |domains: &[String]| domains.iter().any(|domain| is_below(&name, domain));
        let listed = self.allow_domains.is_empty() || below(&self.allow_domains);
        let port_fits = self.ports.is_empty() || self.ports.contains(&port);
        if !port_fits {
            let why =
                format!("port {port} is not one of those that may be reached: {:?}", self.ports);
            return Err(EgressRefusal::Target(why));
        }
        if !listed || below(&self.deny_domains) {
            let why = format!("the operator's rules do not let sessions reach `{name}`");
            return Err(EgressRefusal::Target(why));
        }
        let literal = match host {
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address),
            Host::Domain(_) => return Ok(()),
        };
        match self.allows("", literal) {
            true => Ok(()),
            false => Err(EgressRefusal::Address(literal.to_string())),
        }
    }

    /// True if a connection may be made to an address that `name` stands for.
    pub fn allows(&self, name: &str, address: IpAddr) -> bool {
        let name = name.trim_end_matches('.');
        (is_global(address) && !self.own.has(address))
            || self.networks.iter().any(|net| net.contains(&address))
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
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

const fn v4(a: u8, b: u8, c: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), length)
}

const fn v6(a: u16, b: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// Blocks of IANA's special-purpose registry for IPv4 that are not globally reachable, the relays of
/// 6to4, multicast and what is reserved.
const NOT_GLOBAL_V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4),
    v4(240, 0, 0, 4),
];

/// The only block of IPv6 from which global unicast is given out. Mapped and compatible IPv4, NAT64,
/// unique local, link-local and multicast lie outside of it.
const UNICAST_V6: Ipv6Net = v6(0x2000, 0, 3);

/// Blocks within [`UNICAST_V6`] that are not for hosts, or that carry an IPv4 address: protocol
/// assignments with Teredo, documentation, 6to4.
const NOT_GLOBAL_V6: [Ipv6Net; 4] =
    [v6(0x2001, 0, 23), v6(0x2001, 0xdb8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];

/// True for an address of a host in the internet. Some addresses of protocol assignments that are
/// reachable count as not global.
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_GLOBAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            UNICAST_V6.contains(&address) && !NOT_GLOBAL_V6.iter().any(|net| net.contains(&address))
        }
    }
}

/// Time for which they are believed: interfaces come and go.
const FRESH: Duration = Duration::from_secs(3);

/// Addresses of the host's interfaces, read again when they are no longer fresh.
#[derive(Debug)]
struct OwnAddresses {
    read: fn() -> io::Result<Vec<IpAddr>>,
    last: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl Default for OwnAddresses {
    fn default() -> Self {
        Self::by(of_interfaces)
    }
}

impl OwnAddresses {
    /// Those that are read in this way.
    fn by(read: fn() -> io::Result<Vec<IpAddr>>) -> Self {
        Self { read, last: Mutex::default() }
    }

    /// Whether it is one of them. While they cannot be read, each may be.
    fn has(&self, address: IpAddr) -> bool {
        let mut last = lock(&self.last);
        if last.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            match (self.read)() {
                Ok(found) => *last = Some((Instant::now(), found)),
                Err(error) => {
                    tracing::warn!(%error, "the host's addresses cannot be read");
                    *last = None;
                }
            }
        }
        last.as_ref().is_none_or(|(_, own)| own.contains(&address.to_canonical()))
    }
}

fn of_interfaces() -> io::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    Ok(addresses.filter_map(ip).collect())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn targets_are_judged_by_name_port_and_literal_address() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let (allow, deny) = (list(&["example.org"]), list(&["bad.example.org"]));
        let lists = EgressLists {
            allow_domains: &allow,
            deny_domains: &deny,
            ports: &[443],
            ..EgressLists::default()
        };
        let rules = EgressRules::new(lists).expect("valid");
        assert_eq!(rules.admit_target("A.Example.Org.", 443), Ok(()));
        for (host, port) in [("bad.example.org", 443), ("example.org", 80), ("badexample.org", 443)]
        {
            let refused = rules.admit_target(host, port).expect_err(host);
            assert!(matches!(refused, EgressRefusal::Target(_)), "{host}: {refused}");
        }
        let open = EgressRules::default();
        for literal in ["127.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1", "[::1]", "0x7f.1"]
        {
            let refused = open.admit_target(literal, 80).expect_err(literal);
            assert!(matches!(refused, EgressRefusal::Address(_)), "{literal}: {refused}");
        }
        assert!(matches!(open.admit_target("a b", 80), Err(EgressRefusal::Url(_))));
    }

    #[test]
    fn a_public_address_of_this_host_is_refused_unless_it_is_listed() {
        let read =
            || Ok(vec![IpAddr::from([45, 33, 32, 156]), "2600:3c01::1".parse().expect("one")]);
        let own = ["45.33.32.156".to_owned()];
        let listed = EgressLists { allow_networks: &own, ..EgressLists::default() };
        let mut rules = [EgressRules::default(), EgressRules::new(listed).expect("valid")];
        for rules in &mut rules {
            rules.own = OwnAddresses::by(read);
        }
        let [open, listed] = rules;
        for own in ["45.33.32.156", "2600:3c01::1"] {
            let refused = open.admit_target(own, 80).expect_err(own);
            assert!(matches!(refused, EgressRefusal::Address(_)), "{own}: {refused}");
            assert!(!open.allows("example.org", own.parse().expect("one")), "by a name: {own}");
        }
        assert_eq!(open.admit_target("45.33.32.157", 80), Ok(()));
        assert_eq!(listed.admit_target("45.33.32.156", 80), Ok(()));
    }

    #[test]
    fn the_loopback_interface_is_the_hosts() {
        assert!(OwnAddresses::default().has(Ipv4Addr::LOCALHOST.into()));
        assert!(!OwnAddresses::default().has(Ipv4Addr::new(192, 0, 2, 1).into()));
        let unread = OwnAddresses::by(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(unread.has(Ipv4Addr::new(192, 0, 2, 1).into()), "it may be");
    }
}
