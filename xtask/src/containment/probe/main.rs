//! Attempts to reach what a wall keeps away, a line each: name, `reached` or `refused`, and what was seen.
//!
//! A program of three files, which `rustc` alone makes, without a loader: it runs in any root file system, in a
//! program's namespaces, and outside of all walls, where it shows that an attempt can succeed. It changes nothing:
//! settings and devices are opened and closed again, calls have arguments that no kernel takes.

mod kernel;
mod outside;

use std::{
    ffi::c_int,
    fs::{self, File},
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{
        fd::{AsRawFd, FromRawFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use kernel::{at, call, geteuid, getuid, in_child};
use outside::vsock_address;

/// What is outside says this, and the arguments of the process outside have it.
const MARK: &str = "hivekeep-containment-outside";
const PATIENCE: Duration = Duration::from_secs(3);
/// `Ok`: it was reached.
type Seen = Result<String, String>;

/// What there is outside: `targets`, lines of `KEY=VALUE`.
struct Targets(String);

impl Targets {
    /// Beside this program, or where programs of the host have it. Whoever starts first waits for it.
    fn wait() -> Self {
        let beside = std::env::current_exe().unwrap_or_default().with_file_name("targets");
        for _ in 0..1200 {
            for path in [beside.clone(), PathBuf::from("/usr/local/src/targets")] {
                if let Ok(text) = fs::read_to_string(path) {
                    return Self(text);
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
        Self(String::new())
    }

    fn get(&self, key: &str) -> Result<&str, String> {
        let mut pairs = self.0.lines().filter_map(|line| line.split_once('='));
        let found = pairs.find(|(name, value)| *name == key && !value.is_empty());
        found.map(|(_, value)| value).ok_or_else(|| format!("no {key} to try"))
    }
}

fn main() {
    // SAFETY: both take and change nothing.
    if unsafe { geteuid() != getuid() } || std::env::args().nth(1).as_deref() == Some("euid") {
        // This may be the copy that has a set-user-id bit: it says so and does nothing else.
        return println!("{}", unsafe { geteuid() });
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, mark, port] = &arguments[..]
        && mode == "listen"
    {
        return outside::listen(mark, port);
    }
    let targets = Targets::wait();
    let is_vm = arguments.first().is_some_and(|wall| wall == "vm");
    let attempts: [(&str, &dyn Fn() -> Seen); 19] = [
        ("host's files", &|| host_file(targets.get("secret")?)),
        ("daemon's socket", &|| told(UnixStream::connect(targets.get("socket")?))),
        ("abstract socket", &abstract_socket),
        ("host's processes", &|| host_process().map(|pid| format!("process {pid}"))),
        ("ptrace", &|| ptrace(targets.get("pid")?)),
        ("loopback", &|| tcp(targets.get("loopback")?)),
        ("host's address", &|| tcp(targets.get("host")?)),
        ("metadata address", &|| tcp(targets.get("metadata")?)),
        ("other guest", &|| tcp(targets.get("guest")?)),
        ("vsock", &|| vsock(is_vm, targets.get("port")?)),
        ("kernel settings", &kernel::kernel_settings),
        ("keyrings", &|| told(call(248, [at(c"user"), at(c"hivekeep"), at(c"x"), 1, -2]))),
        ("set-user-id", &kernel::set_user_id),
        ("devices", &kernel::devices),
        ("mounts", &kernel::mounts),
        ("namespaces", &|| in_child(|| call(272, [0x1000_0000, 0, 0, 0, 0]).map(drop))),
        ("kernel calls", &kernel::kernel_calls),
        ("memory", &|| in_child(kernel::take_memory)),
        ("processes", &kernel::processes),
    ];
    let mut lines = String::new();
    for (name, attempt) in attempts {
        let (outcome, seen) = match attempt() {
            Ok(seen) => ("reached", seen),
            Err(why) => ("refused", why),
        };
        lines += &format!("{name}\t{outcome}\t{}\n", seen.replace(['\n', '\t'], " "));
    }
    lines += "end\n";
    print!("{lines}");
    let _nobody_reads_it = fs::write("containment.new", lines)
        .and_then(|()| fs::rename("containment.new", "containment.txt"));
    // A browser's folder goes with its process, which stays until this was taken.
    let begun = Instant::now();
    let is_browser = arguments.iter().any(|argument| argument.starts_with("--headless"));
    while is_browser && Path::new("containment.txt").exists() && begun.elapsed() < PATIENCE * 4 {
        thread::sleep(Duration::from_millis(20));
    }
}

fn told<T>(result: io::Result<T>) -> Seen {
    result.map(|_| "done".to_owned()).map_err(|error| error.to_string())
}

fn host_file(path: &str) -> Seen {
    let mut why = Vec::new();
    for path in [
        path.to_owned(),
        format!("/proc/1/root{path}"),
        format!("/proc/self/cwd/../../../..{path}"),
    ] {
        match fs::read_to_string(&path) {
            Ok(text) if text.contains(MARK) => return Ok(path),
            Ok(_) => why.push("another file".to_owned()),
            Err(error) => why.push(error.to_string()),
        }
    }
    Err(why.join("; "))
}

fn abstract_socket() -> Seen {
    told(UnixAddr::from_abstract_name(MARK).and_then(|address| UnixStream::connect_addr(&address)))
}

/// Number of the process that listens outside, here.
fn host_process() -> Seen {
    let numbers = fs::read_dir("/proc").map_err(|error| error.to_string())?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().into_string().ok());
    let all: Vec<_> = numbers.filter(|name| name.parse::<u32>().is_ok()).collect();
    let found = all.iter().find(|pid| is_outside(pid));
    found.cloned().ok_or_else(|| format!("not among the {} that it sees", all.len()))
}

fn is_outside(pid: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).collect();
    words.get(1) == Some(&&b"listen"[..]) && words.get(2) == Some(&MARK.as_bytes())
}

fn ptrace(outside: &str) -> Seen {
    let pid = host_process().unwrap_or(outside.to_owned());
    let number = pid.parse().map_err(|_| "no number".to_owned())?;
    told(call(101, [0x4206, number, 0, 0, 0]))?;
    if is_outside(&pid) {
        Ok(format!("process {pid}"))
    } else {
        Err("a process of its own".to_owned())
    }
}

fn tcp(address: &str) -> Seen {
    let address: SocketAddr = address.parse().map_err(|_| format!("{address} is not an address"))?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE);
    let greeted = stream.and_then(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        greeting(&mut stream)
    });
    greeted.map(|()| address.to_string()).map_err(|error| error.to_string())
}

fn greeting(stream: &mut impl Read) -> io::Result<()> {
    let mut text = String::new();
    stream.take(1024).read_to_string(&mut text)?;
    let known = text.contains(MARK);
    if known { Ok(()) } else { Err(io::Error::other("somebody else answers")) }
}

/// A machine asks its host, which is 2. Elsewhere the family of sockets is one for the whole host: a socket is enough.
fn vsock(is_vm: bool, port: &str) -> Seen {
    let address = vsock_address(2, port.parse().unwrap_or_default());
    let connect = || {
        let socket = call(41, [40, 1, 0, 0, 0])?;
        // SAFETY: the kernel has just given this descriptor, and nobody else has it.
        let mut socket = unsafe { File::from_raw_fd(socket as c_int) };
        if !is_vm {
            return Ok(());
        }
        call(42, [socket.as_raw_fd().into(), address.as_ptr() as i64, 16, 0, 0])?;
        greeting(&mut socket)
    };
    told(connect())
}
