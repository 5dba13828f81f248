//! A network of the test's own, and machines with ends of cables in it.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use hivekeep_link::{CallTerms, Link, LinkToken};
use hivekeep_protocol::{Argv, Configure, JobStart};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth};

use super::super::super::save::tests::{connect, exec};
use super::super::super::tests::{bootable, open, tcg};
use super::super::super::{VmDriver, tap};
use crate::fake::EndsWithTest;
use crate::{
    Disk, Driver, LogsOnDiscard, MachineHandle, MachinePlan, Nic, SaveRequest, SnapshotFolder,
    Snapshots,
};

/// The host's end of each network.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);
const SLOW: Duration = Duration::from_secs(120);

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with one tap. It ends with its thread and the tap.
pub(super) struct Net {
    jobs: mpsc::Sender<Job>,
    tap: Arc<OwnedFd>,
    capture: OwnedFd,
    seen: Mutex<VecDeque<Vec<u8>>>,
}

/// Frames that passed since the namespace was made.
#[derive(Debug)]
pub(super) struct Frames(Vec<Vec<u8>>);

impl Net {
    pub(super) fn new() -> Result<Self, String> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let made = tap::in_new_network("guest0", up);
            let ok = made.is_ok();
            let _ = tell.send(made.map_err(|error| error.to_string()));
            if ok {
                queue.iter().for_each(|job| job());
            }
        });
        let (tap, capture) = told.recv().map_err(|error| error.to_string())??;
        Ok(Self { jobs, tap: Arc::new(tap), capture, seen: Mutex::default() })
    }

    pub(super) fn tap(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.tap)
    }

    /// Does something in this network.
    pub(super) async fn run<T, F>(&self, job: F) -> T
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.jobs.send(Box::new(move || drop(tell.send(job())))).unwrap();
        told.await.unwrap()
    }

    pub(super) fn frames(&self) -> Frames {
        let mut seen = self.seen.lock().unwrap();
        let mut buffer = vec![0; 70_000];
        while let Ok((length, _)) =
            rustix::net::recv(&self.capture, &mut buffer[..], RecvFlags::DONTWAIT)
        {
            seen.push_back(buffer[..length].to_vec());
        }
        Frames(seen.iter().cloned().collect())
    }
}

/// The tap with the host's address on it, and a socket that sees all its frames.
fn up() -> std::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let all = Some(eth::ALL);
    let capture = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, all)?;
    for words in ["addr add 10.213.0.1/16 dev guest0", "link set guest0 up"] {
        let done = Command::new("ip").args(words.split(' ')).output()?;
        if !done.status.success() {
            return Err(std::io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()));
        }
    }
    Ok(capture)
}

impl Frames {
    fn count(&self, with: impl Fn(&[u8]) -> bool) -> usize {
        self.0.iter().filter(|frame| with(frame)).count()
    }

    /// Sent by the owner of this address.
    pub(super) fn from(&self, mac: [u8; 6]) -> usize {
        self.count(|frame| frame.get(6..12) == Some(&mac))
    }

    /// Sent by any guest: their addresses begin alike.
    pub(super) fn guests(&self) -> usize {
        self.count(|frame| frame.get(6..8) == Some(&[2, 0x68]))
    }

    /// With these four bytes anywhere: as an address of IP or ARP.
    pub(super) fn naming(&self, address: Ipv4Addr) -> usize {
        self.count(|frame| frame.windows(4).any(|bytes| bytes == address.octets()))
    }
}

pub(super) struct Machine {
    plan: MachinePlan,
    token: LinkToken,
    pub(super) handle: MachineHandle,
    pub(super) link: Link,
    _ends: EndsWithTest,
}

/// A driver and a machine that booted.
pub(super) struct Bench {
    pub(super) driver: VmDriver,
    pub(super) machine: Machine,
    dir: tempfile::TempDir,
}

impl Bench {
    pub(super) async fn start(nic: Option<Nic>) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = bootable(dir.path()).await?;
        let token = LinkToken::generate().unwrap();
        plan.token_hash_hex = token.hash_hex();
        plan.nic = nic;
        let driver = open(dir.path(), tcg());
        driver.prepare(&plan).await.unwrap();
        let handle = driver.launch(&plan).await.unwrap().handle;
        let _ends = EndsWithTest::of(&handle);
        // The tap is the machine's alone.
        plan.nic = None;
        let link = connect(&handle, &token).await.unwrap();
        let configure = Configure {
            hostname: "guest".into(),
            clock_unix_ms: None,
            entropy: vec![],
            grow_root: false,
        };
        link.ask(configure, CallTerms::at_most(SLOW)).await.unwrap();
        Ok(Self { driver, machine: Machine { plan, token, handle, link, _ends }, dir })
    }

    pub(super) async fn save(&self, name: &str) -> Saved {
        self.save_fork(&self.machine, name).await
    }

    pub(super) async fn save_fork(&self, machine: &Machine, name: &str) -> Saved {
        let folder = SnapshotFolder::new(self.dir.path().join(name));
        let new_top = machine.plan.folders.disk_dir.join(format!("{name}.qcow2"));
        let request = SaveRequest { new_top, memory_into: Some(folder.clone()) };
        let saved = self.driver.save(&machine.handle, &machine.plan, &request).await.unwrap();
        eprintln!("{name}: {saved:?}");
        let Disk { mut layers, top } = machine.plan.disk();
        layers.push(top);
        Saved { folder, layers, token: machine.token.clone() }
    }

    /// A machine from a memory image, running and with a link, as whom it was saved.
    pub(super) async fn fork(&self, number: u32, saved: &Saved, nic: Option<Nic>) -> Machine {
        let name = format!("ws_fork{number}");
        let mut plan = crate::fake::plan(&name, self.dir.path());
        plan.images = self.machine.plan.images.clone();
        plan.uuid = uuid::Uuid::new_v4();
        plan.slot = number;
        plan.token_hash_hex = saved.token.hash_hex();
        plan.disk = Some(Disk { layers: saved.layers.clone(), top: plan.folders.disk() });
        plan.nic = nic;
        self.driver.prepare(&plan).await.unwrap();
        let handle = self.driver.launch_from(&plan, &saved.folder).await.unwrap().handle;
        plan.nic = None;
        let _ends = EndsWithTest::of(&handle);
        let token = saved.token.clone();
        let connecting = {
            let (handle, token) = (handle.clone(), token.clone());
            tokio::spawn(async move { connect(&handle, &token).await.unwrap() })
        };
        self.driver.resume(&handle).await.unwrap();
        let link = connecting.await.unwrap();
        Machine { plan, token, handle, link, _ends }
    }

    pub(super) async fn end_with(self, forks: Vec<Machine>) {
        for Machine { handle, plan, .. } in forks.iter().chain([&self.machine]) {
            self.driver.kill(handle).await.unwrap();
            self.driver.discard(plan, LogsOnDiscard::Remove).await.unwrap();
        }
        self.driver.host_env.cgroups.leave();
    }
}

/// What forks start from.
pub(super) struct Saved {
    folder: SnapshotFolder,
    layers: Vec<PathBuf>,
    token: LinkToken,
}

/// What a script printed. Failures of its commands are in there.
pub(super) async fn run(link: &Link, script: &str) -> String {
    let output = link.exec(exec(script), CallTerms::at_most(SLOW), |_, _| {}).await.unwrap();
    let text = output.stdout.text().text;
    eprintln!("{script}: {text}{}", output.stderr.text().text);
    text.trim().to_owned()
}

pub(super) async fn job(link: &Link, job_id: &str, script: &str) {
    let start = JobStart {
        job_id: job_id.into(),
        argv: Argv::Shell(script.into()),
        env: vec![],
        workdir: None,
        spool_bytes: 10_000,
    };
    link.ask(start, CallTerms::at_most(SLOW)).await.unwrap();
}
