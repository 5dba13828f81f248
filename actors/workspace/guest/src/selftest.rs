//! Checks that need the real machine, run by whoever builds one; and plain bytes over a virtio-serial port of its
//! own, without the protocol: what the link's speed is measured against. No machine of the daemon's has such a
//! port.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hivekeep_protocol::{
    Decoder, Frame, FrameKind, FromGuest, GuestError, GuestWelcome, HelloRefusal, HostHello,
    PROTOCOL_VERSION, Ping, SYNC_LEN, ToGuest, decode, encode, sync_preamble,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_vsock::{VMADDR_CID_LOCAL, VsockAddr, VsockStream};

use crate::agent::Agent;
use crate::agent::daemon::{RoleFailure, runtime};
use crate::carrier::{VSOCK_PORT, Vsock};
use crate::settings::{AgentSettings, GuestKind};
use crate::sys::spawn::{Program, Stdio, spawn as start};

/// Serves on AF_VSOCK, dials it through the loopback CID, and pings through the
/// whole handshake. Needs the kernel's vsock_loopback.
///
/// # Errors
/// At the first step that fails.
pub fn vsock() -> Result<ExitCode, RoleFailure> {
    let dir = std::env::temp_dir().join(format!("hivekeep-selftest-{}", std::process::id()));
    let token = [0x5a; 32];
    let settings = AgentSettings {
        token_hash: *blake3::hash(&token).as_bytes(),
        exe: "/proc/self/exe".into(),
        state_dir: dir.join("state"),
        run_dir: dir.join("run"),
        place: GuestKind::Sandbox,
        cgroup_root: None,
    };
    let outcome = runtime()?.block_on(async {
        let refusing = Vsock::bind(VSOCK_PORT + 1000, vec![crate::settings::HOST_CID])?;
        let agent = Agent::start(settings).await?;
        tokio::spawn(agent.clone().serve(refusing));
        tokio::spawn(agent.serve(Vsock::bind(VSOCK_PORT, vec![VMADDR_CID_LOCAL])?));
        let pong = tokio::time::timeout(Duration::from_secs(10), ping(VSOCK_PORT, token)).await??;
        let refused =
            tokio::time::timeout(Duration::from_secs(10), ping(VSOCK_PORT + 1000, token)).await?;
        match (pong, refused) {
            (true, Err(_)) => Ok(()),
            (true, Ok(_)) => Err("a peer that is not the host was served".into()),
            (false, _) => Err::<(), RoleFailure>("the ping came back changed".into()),
        }
    });
    let _ = std::fs::remove_dir_all(dir);
    outcome?;
    crate::say!("selftest-vsock: ok");
    Ok(ExitCode::SUCCESS)
}

async fn ping(port: u32, token: [u8; 32]) -> Result<bool, RoleFailure> {
    let mut stream = VsockStream::connect(VsockAddr::new(VMADDR_CID_LOCAL, port)).await?;
    let preamble = sync_preamble(*b"selftest-vsock-1");
    stream.write_all(&preamble).await?;
    let mut echo = [0; SYNC_LEN];
    stream.read_exact(&mut echo).await?;
    let hello = HostHello { min_version: PROTOCOL_VERSION, max_version: PROTOCOL_VERSION, token };
    let hello = Frame { kind: FrameKind::Hello, id: 0, payload: encode(&hello)? };
    stream.write_all(&hello.to_bytes()).await?;
    let welcome: Result<GuestWelcome, HelloRefusal> = decode(&frame(&mut stream).await?.payload)?;
    welcome?;
    let payload = b"are you there".to_vec();
    let request = encode(&ToGuest::Ping(Ping { payload: payload.clone() }))?;
    let request = Frame { kind: FrameKind::Request, id: 1, payload: request };
    stream.write_all(&request.to_bytes()).await?;
    let reply: Result<FromGuest, GuestError> = decode(&frame(&mut stream).await?.payload)?;
    Ok(matches!(reply?, FromGuest::Ping(pong) if pong.payload == payload) && echo == preamble)
}

async fn frame(stream: &mut VsockStream) -> Result<Frame, RoleFailure> {
    let mut decoder = Decoder::default();
    loop {
        let byte = [stream.read_u8().await?];
        if let (_, Some(frame)) = decoder.push(&byte)? {
            return Ok(frame);
        }
    }
}

/// Times bare starts of `sh -c true`: what an exec of it is measured against.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(times: Option<OsString>) -> Result<ExitCode, RoleFailure> {
    let times = times.and_then(|text| text.to_str()?.parse().ok()).unwrap_or(100_usize).max(1);
    let program = Program {
        path: c"/bin/sh".to_owned(),
        argv: vec![c"sh".to_owned(), c"-c".to_owned(), c"true".to_owned()],
        env: vec![c"PATH=/usr/bin:/bin".to_owned()],
        workdirs: Vec::new(),
        max_open_files: None,
    };
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let fd = null.as_fd();
    let stdio = Stdio::of(fd, fd, fd);
    let shared = measure(times, || {
        let started = start(&program, &stdio)?;
        let options = rustix::process::WaitOptions::empty();
        rustix::process::waitpid(Some(started.pid), options)?;
        Ok(())
    })?;
    let std_way = measure(times, || {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "true"]).stdin(null.try_clone()?);
        command.status()?;
        Ok(())
    })?;
    let line =
        format!(r#"{{"times":{times},"spawn_p50_us":{shared},"std_spawn_p50_us":{std_way}}}"#);
    std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(
    times: usize,
    mut once: impl FnMut() -> Result<(), RoleFailure>,
) -> Result<u128, RoleFailure> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        once()?;
        taken.push(begun.elapsed().as_micros());
    }
    taken.sort_unstable();
    Ok(taken[taken.len() / 2])
}

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
pub fn calls(numbers: impl Iterator<Item = OsString>) -> Result<ExitCode, RoleFailure> {
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

#[allow(unsafe_code)]
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
#[allow(unsafe_code)]
fn errno_of(call: i64) -> i32 {
    // SAFETY: no call takes -1 for an address, a descriptor or a set of flags: where it is known
    // at all it changes nothing.
    match unsafe { libc::syscall(call, NONE, NONE, NONE, NONE, NONE, NONE) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap_or_default(),
        _ => 0,
    }
}

/// Two of the driver's 32 KiB buffers; more at once is no quicker.
const CHUNK_BYTES: usize = 64 * 1024;
/// A port without a host reads as at its end.
const AWAY_POLL: Duration = Duration::from_millis(10);

/// Serves the port with this device node until the host says `q`.
///
/// The host sends an order of nine bytes, a letter and a number of bytes in little-endian order: `e` to have so
/// many bytes back, `s` to be sent so many, `r` to send so many and then get one byte, `q` to end this.
///
/// # Errors
/// When the port cannot be used, or an order makes no sense.
pub fn raw(device: Option<OsString>) -> Result<ExitCode, RoleFailure> {
    use std::io::Write;
    let device = device.ok_or("selftest-raw needs the port's device node")?;
    let mut port = File::options().read(true).write(true).open(device)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let mut order = [0; 9];
        fill(&mut port, &mut order)?;
        let [letter, number @ ..] = order;
        let bytes = usize::try_from(u64::from_le_bytes(number))?;
        match letter {
            b'e' => {
                let echo = chunk.get_mut(..bytes).ok_or("an echo is one chunk at most")?;
                fill(&mut port, echo)?;
                port.write_all(echo)?;
            }
            b's' => each(bytes, &mut chunk, |part| port.write_all(part))?,
            b'r' => {
                each(bytes, &mut chunk, |part| fill(&mut port, part))?;
                port.write_all(b".")?;
            }
            b'q' => return Ok(ExitCode::SUCCESS),
            other => return Err(format!("{other} is not an order").into()),
        }
    }
}

/// Does something with each chunk of so many bytes.
fn each(
    bytes: usize,
    chunk: &mut [u8],
    mut act: impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let part = left.min(chunk.len());
        act(&mut chunk[..part])?;
        left -= part;
    }
    Ok(())
}

fn fill(port: &mut File, mut bytes: &mut [u8]) -> io::Result<()> {
    use std::io::Read;
    while !bytes.is_empty() {
        match port.read(bytes)? {
            0 => std::thread::sleep(AWAY_POLL),
            read => bytes = &mut bytes[read..],
        }
    }
    Ok(())
}
