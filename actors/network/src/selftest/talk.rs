//! Servers and clients in namespaces.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hivekeep_kernel::lock;
use rustix::net::sockopt;

use crate::{Error, Namespace};

/// Time that something that should arrive may take. A busy host is slow.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Time of listening for packets that should not arrive.
pub const QUIET: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(20);
/// Bound of the messages that a server remembers, and of the bytes that a client reads.
const REMEMBERED: usize = 1_000;
/// Buffer of a server's datagrams: a second without the processor loses none.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// A server that answers who asks, over TCP and UDP, with the address it sees them at.
#[derive(Debug)]
pub struct TestServer {
    heard: Arc<Mutex<Vec<String>>>,
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl TestServer {
    /// Starts one.
    ///
    /// # Errors
    /// When the address is not the namespace's or its port is taken.
    pub fn start(namespace: &Namespace, at: SocketAddrV4) -> Result<Self, Error> {
        let failed = || Error::io(format!("serve at {at}"));
        let tcp = insist(|| namespace.run(move || TcpListener::bind(at))).map_err(failed())?;
        let udp = insist(|| namespace.run(move || UdpSocket::bind(at))).map_err(failed())?;
        tcp.set_nonblocking(true).map_err(failed())?;
        udp.set_read_timeout(Some(TICK)).map_err(failed())?;
        // Refused without CAP_NET_ADMIN, and the kernel's default is enough for a look.
        let _refused = sockopt::set_socket_recv_buffer_size_force(&udp, BUFFER_BYTES);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let end = Arc::new(AtomicBool::new(false));
        let (notes, stop) = (heard.clone(), end.clone());
        let streams = std::thread::spawn(move || serve_tcp(&tcp, &notes, &stop));
        let (notes, stop) = (heard.clone(), end.clone());
        let datagrams = std::thread::spawn(move || serve_udp(&udp, &notes, &stop));
        Ok(Self { heard, end, threads: vec![streams, datagrams] })
    }

    /// Number of received messages that contain a text.
    pub fn received(&self, text: &str) -> usize {
        let heard = lock(&self.heard);
        heard.iter().filter(|line| line.contains(text)).count()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread ends within a tick.
            let _ = thread.join();
        }
    }
}

/// Waits for an address that was just given up: until it becomes another program, each child that
/// this process is starting anywhere, such as nft, holds a copy of the socket.
fn insist<T>(bind: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(TICK);
            }
            bound => return bound,
        }
    }
}

fn note(heard: &Mutex<Vec<String>>, line: String) {
    let mut heard = lock(heard);
    if heard.len() < REMEMBERED {
        heard.push(line);
    }
}

/// Greets each connection, then echoes it, many at once.
fn serve_tcp(listener: &TcpListener, heard: &Mutex<Vec<String>>, end: &AtomicBool) {
    let mut open: Vec<TcpStream> = Vec::new();
    while !end.load(Ordering::Relaxed) {
        while let Ok((mut stream, from)) = listener.accept() {
            note(heard, format!("tcp {from}"));
            let greeted = stream.write_all(format!("tcp {}\n", from.ip()).as_bytes());
            if greeted.and_then(|()| stream.set_nonblocking(true)).is_ok() && open.len() < 64 {
                open.push(stream);
            }
        }
        open.retain_mut(echo);
        std::thread::sleep(TICK);
    }
}

/// False once the connection is over.
fn echo(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 1024];
    match stream.read(&mut buffer) {
        Ok(0) => false,
        Ok(len) => stream.write_all(&buffer[..len]).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn serve_udp(socket: &UdpSocket, heard: &Mutex<Vec<String>>, end: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !end.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        note(heard, format!("udp {from} {}", String::from_utf8_lossy(&buffer[..len])));
        // A sender that is gone needs no answer.
        let _ = socket.send_to(format!("udp {}", from.ip()).as_bytes(), from);
    }
}

/// Connects and returns the greeting.
///
/// # Errors
/// Connects over TCP and reads the greeting. The failure is in words, as evidence.
pub fn tcp(from: &Namespace, to: SocketAddrV4, patience: Duration) -> Result<String, String> {
    open(from, to, patience).map(|(_, greeting)| greeting)
}

/// Connects and keeps the connection.
///
/// # Errors
/// Connects over TCP and keeps the connection. The failure is in words, as evidence.
pub fn open(
    from: &Namespace,
    to: SocketAddrV4,
    patience: Duration,
) -> Result<(TcpStream, String), String> {
    let connect = move || -> std::io::Result<(TcpStream, String)> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(to), patience)?;
        stream.set_read_timeout(Some(patience))?;
        let mut greeting = Vec::new();
        let mut byte = [0];
        while greeting.len() < REMEMBERED && stream.read(&mut byte)? == 1 && byte != *b"\n" {
            greeting.push(byte[0]);
        }
        Ok((stream, String::from_utf8_lossy(&greeting).into_owned()))
    };
    from.run(connect).map_err(|error| error.to_string())
}

/// True when an open connection carries bytes both ways within a time.
pub fn carries(stream: &mut TcpStream, patience: Duration) -> bool {
    let mut answer = [0; 5];
    let asked = stream.set_read_timeout(Some(patience)).and_then(|()| stream.write_all(b"still"));
    asked.and_then(|()| stream.read_exact(&mut answer)).is_ok() && answer == *b"still"
}

/// Sends a datagram, repeatedly, and returns the answer.
///
/// # Errors
/// Asks over UDP and reads the answer. The failure is in words, as evidence.
pub fn udp(from: &Namespace, to: SocketAddrV4, patience: Duration) -> Result<String, String> {
    // A socket belongs to the namespace where it is made, not where it is used.
    let socket = from.run(|| UdpSocket::bind("0.0.0.0:0"));
    let ask = || -> std::io::Result<String> {
        let socket = socket?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let end = Instant::now() + patience;
        let mut buffer = [0; 2048];
        loop {
            socket.send(b"hello")?;
            match socket.recv(&mut buffer) {
                Ok(len) => return Ok(String::from_utf8_lossy(&buffer[..len]).into_owned()),
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => {}
            }
        }
    };
    ask().map_err(|error| error.to_string())
}
