//! Hears of others' changes of our tables, at once: the kernel's own notifications.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::{Interest, unix::AsyncFd};

use super::generation::attribute;
use crate::Error;
use crate::plan::Tag;

/// `NFNLGRP_NFTABLES`, as a bit.
const GROUP: u32 = 1 << (7 - 1);
/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message's kind.
const NFTABLES: u8 = 10;
/// The attribute that names the table, in messages about tables, chains, sets, rules and elements.
const TABLE: u16 = 1;
/// Sizes of `nlmsghdr`, and of that with `nfgenmsg`.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 4;
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
}
