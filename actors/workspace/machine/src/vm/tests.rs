//! Real QEMU runs under software emulation. They boot the image `base` of `TEST_HIVEKEEP_IMAGES`;
//! without it the boot tests say so and end.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use super::control::Control;
use super::*;
use crate::fake;
use crate::{Endpoint, ExitHow, LogsOnDiscard};

const SLOW: Duration = Duration::from_secs(120);

fn no_kvm() -> KvmVerdict {
    KvmVerdict { usable: false, iterations_per_sec: Some(1), reason: "slow".into() }
}

pub(super) fn tcg() -> Options {
    Options {
        accelerator: Accelerator::Tcg,
        carrier: CarrierChoice::VirtioSerial,
        ..Options::default()
    }
}

/// An overlay by qemu-img: the image module's own maker is not this module's business.
fn overlay_maker() -> OverlayMaker {
    Arc::new(|base, size_bytes, disk| {
        let done = std::process::Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
            .args([base, disk])
            .arg(size_bytes.to_string())
            .status()?;
        if done.success() { Ok(()) } else { Err(std::io::Error::other("qemu-img")) }
    })
}

pub(super) fn open(root: &Path, options: Options) -> VmDriver {
    let host_env = HostEnv::open(options, &root.join("run"));
    VmDriver::open(host_env, &no_kvm(), overlay_maker()).unwrap()
}

/// A plan that boots, or the reason why it cannot.
pub(super) async fn bootable(root: &Path) -> Result<MachinePlan, String> {
    let image = fake::image().await?;
    let mut plan = fake::plan("ws_boot", root);
    plan.images.kernel = Some(image.kernel().unwrap().to_owned());
    plan.images.initrd = Some(image.initrd().unwrap().to_owned());
    plan.images.rootfs_ext4 = Some(image.rootfs().to_owned());
    options::find_program(Path::new("qemu-system-x86_64"), QEMU_REMEDY)
        .map_err(|error| error.to_string())?;
    Ok(plan)
}

macro_rules! bootable_or_skip {
    ($root:expr) => {
        match bootable($root).await {
            Ok(plan) => plan,
            Err(why) => return hivekeep_skip::skip(why),
        }
    };
}

/// The guest answers on the port, and its listener is the machine's user.
fn answers_on_port(handle: &MachineHandle) {
    let Endpoint::VirtioSerial { path, peer_uid } = &handle.endpoint else { panic!("{handle:?}") };
    let port = UnixStream::connect(path).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&port).unwrap();
    assert_eq!(peer.uid.as_raw(), *peer_uid);
    fake::sync_echo(port, SLOW).unwrap();
}

fn status_field(pid: i32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_boots_confined_answers_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = bootable_or_skip!(dir.path());
    let driver = open(dir.path(), tcg());
    driver.prepare(&plan).await.unwrap();
    driver.prepare(&plan).await.unwrap();
    let LaunchedMachine { handle, limits } = driver.launch(&plan).await.unwrap();
    let _guard = fake::EndsWithTest::of(&handle);
    let pid = handle.process.pid;

    answers_on_port(&handle);
    assert_eq!(status_field(pid, "NoNewPrivs:"), "1");
    assert_eq!(status_field(pid, "Seccomp:"), "2");
    assert_eq!(u64::from_str_radix(&status_field(pid, "CapEff:"), 16), Ok(0));
    let uid = std::fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    assert_eq!(uid, handle.uid);
    if rustix::process::geteuid().is_root() {
        assert_eq!(uid, 64100);
        assert_eq!(u64::from_str_radix(&status_field(pid, "CapBnd:"), 16), Ok(0));
    }
    if driver.host_env.cgroups.missing().is_none() {
        assert!(matches!(limits.memory, super::super::Enforcement::Yes { .. }), "{limits:?}");
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        for name in ["memory", "cpu", "pids"] {
            let line = groups.lines().find(|line| line.split(':').nth(1) == Some(name));
            assert!(line.unwrap_or(&groups).ends_with("/ws_boot"), "{groups}");
        }
    } else {
        let missing = driver.host_env.cgroups.missing();
        hivekeep_skip::skip(format_args!("the part of cgroups: {missing:?}"));
    }
    let memory = driver.usage(&handle).await.unwrap();
    assert!(memory.rss_bytes > 50 << 20, "{memory:?}");

    driver.kill(&handle).await.unwrap();
    assert_eq!(driver.watch(&handle).await.how, ExitHow::Signaled { signal: 9 });
    assert_eq!(driver.reattach(&handle).await, Err(ReattachError::Ended { pid }));
    let logs = driver.logs(&plan.folders).await.unwrap();
    assert!(!logs.console.is_empty(), "the console was drained: {logs:?}");
    driver.release(&plan).await.unwrap();
    assert!(!plan.folders.run_dir.exists() && plan.folders.disk().exists());
    assert!(handle.cgroup_dirs.iter().all(|dir| !dir.exists()));
    driver.discard(&plan, LogsOnDiscard::Remove).await.unwrap();
    assert!(!plan.folders.disk_dir.exists() && !plan.folders.log_dir.exists());
    driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_daemon_takes_the_machine_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let plan = bootable_or_skip!(dir.path());
    let first = open(dir.path(), tcg());
    first.prepare(&plan).await.unwrap();
    let journalled = serde_json::to_string(&first.launch(&plan).await.unwrap().handle).unwrap();
    drop(first);

    let second = open(dir.path(), tcg());
    let handle: MachineHandle = serde_json::from_str(&journalled).unwrap();
    let _guard = fake::EndsWithTest::of(&handle);
    second.reattach(&handle).await.unwrap();
    let impostor = MachineHandle { uuid: uuid::Uuid::from_u128(1), ..handle.clone() };
    assert!(matches!(second.reattach(&impostor).await, Err(ReattachError::Uncontrollable { .. })));
    let earlier = MachineHandle { boot_id: "another boot".into(), ..handle.clone() };
    assert_eq!(second.reattach(&earlier).await, Err(ReattachError::HostRebooted));
    second.power_down(&handle).await.unwrap();

    let pid = rustix::process::Pid::from_raw(handle.process.pid).unwrap();
    let watched = {
        let handle = handle.clone();
        async move { second.watch(&handle).await }
    };
    let watched = tokio::spawn(watched);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    tokio::time::timeout(Duration::from_secs(10), watched).await.unwrap().unwrap();
    let third = open(dir.path(), tcg());
    assert_eq!(
        third.reattach(&handle).await,
        Err(ReattachError::Ended { pid: handle.process.pid })
    );
    third.release(&plan).await.unwrap();
    third.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_guest_boots_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let plan = bootable_or_skip!(dir.path());
    let driver = open(dir.path(), tcg());
    driver.prepare(&plan).await.unwrap();
    let begun = std::time::Instant::now();
    let handle = driver.launch(&plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);
    eprintln!("controllable after {:?}", begun.elapsed());
    let pic = Control::of(&handle).await.unwrap().monitor("info pic").await.unwrap();
    assert!(pic.contains("pic0") && pic.matches("imr=ff").count() == 2, "{pic}");
    let Endpoint::VirtioSerial { path, .. } = &handle.endpoint else { panic!("{handle:?}") };
    let echoed = fake::sync_echo(UnixStream::connect(path).unwrap(), SLOW);
    let logs = driver.logs(&plan.folders).await;
    assert!(echoed.is_ok(), "{echoed:?} {logs:?}");
    eprintln!("the guest answered after {:?}; {logs:?}", begun.elapsed());
    let words = std::fs::read(format!("/proc/{}/cmdline", handle.process.pid)).unwrap();
    eprintln!("{}", String::from_utf8_lossy(&words).replace('\0', " "));
    driver.kill(&handle).await.unwrap();
    driver.discard(&plan, LogsOnDiscard::Remove).await.unwrap();
    driver.host_env.cgroups.leave();
}

const ORPHANED: &str = "HIVEKEEP_TEST_ORPHAN_ROOT";

/// Plays a daemon that dies right after a launch; started by the next test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills its own process; started by a_machine_outlives_the_death_of_its_daemon"]
async fn launch_and_die() {
    let root = PathBuf::from(std::env::var_os(ORPHANED).expect("the next test sets it"));
    let plan = bootable_or_skip!(&root);
    let driver = open(&root, tcg());
    driver.prepare(&plan).await.unwrap();
    let handle = driver.launch(&plan).await.unwrap().handle;
    std::fs::write(root.join("handle.json"), serde_json::to_vec(&handle).unwrap()).unwrap();
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_outlives_the_death_of_its_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let plan = bootable_or_skip!(dir.path());
    let died = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "vm::tests::launch_and_die", "--ignored"])
        .env(ORPHANED, dir.path())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&died), Some(9));
    let journalled = std::fs::read(dir.path().join("handle.json")).unwrap();
    let handle: MachineHandle = serde_json::from_slice(&journalled).unwrap();
    let _guard = fake::EndsWithTest::of(&handle);

    let driver = open(dir.path(), tcg());
    driver.reattach(&handle).await.unwrap();
    answers_on_port(&handle);
    let pid = rustix::process::Pid::from_raw(handle.process.pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(10), driver.watch(&handle)).await.unwrap();
    assert_eq!(exit.how, ExitHow::Unknown, "it is not a child of ours");
    let console = driver.logs(&plan.folders).await.unwrap().console;
    assert!(!console.is_empty(), "the drain was taken up again");
    driver.release(&plan).await.unwrap();
    driver.host_env.cgroups.leave();
}

/// With `TEST_HIVEKEEP_VHOST_DEVICE_VSOCK` naming the helper.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_ends_with_its_vsock_helper() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = bootable_or_skip!(dir.path());
    let Some(helper) = std::env::var_os("TEST_HIVEKEEP_VHOST_DEVICE_VSOCK") else {
        return hivekeep_skip::skip("TEST_HIVEKEEP_VHOST_DEVICE_VSOCK is not set");
    };
    use std::os::unix::fs::PermissionsExt;
    let open_to_all = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(dir.path(), open_to_all).unwrap();
    let options = Options {
        carrier: CarrierChoice::VhostUserVsock,
        vhost_device_vsock_path: helper.into(),
        ..tcg()
    };
    let driver = open(dir.path(), options);
    assert!(!driver.capabilities().memory_snapshots.is_yes());
    plan.carrier = CarrierKind::VhostUserVsock;
    plan.cid = Some(7);
    driver.prepare(&plan).await.unwrap();
    let handle = driver.launch(&plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);
    let Endpoint::VhostUserVsock { uds_path, .. } = driver.endpoint(&handle) else { panic!() };
    UnixStream::connect(&uds_path).unwrap();
    let pid = rustix::process::Pid::from_raw(handle.helpers[0].pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    tokio::time::timeout(Duration::from_secs(10), driver.watch(&handle)).await.unwrap();
    driver.release(&plan).await.unwrap();
    assert!(!plan.folders.run_dir.exists());
    driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_record_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let plan = bootable_or_skip!(dir.path());
    let driver = open(dir.path(), tcg());
    driver.prepare(&plan).await.unwrap();
    let handle = driver.launch(&plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);

    let run_root = dir.path().join("run");
    let host_env = HostEnv::open(tcg(), &run_root);
    let sweeper = crate::sweep::Sweeper::new(host_env, run_root, &[dir.path().join("disk")]);
    let known = std::collections::HashSet::from([plan.workspace.clone()]);
    assert_eq!(sweeper.find(&known).await.unwrap(), []);
    let (removed, failed) = sweeper.sweep(&Default::default()).await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(removed.len() >= 3, "process, run folder and disk: {removed:?}");
    assert!(handle.process.verify().is_err());
    assert!(!plan.folders.run_dir.exists() && !plan.folders.disk_dir.exists());
    driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_start_tells_why_and_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = bootable_or_skip!(dir.path());
    let driver = open(dir.path(), tcg());
    driver.prepare(&plan).await.unwrap();
    let junk = dir.path().join("junk");
    std::fs::write(&junk, "no kernel").unwrap();
    plan.images.kernel = Some(junk);
    let error = driver.launch(&plan).await.unwrap_err();
    let Error::DiedAtStart { stderr_tail, .. } = &error else { panic!("{error}") };
    assert!(stderr_tail.contains("qemu"), "{error}");
    let logs = driver.logs(&plan.folders).await.unwrap();
    assert!(logs.stderr.contains(stderr_tail.as_str()));
    driver.release(&plan).await.unwrap();
    driver.host_env.cgroups.leave();
}

#[test]
fn kvm_is_used_only_where_it_is_fast() {
    let fast = KvmVerdict { usable: true, ..no_kvm() };
    assert_eq!(choose_accelerator(Accelerator::Auto, &fast).unwrap(), AcceleratorKind::Kvm);
    assert_eq!(choose_accelerator(Accelerator::Tcg, &fast).unwrap(), AcceleratorKind::Tcg);
    assert_eq!(choose_accelerator(Accelerator::Auto, &no_kvm()).unwrap(), AcceleratorKind::Tcg);
    let refused = choose_accelerator(Accelerator::Kvm, &no_kvm());
    assert!(matches!(refused, Err(Error::KvmUnusable { .. })));
}

#[test]
fn a_disk_appears_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = fake::plan("ws_disk", dir.path());
    plan.images.rootfs_ext4 = Some(dir.path().join("base"));
    host_env::make_folders(&plan).unwrap();
    let failing: OverlayMaker = Arc::new(|_, _, disk| {
        std::fs::write(disk, "half")?;
        Err(std::io::ErrorKind::StorageFull.into())
    });
    assert!(matches!(make_disk(&plan, &failing), Err(Error::Io { .. })));
    assert!(!plan.folders.disk().exists());
    let working: OverlayMaker = Arc::new(|_, size, disk| std::fs::write(disk, size.to_string()));
    make_disk(&plan, &working).unwrap();
    make_disk(&plan, &failing).unwrap();
    assert_eq!(std::fs::read_to_string(plan.folders.disk()).unwrap(), (1u64 << 30).to_string());
}

#[tokio::test]
async fn required_limits_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { cgroup_required: true, ..tcg() };
    let host =
        crate::cgroup::CgroupMounts { mountinfo: String::new(), own: String::new(), root: true };
    let mut driver =
        match VmDriver::open(HostEnv::open(options, dir.path()), &no_kvm(), overlay_maker()) {
            Ok(driver) => driver,
            Err(error) => return hivekeep_skip::skip(error),
        };
    driver.host_env.cgroups.leave();
    driver.host_env.cgroups = crate::cgroup::Cgroups::on(&host, "none");
    let plan = fake::plan("ws_limits", dir.path());
    let error = driver.launch(&plan).await.unwrap_err();
    assert!(matches!(error, Error::LimitsUnavailable { what: "memory", .. }), "{error}");
    assert!(!plan.folders.run_dir.exists());
}
