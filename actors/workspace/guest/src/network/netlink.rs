//! Questions and orders to the kernel's network, one at a time, and their messages: a header of fixed form,
//! then attributes.
//!
//! There is a crate with a type for each attribute there is. It is a tenth of this daemon, which every machine
//! boots from, for the sake of the ten that are used here.

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, Nla, NlasIterator,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The kernel fills at most 32 KiB at once.
const BUFFER_BYTES: usize = 64 << 10;

/// A socket to rtnetlink.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// Message of an answer.
struct Part {
    kind: u16,
    sequence: u32,
    payload: Vec<u8>,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        // Protocol 0, the default, is rtnetlink.
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Has something done; `flags` besides those of every order.
    ///
    /// # Errors
    /// As the kernel says.
    pub(super) fn order(&mut self, kind: u16, flags: u16, message: &Message) -> io::Result<()> {
        self.send(kind, NLM_F_REQUEST | NLM_F_ACK | flags, message)?;
        loop {
            for part in self.receive()? {
                if part.kind == NLMSG_ERROR {
                    return outcome(&part.payload);
                }
            }
        }
    }

    /// Everything that the kernel has of a kind. Its messages have heads like the question's.
    ///
    /// # Errors
    /// As the kernel says, or when it says what cannot be understood.
    pub(super) fn list(&mut self, kind: u16, message: &Message) -> io::Result<Vec<Message>> {
        self.send(kind, NLM_F_REQUEST | NLM_F_DUMP, message)?;
        let mut found = Vec::new();
        loop {
            for part in self.receive()? {
                match part.kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => return outcome(&part.payload).map(|()| found),
                    _ => {
                        let one = Message::parse(&part.payload, message.head.len());
                        found.push(one.map_err(io::Error::other)?);
                    }
                }
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, message: &Message) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        let length = header.buffer_len() + message.buffer_len();
        header.length = u32::try_from(length).expect("a message is small");
        header.message_type = kind;
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut bytes = vec![0; length];
        let (head, body) = bytes.split_at_mut(header.buffer_len());
        header.emit(head);
        message.emit(body);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// The parts of one datagram that answer the last question.
    fn receive(&mut self) -> io::Result<Vec<Part>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let (_, length) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC)?;
        let mut rest = buffer.get(..length).ok_or_else(|| io::Error::other("a long answer"))?;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
            let part = Part {
                kind: message.message_type(),
                sequence: message.sequence_number(),
                payload: message.payload().to_vec(),
            };
            let next = (message.length() as usize).next_multiple_of(4).min(rest.len());
            rest = &rest[next..];
            if part.sequence == self.sequence {
                parts.push(part);
            }
        }
        Ok(parts)
    }
}

/// Result that an acknowledgement carries.
fn outcome(payload: &[u8]) -> io::Result<()> {
    let answer = ErrorBuffer::new_checked(payload).map_err(io::Error::other)?;
    match answer.code() {
        None => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.get().saturating_neg())),
    }
}

/// A message without the header that all netlink has.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) head: Vec<u8>,
    attributes: Vec<DefaultNla>,
}

impl Message {
    pub(super) fn parse(payload: &[u8], head_bytes: usize) -> Result<Self, DecodeError> {
        let short = || DecodeError::from(format!("{} bytes are not a message", payload.len()));
        let (head, rest) = payload.split_at_checked(head_bytes).ok_or_else(short)?;
        let attribute = |nla: netlink_packet_core::NlaBuffer<_>| {
            DefaultNla::new(nla.kind(), AsRef::<[u8]>::as_ref(nla.value()).to_vec())
        };
        let attributes = NlasIterator::new(rest).map(|nla| nla.map(attribute));
        Ok(Self { head: head.to_vec(), attributes: attributes.collect::<Result<_, _>>()? })
    }

    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.attributes.push(DefaultNla::new(kind, value.to_vec()));
        self
    }

    /// Value of an attribute, if it is present and has that length.
    pub(super) fn value<const BYTES: usize>(&self, kind: u16) -> Option<[u8; BYTES]> {
        let attribute = self.attributes.iter().find(|one| one.kind() == kind)?;
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        value.try_into().ok()
    }

    /// The number at a place of the head.
    pub(super) fn number(&self, at: usize) -> u32 {
        let bytes = self.head.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().map_or(0, u32::from_ne_bytes)
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.head.len() + self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        let (head, rest) = buffer.split_at_mut(self.head.len());
        head.copy_from_slice(&self.head);
        self.attributes.as_slice().emit(rest);
    }
}

fn message(first: [u8; 4], numbers: &[u32]) -> Message {
    let mut head = first.to_vec();
    numbers.iter().for_each(|number| head.extend(number.to_ne_bytes()));
    Message { head, attributes: Vec::new() }
}

const INET: u8 = libc::AF_INET as u8;

/// `struct ifinfomsg`.
pub(super) fn link(index: u32, flags: u32, change: u32) -> Message {
    message([0; 4], &[index, flags, change])
}

/// `struct ifaddrmsg` of IPv4.
pub(super) fn address(index: u32, prefix_len: u8) -> Message {
    message([INET, prefix_len, 0, 0], &[index])
}

/// `struct rtmsg` of IPv4: prefix length of the destination, table, origin of the route.
pub(super) fn route(prefix_len: u8, table: u8, protocol: u8) -> Message {
    let mut message = message([INET, prefix_len, 0, 0], &[0, 0]);
    message.head[4..6].copy_from_slice(&[table, protocol]);
    message.head[7] = libc::RTN_UNICAST;
    message
}

/// `struct ndmsg` of IPv4. The state is at offset 8, in two bytes.
pub(super) fn neighbour(index: u32, flags: u8) -> Message {
    let mut message = message([INET, 0, 0, 0], &[index, 0]);
    message.head[10] = flags;
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_read_back() {
        let sent = route(0, 254, 4).with(libc::RTA_GATEWAY, &[10, 0, 0, 1]).with(4, &[7, 0, 0, 0]);
        let mut bytes = vec![0; sent.buffer_len()];
        sent.emit(&mut bytes);
        assert_eq!(bytes.len(), 12 + 8 + 8);
        let read = Message::parse(&bytes, 12).expect("read");
        assert_eq!(read.head, [2, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(read.value(libc::RTA_GATEWAY), Some([10, 0, 0, 1]));
        assert_eq!(read.value::<2>(libc::RTA_GATEWAY), None);
        assert_eq!(read.value::<4>(9), None);
        assert_eq!(address(7, 16).number(4), 7);
        assert!(Message::parse(&bytes[..11], 12).is_err());
        assert!(Message::parse(&bytes[..19], 12).is_err(), "half an attribute");
    }
}
