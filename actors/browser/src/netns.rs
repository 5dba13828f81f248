//! Network namespace with nothing in it but a loopback device and one listener, which the daemon holds.
//!
//! Whoever runs in the namespace reaches that listener and nothing else; the daemon, outside of it,
//! accepts there. The namespace is made between fork and exec of the child, and the listener comes back
//! over a socket: a socket belongs to the namespace that it was made in, wherever it is used.
#![allow(unsafe_code)]

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    },
    thread::UnshareFlags,
};
use tokio::process::Command;

/// Port of the listener.
pub(crate) const PORT: u16 = 1080;
const BACKLOG: i32 = 128;

/// Where the listener arrives when the child was started.
pub(crate) struct ListenerSlot(OwnedFd);

/// Has a command run in a namespace of its own.
///
/// # Errors
/// When no socket can be made.
pub(crate) fn isolate(command: &mut Command) -> io::Result<ListenerSlot> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let user = (!rustix::process::geteuid().is_root()).then(|| {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        (format!("{uid} {uid} 1"), format!("{gid} {gid} 1"))
    });
    let enter = move || {
        enter(user.as_ref())?;
        send(&theirs, &listen()?)
    };
    // SAFETY: between fork and exec `enter` makes system calls alone: what it needs was allocated
    // before, its buffers are on the stack, and it takes no lock.
    unsafe { command.pre_exec(enter) };
    Ok(ListenerSlot(ours))
}

impl ListenerSlot {
    /// The listener of a child that was started.
    ///
    /// # Errors
    /// When none came.
    pub(crate) fn take(self) -> io::Result<TcpListener> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)?;
        let sent = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sent) => sent.next(),
            _ => None,
        });
        let listener = TcpListener::from(sent.ok_or_else(|| io::Error::other("no listener came"))?);
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

/// Moves the process into a new network namespace; one of an ordinary user gets a user namespace, in
/// which it may have one.
fn enter(user: Option<&(String, String)>) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNET;
    if user.is_some() {
        flags |= UnshareFlags::NEWUSER;
    }
    // SAFETY: the process was just forked and has one thread; no descriptor of it is of the network.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    if let Some((uids, gids)) = user {
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", uids.as_bytes())?;
        write(c"/proc/self/gid_map", gids.as_bytes())?;
    }
    bring_up_loopback()
}

fn write(path: &std::ffi::CStr, text: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text)?;
    Ok(())
}

fn bring_up_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is a valid `ifreq` with a name and flags, and the socket is open.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn listen() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn send(socket: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let listeners = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&listeners));
    rustix::net::sendmsg(socket, &[IoSlice::new(b"l")], &mut beside, SendFlags::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[tokio::test]
    async fn the_child_reaches_the_listener_and_nothing_else() {
        let outside = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = outside.local_addr().expect("bound").port();
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{PORT} && echo hello >&3; \
             (exec 4<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo out || echo shut"
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).stdout(Stdio::piped());
        let slot = isolate(&mut command).expect("sockets");
        let child = command.spawn().expect("bash starts");
        let listener = slot.take().expect("a listener");
        let listener = tokio::net::TcpListener::from_std(listener).expect("in the runtime");
        let (mut stream, _) = listener.accept().await.expect("it comes");
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut said).await.expect("read");
        let output = child.wait_with_output().await.expect("it ends");
        assert_eq!((said.as_str(), output.stdout.as_slice()), ("hello\n", &b"shut\n"[..]));
    }
}
