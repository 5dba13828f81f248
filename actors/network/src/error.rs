//! Errors of the network, and what callers are told when something is refused or fails.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError, WorkspaceId};

use crate::codes;
use crate::plan::member::NetworkProperty;
use crate::plan::{MAX_FORWARDS, PlanError, Protocol};

/// Each variant asks something else of the caller.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan does not admit it.
    #[error(transparent)]
    Refused(#[from] PlanError),
    /// The process lacks a right. User-mode networking needs none.
    #[error("not permitted to {action}: it takes {needs}")]
    NotPermitted {
        /// The attempted action.
        action: String,
        /// The capability, such as CAP_NET_ADMIN.
        needs: &'static str,
    },
    /// No nft: install nftables.
    #[error("{} is not there: install nftables", path.display())]
    NftMissing {
        /// Configured path.
        path: PathBuf,
    },
    /// nft, or the kernel through it, refused a transaction; nothing of it holds.
    #[error("nft refused: {stderr}")]
    NftRefused {
        /// At most 4 KiB.
        stderr: String,
    },
    /// nft ended in a way it should not, or answered what is no JSON.
    #[error("nft: {0}")]
    NftBroken(String),
    /// nft did not end in time and was killed; whether its transaction holds is not known.
    /// Ensure again.
    #[error("nft did not end within {} s", after.as_secs())]
    NftTimeout {
        /// The deadline.
        after: Duration,
    },
    /// The kernel cannot do what isolation needs.
    #[error("this kernel lacks {what}")]
    KernelLacks {
        /// Such as "the nftables family `bridge`".
        what: String,
    },
    /// An interface that has a name of the network is of another kind.
    #[error("the interface {name} exists and is not a {expected}")]
    ForeignInterface {
        /// The interface's name.
        name: String,
        /// The expected kind of interface.
        expected: &'static str,
    },
    /// The host has an address where guests would live: choose another subnet.
    #[error("{subnet} overlaps with {other}, which is an address of this host")]
    SubnetInUse {
        /// Planned subnet.
        subnet: crate::plan::Subnet,
        /// Address of another interface, with the length of its network.
        other: String,
    },
    /// A machine holds the tap already.
    #[error("{tap} is in use by another process")]
    TapBusy {
        /// The tap's name.
        tap: String,
    },
    /// The port, or the automatic one's whole range, is taken by another program.
    #[error("{protocol} {at} is taken by another program")]
    PortTaken {
        /// Protocol of the forward.
        protocol: Protocol,
        /// The host's end; port 0 if every automatic port is taken.
        at: SocketAddrV4,
    },
    /// The host has no such address.
    #[error("{0} is not an address of this host")]
    NotOurAddress(std::net::Ipv4Addr),
    /// Something that a bridge needs is not there.
    #[error("{what}")]
    Missing {
        /// For people.
        what: String,
    },
    /// The self-test saw this kernel let something through, or hold something back.
    #[error("the self-test found that {property:?} does not hold on this kernel: {seen}")]
    NotProven {
        /// Without which there is no bridge.
        property: NetworkProperty,
        /// The evidence.
        seen: String,
    },
    /// The self-test could not look, several times.
    #[error("it could not be checked whether {property:?} holds on this kernel: {why}")]
    NotChecked {
        /// Without which there is no bridge.
        property: NetworkProperty,
        /// The failure.
        why: String,
    },
    /// Another daemon in this network namespace uses the same names.
    #[error("another daemon has the tag `{0}`: set `network.tag` to another")]
    TagTaken(crate::plan::Tag),
    /// Another daemon in this network namespace has the subnet, or would take it.
    #[error("another daemon has the subnet {0}: set `network.subnet` to another")]
    SubnetTaken(crate::plan::Subnet),
    /// The workspace is not in the network.
    #[error("{0} has no place in the network")]
    NoMember(hivekeep_kernel::WorkspaceId),
    /// rtnetlink refused.
    #[error("{action}: {source}")]
    Netlink {
        /// The attempted action, with its object.
        action: String,
        /// The kernel's answer.
        source: Box<rtnetlink::Error>,
    },
    /// Everything else the system refuses.
    #[error("{action}: {source}")]
    Io {
        /// The attempted action, with its object.
        action: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl Error {
    /// True when the error says nothing about the abilities of this host: another attempt may
    /// succeed.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Io { .. }
                | Self::Netlink { .. }
                | Self::NftBroken(_)
                | Self::NftTimeout { .. }
                | Self::PortTaken { .. }
                | Self::TapBusy { .. }
        )
    }

    /// For `map_err`: error of an action that needs CAP_NET_ADMIN.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        Self::io_with("CAP_NET_ADMIN", action)
    }

    /// For `map_err`: error of an action that needs another capability.
    pub(crate) fn io_with(
        needs: &'static str,
        action: impl Into<String>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let action = action.into();
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { action, needs },
            _ => Self::Io { action, source },
        }
    }

    /// For `map_err`.
    pub(crate) fn netlink(action: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let action = action.into();
        move |source| match code(&source) {
            Some(libc::EPERM | libc::EACCES) => {
                Self::NotPermitted { action, needs: "CAP_NET_ADMIN" }
            }
            _ => Self::Netlink { action, source: Box::new(source) },
        }
    }
}

/// The errno of the kernel's answer.
pub(crate) fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| -code.get()),
        _ => None,
    }
}

/// Error for a request that the plan does not admit.
impl From<PlanError> for ToolError {
    fn from(refused: PlanError) -> Self {
        let message = refused.to_string();
        match refused {
            PlanError::PortTaken { by, .. } => {
                Self::new(Layer::Machine, codes::PORT_TAKEN, message)
                    .next("choose another port, or none to be given a free one")
                    .detail("by", by.to_string())
            }
            PlanError::TooMany { limit: MAX_FORWARDS, what: "port forwards" } => {
                Self::new(Layer::Machine, codes::TOO_MANY_FORWARDS, message)
                    .detail("limit", MAX_FORWARDS)
            }
            PlanError::SubnetFull(_) => Self::new(Layer::Machine, codes::SUBNET_FULL, message)
                .next("destroy a workspace, or set `network.subnet` to a larger network"),
            PlanError::TooMany { .. } | PlanError::BadForward(..) => Self::invalid(message),
            _ => Self::internal(message),
        }
    }
}

/// Error for a request that the host does not carry out.
impl From<&Error> for ToolError {
    fn from(error: &Error) -> Self {
        let message = error.to_string();
        match error {
            Error::PortTaken { .. } => Self::new(Layer::Machine, codes::PORT_TAKEN, message)
                .next("choose another port, or none to be given a free one")
                .detail("by", "another program"),
            Error::NotOurAddress(_) => {
                Self::new(Layer::Machine, codes::ADDRESS_UNAVAILABLE, message)
                    .next("set `network.forward_host_ip` to an address of this host")
            }
            Error::TapBusy { .. } => Self::new(Layer::Machine, codes::CABLE_TAKEN, message)
                .next("the machine before still holds it; wait for its end")
                .retryable(),
            _ => Self::new(Layer::Machine, codes::NETWORK_FAILED, message)
                .next("`hivekeep ps` says whether the network is degraded; the daemon tries again")
                .retryable(),
        }
    }
}

pub(crate) fn off(reason: &str) -> ToolError {
    let message = format!("workspaces have no network: {reason}");
    ToolError::new(Layer::Machine, codes::NETWORK_UNAVAILABLE, message)
        .next("`network.mode` in the configuration says what is wanted; `hivekeep check` looks")
}

pub(crate) fn policy_unavailable(why: String) -> ToolError {
    ToolError::new(Layer::Machine, codes::POLICY_UNAVAILABLE, why)
        .next("run `hivekeep check` on the host to see what is missing")
}

pub(crate) fn policy_unproven(why: String) -> ToolError {
    ToolError::new(Layer::Machine, codes::POLICY_UNPROVEN, why)
        .next("ask again: the daemon repeats the self-test; `hivekeep ps` shows what is open")
        .retryable()
}

pub(crate) fn not_in_network(id: WorkspaceId) -> ToolError {
    let message = format!("{id} has no place in the network");
    ToolError::new(Layer::Machine, codes::NOT_IN_NETWORK, message)
}

pub(crate) fn forward_not_found(protocol: Protocol, guest_port: u16) -> ToolError {
    let message = format!("no forward leads to {protocol} port {guest_port}");
    ToolError::new(Layer::Machine, codes::FORWARD_NOT_FOUND, message)
        .next("workspace_info lists the forwards")
}
