//! Others' changes of the packet filter: whether there was one since our last, and those of our
//! tables as they come.
//!
//! The kernel numbers the transactions of a namespace's packet filter, whoever makes them. Where
//! the number is the one after ours, nobody touched a rule; a question about it costs two system
//! calls, a listing of the tables costs a process. Changes of our tables are the kernel's own
//! notifications.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::Error;
use crate::plan::Tag;

/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message's kind.
const NFTABLES: u8 = 10;
/// `NFT_MSG_GETGEN` and `NFT_MSG_NEWGEN`, the lower byte.
const ASK: u16 = u16::from_be_bytes([NFTABLES, 16]);
const ANSWER: u16 = u16::from_be_bytes([NFTABLES, 15]);
const NLM_F_REQUEST: u16 = 1;
/// `NFTA_GEN_ID`, big-endian.
const GENERATION: u16 = 1;
/// Sizes of `nlmsghdr`, and of that with `nfgenmsg`.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 4;

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
        let mut question = Vec::with_capacity(HEADERS);
        question.extend(20u32.to_ne_bytes());
        question.extend([ASK.to_ne_bytes(), NLM_F_REQUEST.to_ne_bytes()].concat());
        question.resize(HEADERS, 0);
        sendto(&self.0, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        // The kernel has answered by the time that the question is sent.
        let mut answer = [0; 1024];
        let (len, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
        let unexpected = || io::Error::other("the kernel answered something else");
        if kind != Some(ANSWER) || len > answer.len() {
            return Err(unexpected());
        }
        let attributes = answer.get(HEADERS..len).unwrap_or_default();
        generation(attributes).ok_or_else(unexpected)
    }
}

/// The number among a message's attributes.
fn generation(attributes: &[u8]) -> Option<u32> {
    attribute(attributes, GENERATION)?.try_into().ok().map(u32::from_be_bytes)
}

/// The value of a message's first attribute of a kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
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

/// `NFNLGRP_NFTABLES`, as a bit.
const GROUP: u32 = 1 << (7 - 1);
/// The attribute that names the table, in messages about tables, chains, sets, rules and elements.
const TABLE: u16 = 1;
const DATAGRAM_BYTES: usize = 64 << 10;

/// Has the runtime tell when a descriptor can be read.
#[allow(unsafe_code)]
pub(crate) fn watched(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is open, and the same one, until it is dropped with the watch.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// Listens in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct RulesetMonitor {
    socket: AsyncFd<OwnedFd>,
    table: String,
    buffer: Vec<u8>,
}

impl RulesetMonitor {
    /// Subscribes to changes of the tables of a tag. Legal within a runtime.
    pub(crate) fn open(tag: &Tag) -> Result<Self, Error> {
        let opened = || -> io::Result<_> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let kind = SocketType::RAW;
            let socket =
                socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::NETFILTER))?;
            bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
            watched(socket)
        };
        let socket = opened().map_err(Error::io("listen to the packet filter's changes"))?;
        Ok(Self { socket, table: tag.table(), buffer: vec![0; DATAGRAM_BYTES] })
    }

    /// Returns when someone, ourselves included, has changed our tables, or may have. Nothing is
    /// lost when the future is dropped.
    ///
    /// # Errors
    /// When the socket breaks.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.readable().await?;
            let mut ours = false;
            loop {
                match recv(self.socket.get_ref(), &mut self.buffer[..], RecvFlags::TRUNC) {
                    Ok((_, len)) if len > self.buffer.len() => ours = true,
                    Ok((_, len)) => ours |= concerns(&self.buffer[..len], &self.table),
                    // More than the kernel kept for us.
                    Err(rustix::io::Errno::NOBUFS) => ours = true,
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            ready.clear_ready();
            if ours {
                return Ok(());
            }
        }
    }
}

/// True when any of a datagram's messages is about a table.
fn concerns(mut messages: &[u8], table: &str) -> bool {
    while let Some((header, _)) = messages.split_first_chunk::<HEADER>() {
        let len = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let Some(message) = messages.get(..len).filter(|_| len >= HEADER) else { return false };
        let attributes = message.get(HEADERS..).unwrap_or_default();
        let named = attribute(attributes, TABLE).and_then(|name| name.strip_suffix(b"\0"));
        if kind.to_be_bytes()[0] == NFTABLES && named == Some(table.as_bytes()) {
            return true;
        }
        messages = messages.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, attribute: &[u8]) -> Vec<u8> {
        let name_len = u16::try_from(4 + attribute.len()).unwrap();
        let mut body = [&[0; 4][..], &name_len.to_ne_bytes(), &TABLE.to_ne_bytes()].concat();
        body.extend(attribute);
        body.resize(body.len().next_multiple_of(4), 0);
        let len = u32::try_from(HEADER + body.len()).unwrap();
        [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], &body].concat()
    }

    #[test]
    fn a_message_is_ours_by_its_tables_whole_name() {
        let ours = message(10 << 8 | 2, b"hivekeep-test\0");
        let theirs = message(10 << 8 | 2, b"hivekeep-test2\0");
        let end = message(10 << 8 | 15, &7u32.to_be_bytes());
        let conntrack = message(1 << 8, b"hivekeep-test\0");
        let heard = |messages: &[&[u8]]| concerns(&messages.concat(), "hivekeep-test");
        assert!(heard(&[&ours]) && heard(&[&theirs, &ours, &end]));
        assert!(!heard(&[&theirs, &end]) && !heard(&[&conntrack]) && !heard(&[]));
        for cut in 0..ours.len() - 2 {
            assert!(!heard(&[&ours[..cut]]), "{cut}");
        }
    }

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
