//! The process outside of all walls: it answers on each kind of socket that an attempt is made to reach.

use std::{
    ffi::c_int,
    fs::File,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::FromRawFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener},
    },
    thread,
};

use crate::{PATIENCE, kernel::call};

/// `struct sockaddr_vm`.
pub(crate) fn vsock_address(cid: u32, port: u32) -> [u32; 4] {
    [40, port, cid, 0]
}

/// Answers until it is killed.
pub(crate) fn listen(mark: &str, port: &str) {
    let mut threads = Vec::new();
    for address in [format!("0.0.0.0:{port}"), "169.254.169.254:80".to_owned()] {
        let Ok(listener) = TcpListener::bind(&address) else { continue };
        let mark = mark.to_owned();
        threads.push(thread::spawn(move || {
            listener.incoming().flatten().for_each(|it| greet(it, &mark))
        }));
    }
    let address = UnixAddr::from_abstract_name(mark);
    if let Ok(listener) = address.and_then(|address| UnixListener::bind_addr(&address)) {
        threads.push(thread::spawn(move || for _ in listener.incoming() {}));
    }
    let (mark, port) = (mark.to_owned(), port.parse().unwrap_or_default());
    threads.push(thread::spawn(move || {
        let _no_vsock_here = listen_vsock(port, &mark);
    }));
    println!("ready");
    for thread in threads {
        let _ended = thread.join();
    }
}

fn greet(mut stream: TcpStream, mark: &str) {
    let _nothing_said =
        stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.read(&mut [0; 4096]));
    let text = format!(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{mark}",
        mark.len()
    );
    let _it_left = stream.write_all(text.as_bytes());
}

fn listen_vsock(port: u32, mark: &str) -> io::Result<()> {
    let socket = call(41, [40, 1, 0, 0, 0])?;
    let address = vsock_address(u32::MAX, port);
    call(49, [socket, address.as_ptr() as i64, 16, 0, 0])?;
    call(50, [socket, 8, 0, 0, 0])?;
    loop {
        let stream = call(43, [socket, 0, 0, 0, 0])?;
        // SAFETY: the kernel has just given this descriptor, and nobody else has it.
        let _it_left = unsafe { File::from_raw_fd(stream as c_int) }.write_all(mark.as_bytes());
    }
}
