//! Which sockets can be made, and which system calls the kernel has: asked from inside a
//! sandbox, what its filters let through. Binds nothing and connects to nothing.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use crate::roles::RoleFailure;

/// Families, and somewhat beyond the last.
const FAMILIES: std::ops::RangeInclusive<i32> = 0..=50;
/// Stream, datagram, raw, reliable datagram, sequenced packet, and the kernel's oldest way to
/// frames.
const TYPES: [i32; 6] = [1, 2, 3, 4, 5, 10];
/// None, ICMP, TCP, UDP, ICMPv6, SCTP, UDP-Lite, MPTCP, and netlink's audit, uevents and generic.
const PROTOCOLS: [i32; 11] = [0, 1, 6, 17, 58, 132, 136, 262, 9, 15, 16];
/// The calls that all architectures number alike, and those of kernels to come.
const NEWER_CALLS: std::ops::RangeInclusive<i64> = 424..=600;
const NONE: i64 = -1;

/// Prints `socket FAMILY TYPE PROTOCOL` and `socketpair ...` for each that could be made, and
/// `call N ERRNO` for each newer call with six arguments of -1; or only for calls `numbers`.
///
/// # Errors
/// When a number is none.
pub fn run(numbers: impl Iterator<Item = OsString>) -> Result<ExitCode, RoleFailure> {
    let mut asked = Vec::new();
    for number in numbers {
        asked.push(number.to_string_lossy().parse()?);
    }
    let mut text = String::new();
    if asked.is_empty() {
        sockets(&mut text)?;
        asked.extend(NEWER_CALLS);
    }
    for number in asked {
        writeln!(text, "call {number} {}", errno_of(number))?;
    }
    io::Write::write_all(&mut io::stdout(), text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn sockets(text: &mut String) -> std::fmt::Result {
    for family in FAMILIES {
        for kind in TYPES {
            for protocol in PROTOCOLS {
                let mut pair = [-1; 2];
                // SAFETY: takes no pointers; what is made is closed at once.
                let one = unsafe { libc::socket(family, kind, protocol) };
                // SAFETY: the kernel writes two descriptors, which are closed at once.
                let both = unsafe { libc::socketpair(family, kind, protocol, pair.as_mut_ptr()) };
                if one >= 0 {
                    writeln!(text, "socket {family} {kind} {protocol}")?;
                }
                if both == 0 {
                    writeln!(text, "socketpair {family} {kind} {protocol}")?;
                }
                for fd in [one, pair[0], pair[1]] {
                    // SAFETY: nobody else has it; -1 is refused.
                    unsafe { libc::close(fd) };
                }
            }
        }
    }
    Ok(())
}

/// 0 if it did something.
fn errno_of(call: i64) -> i32 {
    // SAFETY: no call takes -1 for an address, a descriptor or a set of flags: where it is known
    // at all it changes nothing.
    match unsafe { libc::syscall(call, NONE, NONE, NONE, NONE, NONE, NONE) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or_default(),
        _ => 0,
    }
}
