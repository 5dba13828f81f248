//! Attempts on the kernel: its settings, keys, devices, mounts, calls and bounds.

use std::{
    ffi::{CStr, c_char, c_int, c_long},
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use crate::{Seen, told};

/// Processes and mebibytes that are asked for.
const PROCESSES: usize = 300;
const MEBIBYTES: i64 = 320;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
    pub(crate) fn geteuid() -> u32;
    pub(crate) fn getuid() -> u32;
}

pub(crate) fn at(text: &CStr) -> i64 {
    text.as_ptr() as i64
}

pub(crate) fn call(number: c_long, args: [i64; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = args;
    // SAFETY: the pointers among the arguments are to static text, or to buffers that outlive the call.
    match unsafe { syscall(number, a, b, c, d, e, 0) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// What a child of this process meets: what it may be killed for, or cannot be undone.
pub(crate) fn in_child(act: impl Fn() -> io::Result<()>) -> Seen {
    // SAFETY: this process has one thread.
    let pid = unsafe { fork() };
    if pid == 0 {
        let code = act().err().map_or(0, |error| error.raw_os_error().unwrap_or(255));
        // SAFETY: ends this process.
        unsafe { _exit(code) }
    }
    if pid < 0 {
        return told(Err::<(), _>(io::Error::last_os_error()));
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    unsafe { waitpid(pid, &raw mut status, 0) };
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, 0) => Ok("done".to_owned()),
        (0, errno) => Err(io::Error::from_raw_os_error(errno).to_string()),
        (signal, _) => Err(format!("ended by signal {signal}")),
    }
}

pub(crate) fn kernel_settings() -> Seen {
    let settings = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
    ];
    any_opens(&settings)
}

/// Opened for writing, and closed again.
fn any_opens(paths: &[&str]) -> Seen {
    let mut why = Vec::new();
    for path in paths {
        match OpenOptions::new().write(true).open(path) {
            Ok(_) => return Ok((*path).to_owned()),
            Err(error) => why.push(format!("{path}: {error}")),
        }
    }
    Err(why.join("; "))
}

/// A copy of this program with the bit, started as another user.
pub(crate) fn set_user_id() -> Seen {
    let copy = Path::new("containment-copy");
    let lent = || {
        let _none_before = fs::remove_file(copy);
        fs::copy(std::env::current_exe()?, copy)?;
        fs::set_permissions(copy, fs::Permissions::from_mode(0o4755))?;
        if fs::metadata(copy)?.permissions().mode() & 0o4000 == 0 {
            return Err(io::Error::other("the bit is not kept"));
        }
        let path = fs::canonicalize(copy)?;
        let mut other = Command::new(path);
        other.arg("euid").current_dir("/");
        // SAFETY: takes and changes nothing.
        if unsafe { geteuid() } == 0 {
            other.uid(1000).gid(1000);
        }
        let said = String::from_utf8_lossy(&other.output()?.stdout).trim().to_owned();
        let status = fs::read_to_string("/proc/self/status")?;
        let no_new = status.lines().any(|line| line == "NoNewPrivs:\t1");
        // SAFETY: takes and changes nothing.
        match (said.as_str(), unsafe { geteuid() }) {
            ("0", 0) => Ok(()),
            (_, 1..) if !no_new => Ok(()),
            _ if no_new => Err(io::Error::other("the bit lends nothing: no_new_privs")),
            (said, _) => Err(io::Error::other(format!("it ran as {said}"))),
        }
    };
    let seen = told(lent());
    let _left = fs::remove_file(copy);
    seen
}

pub(crate) fn devices() -> Seen {
    let made = || {
        let node = c"containment-device";
        // A character device, 1:5: /dev/zero.
        call(133, [at(node), 0o020_600, 0x105, 0, 0])?;
        let read = File::open("containment-device").and_then(|mut it| it.read_exact(&mut [0]));
        fs::remove_file("containment-device")?;
        read
    };
    let Err(why) = told(made()) else { return Ok("a device that it made".to_owned()) };
    any_opens(&["/dev/mem", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/loop-control"])
        .map_err(|others| format!("a device of its own: {why}; {others}"))
}

pub(crate) fn mounts() -> Seen {
    let place = c"containment-mount";
    let mount = || {
        fs::create_dir("containment-mount")?;
        let mounted = call(165, [at(c"none"), at(place), at(c"tmpfs"), 0, 0]);
        if mounted.is_ok() {
            call(166, [at(place), 2, 0, 0, 0])?;
        }
        mounted
    };
    let seen = told(mount());
    let _left = fs::remove_dir("containment-mount");
    seen
}

/// Calls that answer otherwise than that they are refused or unknown.
pub(crate) fn kernel_calls() -> Seen {
    let calls: [(&str, c_long, [i64; 5]); 8] = [
        ("bpf", 321, [0, 0, 1, 0, 0]),
        ("io_uring_setup", 425, [0; 5]),
        ("init_module", 175, [0; 5]),
        ("kexec_load", 246, [0, 100_000, 0, 0, 0]),
        ("open_by_handle_at", 304, [-1, 0, 0, 0, 0]),
        ("perf_event_open", 298, [0, 0, -1, -1, 0]),
        ("userfaultfd", 323, [0xffff_ffff, 0, 0, 0, 0]),
        ("process_vm_readv", 310, [1, 0, 0, 0, 0]),
    ];
    let mut answers = Vec::new();
    for (name, number, args) in calls {
        let errno = call(number, args).err().and_then(|error| error.raw_os_error());
        // EPERM and ENOSYS.
        if !matches!(errno, Some(1 | 38)) {
            answers.push(name);
        }
    }
    if answers.is_empty() { Err("all refused".to_owned()) } else { Ok(answers.join(", ")) }
}

pub(crate) fn take_memory() -> io::Result<()> {
    let length = MEBIBYTES << 20;
    let start = {
        // SAFETY: a new mapping, of memory that nobody has.
        match unsafe { syscall(9, 0_i64, length, 3_i64, 0x22_i64, -1_i64, 0_i64) } {
            -1 => return Err(io::Error::last_os_error()),
            start => start as *mut c_char,
        }
    };
    for page in 0..length / 4096 {
        // SAFETY: within the mapping.
        unsafe { start.offset((page * 4096) as isize).write_volatile(1) };
    }
    Ok(())
}

pub(crate) fn processes() -> Seen {
    let mut made = Vec::new();
    let outcome = loop {
        if made.len() == PROCESSES {
            break Ok(format!("{PROCESSES}"));
        }
        // SAFETY: this process has one thread.
        match unsafe { fork() } {
            0 => {
                thread::sleep(Duration::from_secs(30));
                // SAFETY: ends this process.
                unsafe { _exit(0) }
            }
            -1 => break Err(format!("{} after {}", io::Error::last_os_error(), made.len())),
            pid => made.push(pid),
        }
    };
    for pid in made {
        // SAFETY: a child of this process that was not waited for.
        unsafe {
            kill(pid, 9);
            waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
    outcome
}
