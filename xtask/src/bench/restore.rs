//! Forks without the daemon: as many QEMUs as are wanted, started together from the frozen layer and
//! the memory that a fork of the daemon's has begun with. Each is told what the daemon tells its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::FdFlags;
use serde_json::{Value, json};
use xshell::cmd;

use super::bare::{Ended, PREAMBLE, Seen, socket_in};
use super::kit::BenchPrograms;

const PATIENCE: Duration = Duration::from_secs(120);
/// Between two attempts at the first word.
const SAY_AGAIN: Duration = Duration::from_millis(20);
/// The writable layer's set of descriptors.
const TOP_SET: &str = "2";

/// Common parts of the machines.
pub(super) struct Template {
    words: Vec<String>,
    /// The snapshot's memory.
    memory: PathBuf,
    folder: PathBuf,
    disk_gb: u64,
}

impl Template {
    /// Of the fork with this process, which began with the snapshot in the folder `memory` and one
    /// layer over the image `base`.
    pub(super) fn of(
        pid: u32,
        memory: PathBuf,
        base: &Path,
        folder: &Path,
        disk_gb: u64,
    ) -> Result<Self> {
        let seen = Seen::of(pid)?;
        let layer = frozen_layer(pid)?;
        let (mut words, mut files, mut rest) = (Vec::new(), Vec::new(), seen.words.iter());
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-add-fd" => {
                    let value = rest.next().context("-add-fd has a value")?;
                    let set = value.split(',').find_map(|part| part.strip_prefix("set="));
                    match set.context("-add-fd names a set")? {
                        TOP_SET => {}
                        "1" => files.push(("/dev/fdset/1".to_owned(), base)),
                        set => files.push((format!("/dev/fdset/{set}"), layer.as_path())),
                    }
                }
                word => words.push(by_path(&seen, &memory, word)?),
            }
        }
        ensure!(files.len() == 2, "the fork stands on one frozen layer");
        let by_path = |word: &String| {
            files.iter().fold(word.clone(), |word, (set, path)| {
                word.replace(set, &path.display().to_string())
            })
        };
        let words = words.iter().map(by_path).collect();
        Ok(Self { words, memory, folder: folder.to_owned(), disk_gb })
    }

    /// From the start of the first to the first message of the last. Their empty layers are made
    /// before that.
    pub(super) fn start_together(&self, kit: &BenchPrograms<'_>, count: usize) -> Result<Duration> {
        let (shell, size) = (&kit.repo.shell, format!("{}G", self.disk_gb));
        let mut places = Vec::new();
        for nth in 0..count {
            let place = self.folder.join(format!("bare-{nth}"));
            let top = place.join("top");
            let _there_may_be_none = fs::remove_dir_all(&place);
            fs::create_dir_all(&place)?;
            cmd!(shell, "qemu-img create -q -f qcow2 {top} {size}").quiet().run()?;
            places.push(place);
        }
        let ready = Barrier::new(count + 1);
        std::thread::scope(|scope| {
            let begin = |place: &'_ PathBuf| {
                let (ready, place) = (&ready, place.clone());
                scope.spawn(move || {
                    ready.wait();
                    let machine = self.start(&place);
                    let done = Instant::now();
                    (machine, done)
                })
            };
            let machines: Vec<_> = places.iter().map(begin).collect();
            ready.wait();
            let (began, mut last) = (Instant::now(), Instant::now());
            // None ends before all are there, as with forks.
            let mut there = Vec::new();
            for machine in machines {
                let (machine, done) = machine.join().expect("a thread that only starts a machine");
                there.push(machine?);
                last = last.max(done);
            }
            Ok(last.duration_since(began))
        })
    }

    fn start(&self, place: &Path) -> Result<Ended> {
        let state = File::open(self.memory.join("device"))?;
        rustix::io::fcntl_setfd(&state, FdFlags::empty())?;
        let top = place.join("top").display().to_string();
        let words = self.words[1..]
            .iter()
            .map(|word| socket_in(place, word).replace(&format!("/dev/fdset/{TOP_SET}"), &top));
        let mut command = Command::new(&self.words[0]);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let mut qemu = Ended(command.spawn()?);
        let monitor = connect(&mut qemu, &place.join("qmp"))?;
        tell(monitor, &format!("fd:{}", state.as_raw_fd()))?;
        await_echo(&mut connect(&mut qemu, &place.join("link"))?)?;
        Ok(qemu)
    }
}

/// The only layer that the machine has open for reading alone.
fn frozen_layer(pid: u32) -> Result<PathBuf> {
    let mut found = std::collections::BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let Ok(path) = fs::read_link(entry.path()) else { continue };
        if path.extension().is_none_or(|extension| extension != "qcow2") {
            continue;
        }
        let number = entry.file_name();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.display()))?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).context("flags")?;
        // O_RDONLY is 0 in the two lowest bits.
        if u32::from_str_radix(flags.trim(), 8)? & 3 == 0 {
            found.insert(path);
        }
    }
    ensure!(found.len() == 1, "one frozen layer expected: {found:?}");
    found.pop_first().context("one")
}

/// A word of the command line without the daemon's descriptors.
fn by_path(seen: &Seen, memory: &Path, word: &str) -> Result<String> {
    if let Some(fd) = word.strip_prefix("/proc/self/fd/") {
        return Ok(seen.file_of(fd)?.display().to_string());
    }
    if !word.starts_with("memory-backend-file,") {
        return Ok(word.to_owned());
    }
    let parts = word.split(',').map(|part| match part.starts_with("mem-path=") {
        true => format!("mem-path={}", memory.join("ram").display()),
        false => part.to_owned(),
    });
    Ok(parts.collect::<Vec<_>>().join(","))
}

fn connect(qemu: &mut Ended, path: &Path) -> Result<UnixStream> {
    let began = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) if began.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        ensure!(qemu.0.try_wait()?.is_none(), "the bare QEMU ended");
    }
}

/// Says the first word until it is echoed. A guest that is being restored may lose what is sent to
/// it before it runs, and says first what it had to say when it was saved.
fn await_echo(stream: &mut UnixStream) -> Result<()> {
    let (began, mut heard, mut piece) = (Instant::now(), Vec::new(), [0; 4096]);
    stream.set_read_timeout(Some(SAY_AGAIN))?;
    while began.elapsed() < PATIENCE {
        stream.write_all(&PREAMBLE)?;
        match stream.read(&mut piece) {
            Ok(0) => anyhow::bail!("the bare machine ended"),
            Ok(count) => heard.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if heard.windows(PREAMBLE.len()).any(|said| said == PREAMBLE) {
            return Ok(());
        }
    }
    anyhow::bail!("the bare machine says nothing; {} bytes of something else", heard.len())
}

/// Tells QEMU the source of its state, and to continue: it is paused as it was when it was saved.
fn tell(mut monitor: UnixStream, state: &str) -> Result<()> {
    monitor.set_read_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(monitor.try_clone()?);
    let mut ask = |command: &str, arguments: Value| -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        monitor.write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut line = String::new();
            ensure!(answers.read_line(&mut line)? > 0, "QEMU closed its monitor");
            let mut answer: Value = serde_json::from_str(&line)?;
            ensure!(answer.get("error").is_none(), "{command}: {line}");
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    };
    let shared = json!([{ "capability": "x-ignore-shared", "state": true }]);
    ask("qmp_capabilities", json!({}))?;
    ask("migrate-set-capabilities", json!({ "capabilities": shared }))?;
    ask("migrate-incoming", json!({ "uri": state }))?;
    let began = Instant::now();
    while ask("query-status", json!({}))?["status"] != "paused" {
        ensure!(began.elapsed() < PATIENCE, "its state is not there");
        std::thread::sleep(Duration::from_millis(1));
    }
    ask("cont", json!({}))?;
    Ok(())
}
