//! Machines without the daemon: the baseline that its own of the same make are measured
//! against. The command line is taken from a machine that the daemon runs, so
//! that kernel, image and every knob are the same by construction; only what the
//! daemon passed as a descriptor is named by its path.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::FdFlags;
use xshell::cmd;

use super::{house::BenchDaemon, kit::BenchPrograms};

/// First message of the guest daemon: see the protocol's `sync_preamble`.
pub(super) const PREAMBLE: [u8; 32] = *b"\xff\xfehivekeep-sync\xffhivekeep-bench-1";
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that ends with its owner.
pub(super) struct Ended(pub(super) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A running machine's command line.
pub(super) struct Seen {
    pub(super) pid: u32,
    pub(super) words: Vec<String>,
}

impl Seen {
    /// The machine of `house` whose program is called so.
    fn find(house: &BenchDaemon, program: &str) -> Result<Self> {
        let mark = house.path().display().to_string();
        for entry in fs::read_dir("/proc")?.flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let Ok(seen) = Self::of(pid) else { continue };
            let is_it = seen.words.first().is_some_and(|first| {
                Path::new(first).file_name().is_some_and(|name| name == program)
            });
            if is_it && seen.words.iter().any(|word| word.contains(&mark)) {
                return Ok(seen);
            }
        }
        anyhow::bail!("the daemon runs no {program}")
    }

    /// Of a process.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let line = fs::read(format!("/proc/{pid}/cmdline"))?;
        let line = String::from_utf8_lossy(&line);
        Ok(Self { pid, words: line.split_terminator('\0').map(str::to_owned).collect() })
    }

    pub(super) fn file_of(&self, fd: &str) -> Result<PathBuf> {
        let link = format!("/proc/{}/fd/{fd}", self.pid);
        fs::read_link(&link).with_context(|| format!("read {link}"))
    }
}

/// The name of a set of descriptors in later words, and what the bare machine has in its place:
/// the daemon hands over the base first, and a new machine's disk has one layer over it.
fn disk_file(value: &str, overlay: &Path, base: &Path) -> Result<(String, String)> {
    let set = value.split(',').find_map(|part| part.strip_prefix("set="));
    let set = set.context("-add-fd names a set")?;
    let path = if set == "1" { base } else { overlay };
    Ok((format!("/dev/fdset/{set}"), path.display().to_string()))
}

/// A socket that the daemon passes, by a path in `folder`; other words as they are.
pub(super) fn socket_in(folder: &Path, word: &str) -> String {
    let Some(name) = word.strip_prefix("socket,id=") else { return word.to_owned() };
    let name = name.split(',').next().unwrap_or_default();
    let path = format!("path={}", folder.join(name).display());
    let parts = word.split(',').map(|part| match part.starts_with("fd=") {
        true => path.clone(),
        false => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// QEMU on its own.
pub(super) struct Vm {
    words: Vec<String>,
    overlay: PathBuf,
    base: PathBuf,
    link: PathBuf,
    disk_gb: u64,
}

impl Vm {
    /// Like the one machine of `house`, over the image `base`; its files go to
    /// `folder`.
    pub(super) fn like(
        house: &BenchDaemon,
        folder: &Path,
        base: PathBuf,
        disk_gb: u64,
    ) -> Result<Self> {
        let seen = Seen::find(house, "qemu-system-x86_64")?;
        let overlay = folder.join("overlay");
        let (mut words, mut files, mut rest) = (Vec::new(), Vec::new(), seen.words.iter());
        while let Some(word) = rest.next() {
            if word == "-add-fd" {
                let value = rest.next().context("-add-fd has a value")?;
                files.push(disk_file(value, &overlay, &base)?);
                continue;
            }
            let word = Self::by_path(&seen, folder, word)?;
            let by_path = files.iter().fold(word, |word, (set, path)| word.replace(set, path));
            words.push(by_path);
        }
        Ok(Self { words, overlay, base, link: folder.join("link"), disk_gb })
    }

    /// A word of the command line, without descriptors.
    fn by_path(seen: &Seen, folder: &Path, word: &str) -> Result<String> {
        if let Some(fd) = word.strip_prefix("/proc/self/fd/") {
            return Ok(seen.file_of(fd)?.display().to_string());
        }
        // The same memory, of its own.
        if let Some((_, options)) = word.split_once("memory-backend-file,") {
            let options = options.split(',').filter(|option| !option.starts_with("mem-path="));
            let options = options.collect::<Vec<_>>().join(",");
            return Ok(format!("memory-backend-memfd,{options}"));
        }
        Ok(socket_in(folder, word))
    }

    /// From QEMU's start to the guest's first message. The fresh overlay is made
    /// before that.
    pub(super) fn boot(&self, kit: &BenchPrograms<'_>) -> Result<Duration> {
        let (shell, overlay, base) = (&kit.repo.shell, &self.overlay, &self.base);
        let size = format!("{}G", self.disk_gb);
        cmd!(shell, "qemu-img create -q -f qcow2 -F raw -b {base} {overlay} {size}")
            .quiet()
            .run()?;
        let _gone_already = fs::remove_file(&self.link);
        let began = Instant::now();
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut qemu = Ended(command.spawn()?);
        let mut stream = loop {
            match UnixStream::connect(&self.link) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
            ensure!(qemu.0.try_wait()?.is_none(), "the bare QEMU ended");
        };
        await_first_message(&mut stream)?;
        Ok(began.elapsed())
    }
}

/// Bubblewrap with the guest daemon in it.
pub(super) struct Sandbox {
    words: Vec<String>,
    overlay: PathBuf,
    link: PathBuf,
}

impl Sandbox {
    /// Like the one sandbox of `house`. What it binds by paths of its own mount
    /// namespace is given anew: the tree `lower` and the guest daemon.
    pub(super) fn like(
        house: &BenchDaemon,
        folder: &Path,
        lower: &Path,
        guest: &Path,
    ) -> Result<Self> {
        let mut words = Seen::find(house, "bwrap")?.words;
        let overlay = folder.join("overlay");
        for (place, source) in
            [("/lower", lower), ("/overlay", &overlay), ("/hivekeep-guest", guest)]
        {
            let at = words.iter().position(|word| word == place);
            let at = at.filter(|at| *at > 0).with_context(|| format!("it has no {place}"))?;
            words[at - 1] = source.display().to_string();
        }
        // Descriptors that the bench does not hand over.
        for given in ["--info-fd", "--console-fd"] {
            let at = words.iter().position(|word| word == given);
            let at = at.with_context(|| format!("it has no {given}"))?;
            words.drain(at..at + 2);
        }
        // The daemon's own outlives the daemon; this one shall not outlive the bench.
        let mut more = vec!["--die-with-parent"];
        // Where the daemon starts it in a user namespace with several users, bubblewrap makes one here.
        if !words.iter().any(|word| word == "--unshare-user") {
            more.extend(["--unshare-user", "--uid", "0", "--gid", "0"]);
        }
        words.splice(1..1, more.into_iter().map(str::to_owned));
        Ok(Self { words, overlay, link: folder.join("link") })
    }

    /// From bubblewrap's start to the guest's first message. Folders and socket
    /// are made before that.
    pub(super) fn boot(&self) -> Result<Duration> {
        if self.overlay.exists() {
            fs::remove_dir_all(&self.overlay)?;
        }
        fs::create_dir_all(self.overlay.join("upper"))?;
        fs::create_dir_all(self.overlay.join("work"))?;
        let _gone_already = fs::remove_file(&self.link);
        let socket = UnixListener::bind(&self.link)?;
        rustix::io::fcntl_setfd(&socket, FdFlags::empty())?;
        let mut words = self.words.clone();
        let at = words.iter().position(|word| word == "--unix-fd").context("it takes a socket")?;
        words[at + 1] = socket.as_raw_fd().to_string();
        let began = Instant::now();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        let _bwrap = Ended(command.spawn()?);
        await_first_message(&mut UnixStream::connect(&self.link)?)?;
        Ok(began.elapsed())
    }
}

/// Says the first word and waits for its echo.
fn await_first_message(stream: &mut UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&PREAMBLE)?;
    let mut echo = [0; PREAMBLE.len()];
    stream.read_exact(&mut echo).context("the bare machine says nothing")?;
    ensure!(echo == PREAMBLE, "the bare machine says something else");
    Ok(())
}
