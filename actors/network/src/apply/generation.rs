//! Whether anyone changed the packet filter since we last did.
//!
//! The kernel numbers the transactions of a namespace's packet filter, whoever makes them. Where
//! the number is the one after ours, nobody touched a rule; a question about it costs two system
//! calls, a listing of the tables costs a process.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use crate::Error;

/// `NFNL_SUBSYS_NFTABLES` in the upper byte, `NFT_MSG_GETGEN` and `NFT_MSG_NEWGEN` in the lower.
const ASK: u16 = 10 << 8 | 16;
const ANSWER: u16 = 10 << 8 | 15;
const NLM_F_REQUEST: u16 = 1;
/// `NFTA_GEN_ID`, big-endian.
const GENERATION: u16 = 1;
/// Sizes of `nlmsghdr` and of `nfgenmsg`.
const HEADERS: [usize; 2] = [16, 4];

/// Asks for the number, in the namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Generation(OwnedFd);

impl Generation {
    pub(super) fn open() -> Result<Self, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::NETFILTER));
        let failed = Error::io("connect to the packet filter");
        socket.map(Self).map_err(|errno| failed(errno.into()))
    }

    /// The number of the last transaction.
    pub(super) fn now(&self) -> Result<u32, Error> {
        self.ask().map_err(Error::io("ask for the packet filter's generation"))
    }

    fn ask(&self) -> io::Result<u32> {
        let mut question = Vec::with_capacity(HEADERS.iter().sum());
        question.extend(20u32.to_ne_bytes());
        question.extend([ASK.to_ne_bytes(), NLM_F_REQUEST.to_ne_bytes()].concat());
        question.resize(HEADERS.iter().sum(), 0);
        sendto(&self.0, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        // The kernel has answered by the time that the question is sent.
        let mut answer = [0; 1024];
        let (len, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
        let unexpected = || io::Error::other("the kernel answered something else");
        if kind != Some(ANSWER) || len > answer.len() {
            return Err(unexpected());
        }
        let attributes = answer.get(HEADERS.iter().sum()..len).unwrap_or_default();
        generation(attributes).ok_or_else(unexpected)
    }
}

/// The number among a message's attributes.
fn generation(attributes: &[u8]) -> Option<u32> {
    attribute(attributes, GENERATION)?.try_into().ok().map(u32::from_be_bytes)
}

/// The value of a message's first attribute of a kind.
pub(super) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((header, rest)) = attributes.split_first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]])).checked_sub(4)?;
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        if kind == wanted {
            return rest.get(..len);
        }
        attributes = rest.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_found_behind_others_and_nothing_is_read_past_the_end() {
        let name = [[7, 0, 3, 0], *b"nft\0"].concat();
        let number = [[8, 0, 1, 0], 77u32.to_be_bytes()].concat();
        let both = [name.clone(), number.clone()].concat();
        assert_eq!(generation(&both), Some(77));
        for cut in 0..both.len() {
            assert_eq!(generation(&both[..cut]), None, "{cut}");
        }
        assert_eq!(generation(&[2, 0, 1, 0, 0, 0]), None);
    }
}
