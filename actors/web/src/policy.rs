//! Egress policy: which URLs and addresses a session may reach through the host.

use std::net::IpAddr;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::egress::{EgressLists, EgressRefusal, EgressRules};
use url::Url;

use crate::{Options, codes};

pub(crate) use hivekeep_runtime::egress::MAX_URL_BYTES;

/// The shared filter with the codes of this family.
#[derive(Debug, Default)]
pub(crate) struct EgressPolicy(EgressRules);

impl EgressPolicy {
    /// Parses the rules.
    ///
    /// # Errors
    /// Keys of the section with reasons.
    pub(crate) fn new(options: &Options) -> Result<Self, Vec<(&'static str, String)>> {
        let lists = EgressLists {
            allow_domains: &options.allow_domains,
            deny_domains: &options.deny_domains,
            allow_networks: &options.allow_networks,
            ports: &options.ports,
        };
        EgressRules::new(lists).map(Self)
    }

    /// Judges a URL before it is requested. An address that a name stands for is judged when it is
    /// resolved ([`Self::allows`]).
    ///
    /// # Errors
    /// `web_url_refused`, `web_target_denied`, `web_address_refused`.
    pub(crate) fn admit(&self, url: &Url) -> Result<(), ToolError> {
        self.0.admit(url).map_err(|refusal| match refusal {
            EgressRefusal::Url(why) => ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, why)
                .next("give an http or https URL without user and password"),
            EgressRefusal::Target(why) => {
                ToolError::new(Layer::Policy, codes::WEB_TARGET_DENIED, why)
                    .next("use another source, or ask the operator")
            }
            EgressRefusal::Address(host) => address_refused(&host),
        })
    }

    /// True if a connection may be made to an address that `name` stands for.
    pub(crate) fn allows(&self, name: &str, address: IpAddr) -> bool {
        self.0.allows(name, address)
    }
}

/// The refusal of a host by its address.
pub(crate) fn address_refused(host: &str) -> ToolError {
    let why = EgressRefusal::Address(host.to_owned()).to_string();
    ToolError::new(Layer::Policy, codes::WEB_ADDRESS_REFUSED, why)
        .next("fetch a public address, or ask the operator for `web.allow_networks`")
}
