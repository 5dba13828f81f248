//! Questions and orders to the kernel's network, one at a time.

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    Emitable, ErrorBuffer, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkHeader,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::message::Message;

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
