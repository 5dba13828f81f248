//! Errors of the network.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use crate::plan::{PlanError, Protocol};

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
        property: crate::property::NetworkProperty,
        /// The evidence.
        seen: String,
    },
    /// The self-test could not look, several times.
    #[error("it could not be checked whether {property:?} holds on this kernel: {why}")]
    NotChecked {
        /// Without which there is no bridge.
        property: crate::property::NetworkProperty,
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
