//! Frames as guests could send them, true and false ones.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::plan::Mac;

/// To everyone on the bridge.
pub const BROADCAST: Mac = Mac([0xff; 6]);
/// Ethernet's numbers of protocols.
pub const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
/// IPv4's number of it.
const UDP: u8 = 17;

/// A frame of any protocol.
pub fn ethernet(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind.to_be_bytes(), payload].concat()
}

/// An ARP answer: `address` is at `mac`. The frame itself comes `from`.
pub fn arp_claim(from: Mac, mac: Mac, address: Ipv4Addr, to: (Mac, Ipv4Addr)) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4, 0, 2];
    let payload = [&header[..], &mac.0, &address.octets(), &to.0.0, &to.1.octets()].concat();
    ethernet(to.0, from, ARP, &payload)
}

/// An ARP question to everyone: who has `wanted`?
pub fn arp_question(from: Mac, address: Ipv4Addr, wanted: Ipv4Addr) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4, 0, 1];
    let payload = [&header[..], &from.0, &address.octets(), &[0; 6], &wanted.octets()].concat();
    ethernet(BROADCAST, from, ARP, &payload)
}

/// A UDP datagram in a frame.
pub fn udp(to: Mac, from: Mac, path: [SocketAddrV4; 2], payload: &[u8]) -> Vec<u8> {
    ethernet(to, from, IPV4, &datagram(path, payload))
}

/// A packet of the protocol 253, which nobody speaks (RFC 3692).
pub fn experiment(to: Mac, from: Mac, path: [Ipv4Addr; 2], payload: &[u8]) -> Vec<u8> {
    ethernet(to, from, IPV4, &packet(253, path, payload))
}

/// A UDP datagram behind a VLAN tag.
pub fn tagged(to: Mac, from: Mac, path: [SocketAddrV4; 2], payload: &[u8]) -> Vec<u8> {
    let inner = [&[0, 0], &IPV4.to_be_bytes()[..], &datagram(path, payload)].concat();
    ethernet(to, from, VLAN, &inner)
}

/// An IPv6 neighbour solicitation to all nodes.
pub fn ipv6(from: Mac) -> Vec<u8> {
    let to = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    packet.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    ethernet(to, from, IPV6, &packet)
}

/// IPv4 and UDP headers around a payload; UDP's checksum is left out, as IPv4 permits.
fn datagram([from, to]: [SocketAddrV4; 2], payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(8 + payload.len()).expect("payloads of tests are short");
    let ports = [from.port(), to.port(), udp_len, 0].map(u16::to_be_bytes);
    packet(UDP, [*from.ip(), *to.ip()], &[ports.as_flattened(), payload].concat())
}

/// An IPv4 header before a payload.
fn packet(protocol: u8, [from, to]: [Ipv4Addr; 2], payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).expect("payloads of tests are short");
    let mut header = vec![0x45, 0];
    header.extend(len.to_be_bytes());
    header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("folded twice");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [header.as_slice(), payload].concat()
}
