//! Options of the door for E2B's SDKs.

use std::collections::BTreeMap;

use hivekeep_machine::Isolation;
use hivekeep_runtime::ListenerOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The door for programs that are written against E2B's SDKs: their sandboxes are workspaces. `E2B_API_URL` and
/// `E2B_SANDBOX_URL` of such a program name this address, and `E2B_API_KEY` is a credential of
/// `hivekeep credential create` whose beginning `hivekeep_` is `e2b_`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct E2bOptions {
    /// Address and TLS.
    #[serde(flatten)]
    pub listener: ListenerOptions,
    /// Domain that clients are told, below which each sandbox has its hosts; with a colon and the port that they
    /// reach, unless that is the usual one. Unset: `localhost` and the port of the door.
    pub domain: Option<String>,
    /// Images that templates stand for, by their names. A template that is not here is an image of its own name.
    pub templates: BTreeMap<String, String>,
    /// How sandboxes are isolated. Unset: as workspaces are.
    pub isolation: Option<Isolation>,
    /// User of commands and files for which a client names none.
    pub user: String,
    /// Whether the ports of a sandbox are reached without a token where a client does not say: by whoever reaches
    /// this address and knows the sandbox's name, which has 80 random bits. Ports that run code never are.
    pub public_ports: bool,
    /// Lifetime of a sandbox for which a client names none. At most `max_lifetime_secs`.
    #[schemars(range(min = 1))]
    pub lifetime_secs: u64,
    /// The longest lifetime that a client may ask for.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub max_lifetime_secs: u64,
    /// The largest body of a call.
    #[schemars(range(min = 1, max = 1024))]
    pub max_body_mb: usize,
    /// The largest file that is uploaded.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_file_mb: u64,
    /// Requests at once, streams included, of which a credential has half at most, and so have all that show none
    /// together. One more is answered 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_requests: usize,
}

impl Default for E2bOptions {
    fn default() -> Self {
        Self {
            listener: ListenerOptions::at("127.0.0.1:7720"),
            domain: None,
            templates: BTreeMap::new(),
            isolation: None,
            user: "user".to_owned(),
            public_ports: false,
            lifetime_secs: 300,
            max_lifetime_secs: 86_400,
            max_body_mb: 16,
            max_file_mb: 1024,
            max_requests: 1024,
        }
    }
}

impl E2bOptions {
    /// Settings that cannot work, as key and reason.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let mut wrong = self.listener.problems();
        if self.user.is_empty() || !self.user.bytes().all(is_of_user) {
            wrong.push(("user", format!("`{}` is not a valid name of a user", self.user)));
        }
        if self.lifetime_secs > self.max_lifetime_secs {
            wrong.push(("lifetime_secs", format!("must be at most {}", self.max_lifetime_secs)));
        }
        wrong
    }
}

fn is_of_user(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}
