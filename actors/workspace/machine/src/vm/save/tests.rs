//! Real machines that are saved, restored and forked.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use hivekeep_link::{CallTerms, Link, LinkError, LinkOptions, LinkToken};
use hivekeep_protocol::{
    Argv, Configure, JobStart, Quiesce, Reidentified, Reidentify, RunCommand, TasksKeep, Thaw,
};
use tokio_util::sync::CancellationToken;

use super::super::args::Processor;
use super::super::launch::{self, Origin};
use super::super::tests::{bootable, open, tcg};
use super::*;
use crate::{Disk, Driver, ExitHow, LogsOnDiscard, ProcessId, Snapshots};

const SLOW: Duration = Duration::from_secs(120);

/// Processors that have CMPXCHG16B.
const CX16: &str = "grep -cw cx16 /proc/cpuinfo || :";

/// A driver, and a running machine whose guest counts in a background job.
struct Bench {
    dir: tempfile::TempDir,
    driver: VmDriver,
    plan: MachinePlan,
    token: LinkToken,
    handle: MachineHandle,
    link: Link,
    living: Mutex<Vec<ProcessId>>,
}

/// A failed test leaves no machine behind.
impl Drop for Bench {
    fn drop(&mut self) {
        for process in self.living.get_mut().unwrap() {
            let pid = rustix::process::Pid::from_raw(process.pid).unwrap();
            if process.verify().is_ok() {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// A machine that was started from a memory image.
struct Fork {
    plan: MachinePlan,
    token: LinkToken,
    handle: MachineHandle,
    link: Link,
    told: Reidentified,
    /// Behind this the template's clock, which stood still in the image, cannot be.
    asked_at_ms: u64,
}

pub(in super::super) async fn connect(
    handle: &MachineHandle,
    token: &LinkToken,
) -> Result<Link, LinkError> {
    let options = LinkOptions { deadline_ms: 60_000, ..LinkOptions::default() };
    let cancel = CancellationToken::new();
    Link::connect(&handle.endpoint, token, &options, &cancel).await.map(|(link, _)| link)
}

pub(in super::super) fn exec(script: &str) -> RunCommand {
    RunCommand {
        argv: Argv::Shell(script.into()),
        env: vec![],
        workdir: None,
        timeout_ms: 60_000,
        max_output_bytes: 1 << 20,
    }
}

async fn run(link: &Link, script: &str) -> String {
    let output = link.exec(exec(script), CallTerms::at_most(SLOW), |_, _| {}).await.unwrap();
    let text = output.stdout.text().text;
    assert!(output.stderr.bytes.is_empty(), "{script}: {}", output.stderr.text().text);
    text.trim().to_owned()
}

async fn counter(link: &Link) -> u64 {
    // The file is empty for a moment each time it is written.
    let script = "until n=$(cat /tmp/count) && [ -n \"$n\" ]; do :; done; echo $n";
    run(link, script).await.parse().unwrap()
}

async fn goes_on(link: &Link, from: u64) {
    let script =
        format!("until [ \"$(cat /tmp/count)\" -gt {from} ] 2>/dev/null; do sleep 0.1; done");
    run(link, &script).await;
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

impl Bench {
    /// `processor` is that of earlier daemons where a test is about their machines.
    async fn start(processor: Processor) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = bootable(dir.path()).await?;
        let token = LinkToken::generate().unwrap();
        plan.token_hash_hex = token.hash_hex();
        let driver = open(dir.path(), tcg());
        driver.prepare(&plan).await.unwrap();
        let launched = launch::launch(&driver, &plan, Origin::Boot, processor).await;
        let handle = launched.unwrap().handle;
        let living = Mutex::new(vec![handle.process]);
        let link = connect(&handle, &token).await.unwrap();
        let configure = Configure {
            hostname: "template".into(),
            clock_unix_ms: Some(unix_ms()),
            entropy: vec![],
            grow_root: false,
        };
        link.ask(configure, CallTerms::at_most(SLOW)).await.unwrap();
        let count = JobStart {
            job_id: "job_count".into(),
            argv: Argv::Shell(
                "n=0; while :; do n=$((n+1)); echo $n > /tmp/count; sleep 0.5; done".into(),
            ),
            env: vec![],
            workdir: None,
            spool_bytes: 1000,
        };
        link.ask(count, CallTerms::at_most(SLOW)).await.unwrap();
        run(&link, "until [ -s /tmp/count ]; do sleep 0.1; done; echo template > /root/mine").await;
        link.ask(Quiesce { freeze_ms: None }, CallTerms::at_most(SLOW)).await.unwrap();
        Ok(Self { dir, driver, plan, token, handle, link, living })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn save(
        &self,
        handle: &MachineHandle,
        plan: &MachinePlan,
        name: &str,
    ) -> (SnapshotFolder, SaveResult) {
        let folder = SnapshotFolder::new(self.path(name));
        let new_top = plan.folders.disk_dir.join(format!("{name}.qcow2"));
        let request = SaveRequest { new_top, memory_into: Some(folder.clone()) };
        let saved = self.driver.save(handle, plan, &request).await.unwrap();
        eprintln!("{name}: {saved:?}");
        (folder, saved)
    }

    /// `number` makes the fork's name, user and identity; `layers` are the snapshot's.
    async fn fork(
        &self,
        number: u32,
        layers: Vec<PathBuf>,
        snapshot: &SnapshotFolder,
        old_token: &LinkToken,
    ) -> Fork {
        self.fork_of(number, layers, snapshot, old_token, false).await
    }

    /// The same, where its tasks may go on.
    async fn fork_of(
        &self,
        number: u32,
        layers: Vec<PathBuf>,
        snapshot: &SnapshotFolder,
        old_token: &LinkToken,
        keeps_tasks: bool,
    ) -> Fork {
        let mut plan = crate::fake::plan(&format!("ws_fork{number}"), self.dir.path());
        plan.images = self.plan.images.clone();
        plan.uuid = uuid::Uuid::new_v4();
        plan.slot = number;
        plan.hostname = format!("fork{number}");
        let token = LinkToken::generate().unwrap();
        plan.token_hash_hex = token.hash_hex();
        plan.disk = Some(Disk { layers, top: plan.folders.disk() });
        self.driver.prepare(&plan).await.unwrap();
        let begun = Instant::now();
        let handle = self.driver.launch_from(&plan, snapshot).await.unwrap().handle;
        self.living.lock().unwrap().push(handle.process);
        assert!(self.driver.is_paused(&handle).await.unwrap());
        let launched = begun.elapsed();
        let connecting = {
            let (handle, old_token) = (handle.clone(), old_token.clone());
            tokio::spawn(async move { connect(&handle, &old_token).await.unwrap() })
        };
        self.driver.resume(&handle).await.unwrap();
        let link = connecting.await.unwrap();
        let linked = begun.elapsed();
        let mut entropy = vec![0; 64];
        getrandom::fill(&mut entropy).unwrap();
        if keeps_tasks {
            let machine_id = plan.uuid.simple().to_string();
            let kept = link.ask(TasksKeep { machine_id }, CallTerms::at_most(SLOW)).await;
            assert_eq!(kept.unwrap().open, 1);
        }
        let asked = Reidentify {
            token_hash: *blake3::Hash::from_hex(&plan.token_hash_hex).unwrap().as_bytes(),
            hostname: plan.hostname.clone(),
            machine_id: plan.uuid.simple().to_string(),
            instance_id: plan.uuid.to_string(),
            clock_unix_ms: unix_ms(),
            entropy,
        };
        let asked_at_ms = asked.clock_unix_ms;
        let told = link.ask(asked, CallTerms::at_most(SLOW)).await.unwrap();
        eprintln!(
            "fork {number}: loaded {launched:?}, linked {linked:?}, itself {:?}",
            begun.elapsed()
        );
        Fork { plan, token, handle, link, told, asked_at_ms }
    }

    async fn end(&self, plan: &MachinePlan, handle: &MachineHandle) {
        self.driver.kill(handle).await.unwrap();
        // Unknown where a second driver in this process was the one to reap it.
        let how = self.driver.watch(handle).await.how;
        assert!(matches!(how, ExitHow::Signaled { signal: 9 } | ExitHow::Unknown), "{how}");
        self.driver.discard(plan, LogsOnDiscard::Remove).await.unwrap();
    }
}

fn hash(path: &Path) -> blake3::Hash {
    blake3::hash(&std::fs::read(path).unwrap())
}

macro_rules! bench_or_skip {
    () => {
        bench_or_skip!(Processor::Current)
    };
    ($processor:expr) => {
        match Bench::start($processor).await {
            Ok(bench) => bench,
            Err(why) => return hivekeep_skip::skip(why),
        }
    };
}

mod parking;
mod tasks;

#[tokio::test(flavor = "multi_thread")]
async fn forks_of_a_running_machine_go_on_from_one_moment_each_as_itself() {
    let bench = bench_or_skip!();
    // The link is not at rest meanwhile: what is sent to a guest that stands still waits for it.
    let (talking, link) = (CancellationToken::new(), bench.link.clone());
    let talk = tokio::spawn(talking.clone().run_until_cancelled_owned(async move {
        loop {
            link.ping(CallTerms::at_most(SLOW)).await.unwrap();
        }
    }));
    let (snapshot, saved) = bench.save(&bench.handle, &bench.plan, "one").await;
    talking.cancel();
    assert!(talk.await.unwrap().is_none(), "the source's link lives");
    assert!(saved.layer_is_read_only && saved.pause_ms > 0);
    let memory = saved.memory.unwrap();
    assert!(memory.copied_in_pause_bytes < memory.ram_bytes / 2, "most was copied before");
    assert!(snapshot.is_complete() && snapshot.bytes().unwrap() < 2 * memory.ram_bytes);
    let at_source = counter(&bench.link).await;
    assert_eq!(run(&bench.link, CX16).await, "0", "see `Processor`");

    let frozen = bench.plan.disk().top;
    let parts = [snapshot.ram(), snapshot.device(), frozen.clone()];
    let before = parts.clone().map(|path| hash(&path));
    let mut forks = Vec::new();
    for number in 1..=5 {
        forks.push(bench.fork(number, vec![frozen.clone()], &snapshot, &bench.token).await);
    }
    let (mut names, mut ids, mut random) = (HashSet::new(), HashSet::new(), HashSet::new());
    for fork in &forks {
        let name = fork.plan.hostname.clone();
        let seen = run(
            &fork.link,
            "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'; \
             echo; date +%s; grep -c \"127.0.1.1.*$(hostname)\" /etc/hosts; cat /root/mine",
        )
        .await;
        let now = unix_ms() / 1000 + 1;
        let lines: Vec<&str> = seen.lines().collect();
        let [host, id, bytes, clock, in_hosts, mine] = lines[..] else { panic!("{seen}") };
        assert_eq!((host, in_hosts, mine), (name.as_str(), "1", "template"), "{seen}");
        assert_eq!((id, fork.told.machine_id.as_str()), (fork.told.machine_id.as_str(), id));
        assert_eq!(fork.told.instance_id, fork.plan.uuid.to_string());
        let clock: u64 = clock.parse().unwrap();
        assert!((fork.asked_at_ms / 1000..=now).contains(&clock), "{clock} {}", fork.asked_at_ms);
        assert!(names.insert(host.to_owned()) && ids.insert(id.to_owned()), "{seen}");
        assert!(random.insert(bytes.to_owned()), "{seen}");
        // Memory and disk of its own: written here and seen nowhere else.
        run(
            &fork.link,
            &format!("echo {name} > /root/mine; head -c 8000000 /dev/urandom > /dev/shm/x; sync"),
        )
        .await;
    }
    let cold = bench.driver.usage(&bench.handle).await.unwrap();
    for fork in &forks {
        let memory = bench.driver.usage(&fork.handle).await.unwrap();
        eprintln!("a fork takes {memory:?}; the machine that booted {cold:?}");
        let first = counter(&fork.link).await;
        goes_on(&fork.link, first).await;
        assert_eq!(run(&fork.link, "cat /root/mine").await, fork.plan.hostname);
    }
    assert_eq!(run(&bench.link, "cat /root/mine; hostname").await, "template\ntemplate");
    goes_on(&bench.link, at_source).await;
    assert_eq!(parts.map(|path| hash(&path)), before, "the template did not change");
    for fork in &forks {
        bench.end(&fork.plan, &fork.handle).await;
    }
    bench.driver.discard_snapshot(&snapshot).await.unwrap();
    bench.end(&bench.plan, &bench.handle).await;
    bench.driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_can_be_saved_forked_and_keeps_its_token_over_a_restart_of_the_guest_daemon() {
    let bench = bench_or_skip!(Processor::WithCx16);
    let (snapshot, _) = bench.save(&bench.handle, &bench.plan, "one").await;
    let frozen = bench.plan.disk().top;
    let fork = bench.fork(1, vec![frozen.clone()], &snapshot, &bench.token).await;
    run(&fork.link, "echo first > /root/mine; sync").await;
    let (second, saved) = bench.save(&fork.handle, &fork.plan, "two").await;
    assert!(saved.memory.unwrap().ram_bytes > 0 && second.is_complete());
    assert!(!bench.dir.path().join("run/ws_fork1-convert").exists());
    run(&fork.link, "echo later > /root/mine").await;

    let layers = vec![frozen, fork.plan.disk().top];
    let grandchild = bench.fork(2, layers, &second, &fork.token).await;
    let seen = run(&grandchild.link, "cat /root/mine; hostname").await;
    assert_eq!(seen, "first\nfork2");
    // QEMU knows the fork by its own uuid; the guest is told none.
    bench.driver.reattach(&grandchild.handle).await.unwrap();
    let told = "cat /sys/class/dmi/id/product_uuid 2>/dev/null || echo none";
    assert_eq!(run(&grandchild.link, told).await, "none");
    assert!(counter(&grandchild.link).await > 0);
    // It was saved as an earlier daemon booted it, and has its processor.
    assert_eq!(run(&grandchild.link, CX16).await, "1");
    assert_eq!(run(&fork.link, "cat /root/mine").await, "later");

    // The guest's daemon dies; its successor was started with the template's token.
    let kill = exec(
        "for p in /proc/[0-9]*; do case \"$(tr '\\0' ' ' < $p/cmdline)\" in \
         'hivekeep-guest agent '*) kill -9 ${p#/proc/};; esac; done; sleep 60",
    );
    let killed = fork.link.exec(kill, CallTerms::at_most(Duration::from_secs(20)), |_, _| {}).await;
    assert!(killed.is_err(), "{killed:?}");
    drop(fork.link);
    let refused = connect(&fork.handle, &bench.token).await.unwrap_err();
    assert!(matches!(refused, LinkError::Refused(_)), "{refused}");
    let link = connect(&fork.handle, &fork.token).await.unwrap();
    assert_eq!(run(&link, "hostname").await, "fork1");

    // A later daemon has nothing but the handle from the journal.
    let journalled = serde_json::to_string(&bench.handle).unwrap();
    let handle: MachineHandle = serde_json::from_str(&journalled).unwrap();
    let later = open(bench.dir.path(), tcg());
    later.reattach(&handle).await.unwrap();
    let third = SnapshotFolder::new(bench.path("three"));
    let new_top = bench.plan.folders.disk_dir.join("three.qcow2");
    let request = SaveRequest { new_top, memory_into: Some(third.clone()) };
    later.save(&handle, &bench.plan_after("one"), &request).await.unwrap();
    assert!(third.is_complete(), "a machine can be saved again");
    for (plan, handle) in [(&fork.plan, &fork.handle), (&grandchild.plan, &grandchild.handle)] {
        bench.end(plan, handle).await;
    }
    bench.end(&bench.plan, &bench.handle).await;
    bench.driver.host_env.cgroups.leave();
}

impl Bench {
    /// The source's plan after [`Bench::save`] under this name.
    fn plan_after(&self, name: &str) -> MachinePlan {
        let mut disk = self.plan.disk();
        disk.layers.push(disk.top);
        disk.top = self.plan.folders.disk_dir.join(format!("{name}.qcow2"));
        MachinePlan { disk: Some(disk), ..self.plan.clone() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_refused_and_a_paused_machine_stays_paused() {
    let bench = bench_or_skip!();
    let (driver, handle) = (&bench.driver, &bench.handle);
    driver.pause(handle).await.unwrap();
    driver.pause(handle).await.unwrap();
    let (snapshot, saved) = bench.save(handle, &bench.plan, "one").await;
    assert!(driver.is_paused(handle).await.unwrap());
    assert_eq!(saved.memory.unwrap().copied_in_pause_bytes, 0, "nothing changes in a pause");

    let mut larger = MachinePlan { memory_mb: 512, ..bench.plan.clone() };
    larger.workspace = "ws_other".into();
    let refused = driver.launch_from(&larger, &snapshot).await.unwrap_err();
    assert!(matches!(refused, Error::ShapeDiffers { what: "memory_mb", .. }), "{refused}");
    std::fs::remove_file(snapshot.device()).unwrap();
    let refused = driver.launch_from(&bench.plan, &snapshot).await.unwrap_err();
    assert!(matches!(refused, Error::SnapshotDamaged { .. }), "{refused}");
    driver.discard_snapshot(&snapshot).await.unwrap();
    assert!(!snapshot.path().exists());

    // Rolled forward: the top is there already. Neither the old nor the new one is refused.
    let after = bench.plan_after("one");
    assert!(driver.switch_disk(handle, &bench.plan, &after.disk().top).await.unwrap());
    let strange = MachinePlan { disk: None, ..bench.plan.clone() };
    let refused = driver.switch_disk(handle, &strange, &bench.path("far.qcow2")).await;
    assert!(matches!(refused, Err(Error::BadPlan(_))), "{refused:?}");

    // Without a parent for the folder nothing is begun; the guest is as it was.
    let lost = SnapshotFolder::new(bench.path("no/such/folder"));
    let request = SaveRequest { new_top: bench.path("x.qcow2"), memory_into: Some(lost) };
    assert!(driver.save(handle, &after, &request).await.is_err());
    // Neither with a file that is no layer.
    let (junk, folder) = (bench.path("junk"), SnapshotFolder::new(bench.path("never")));
    std::fs::write(&junk, "junk").unwrap();
    let request = SaveRequest { new_top: junk.clone(), memory_into: Some(folder.clone()) };
    for _ in 0..2 {
        let refused = driver.save(handle, &after, &request).await;
        assert!(matches!(refused, Err(Error::Qmp(_))), "{refused:?}");
        assert!(!folder.path().exists());
    }
    driver.resume(handle).await.unwrap();
    driver.resume(handle).await.unwrap();
    assert!(!driver.is_paused(handle).await.unwrap());
    let first = counter(&bench.link).await;
    run(&bench.link, "echo still > /root/mine; sync").await;
    goes_on(&bench.link, first).await;

    // A disk alone, frozen by the guest meanwhile.
    let wait = || CallTerms::at_most(SLOW);
    let quiesced = bench.link.ask(Quiesce { freeze_ms: Some(20_000) }, wait()).await.unwrap();
    assert!(quiesced.frozen);
    let top = bench.plan.folders.disk_dir.join("disk-only.qcow2");
    let request = SaveRequest { new_top: top.clone(), memory_into: None };
    let saved = driver.save(handle, &after, &request).await.unwrap();
    assert!(saved.memory.is_none() && saved.layer_is_read_only && top.exists());
    assert!(bench.link.ask(Thaw, wait()).await.unwrap().was_frozen);
    assert!(!bench.link.ask(Thaw, wait()).await.unwrap().was_frozen);
    bench.link.ask(Quiesce { freeze_ms: Some(1) }, wait()).await.unwrap();
    run(&bench.link, "echo thawed by itself > /root/mine; sync").await;
    bench.end(&bench.plan, handle).await;
    driver.host_env.cgroups.leave();
}
