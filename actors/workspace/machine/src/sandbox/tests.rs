//! Real bubblewrap runs. `TEST_HIVEKEEP_GUEST` names the static guest daemon; without it a shell
//! script stands in for the tests that only need processes.

use std::time::Duration;

use super::*;
use crate::fake;
use crate::options::MachineUser;
use crate::process;
use crate::trash;
use crate::{Endpoint, ExitHow, Landlock, LandlockExtent, Options};

macro_rules! or_skip {
    ($bench:expr) => {
        match $bench {
            Ok(bench) => bench,
            Err(why) => return hivekeep_skip::skip(why),
        }
    };
}

mod ordinary;
mod several;

struct Bench {
    dir: tempfile::TempDir,
    driver: SandboxDriver,
    plan: MachinePlan,
}

/// A driver whose guest daemon is `guest`, over the host's own tree.
fn bench(guest: &Path) -> Result<Bench, Error> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    let own = dir.path().join("guest");
    std::fs::copy(guest, &own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = Options { guest_path: own, ..Options::default() };
    let driver = SandboxDriver::open(HostEnv::open(options, &dir.path().join("run")))?;
    let mut plan = fake::plan("ws_box", dir.path());
    plan.carrier = CarrierKind::Unix;
    plan.images.rootfs_tree = Some("/".into());
    Ok(Bench { dir, driver, plan })
}

/// A bench over a tree of a static busybox alone.
fn bench_of_busybox() -> Result<Bench, String> {
    let busybox = options::find_program(Path::new("busybox"), "apt-get install busybox-static")
        .map_err(|error| error.to_string())?;
    let program = std::fs::read(&busybox).unwrap();
    if program.windows(9).take(8192).any(|bytes| bytes == b"/ld-linux") {
        return Err("busybox is not static: apt-get install busybox-static".into());
    }
    let mut bench = bench(&busybox).map_err(|error| error.to_string())?;
    let tree = bench.dir.path().join("tree");
    std::fs::create_dir_all(tree.join("bin")).unwrap();
    std::fs::copy(&busybox, tree.join("bin/busybox")).unwrap();
    bench.plan.images.rootfs_tree = Some(tree);
    Ok(bench)
}

/// A script that plays process 1, run by that busybox.
fn stand_in(script: &str) -> Result<Bench, String> {
    let bench = bench_of_busybox()?;
    let script = format!("#!/lower/bin/busybox sh\n{script}\n");
    std::fs::write(&bench.driver.guest, script).unwrap();
    Ok(bench)
}

/// The real guest daemon over a built image.
async fn real_guest() -> Result<Bench, String> {
    let guest = std::env::var_os("TEST_HIVEKEEP_GUEST").ok_or("TEST_HIVEKEEP_GUEST is not set")?;
    let mut bench = bench(Path::new(&guest)).map_err(|error| error.to_string())?;
    let (store, image) = (fake::images()?, fake::image().await?);
    let tree = store.resolve_tree(&image).await.map_err(|error| error.to_string())?;
    bench.plan.images.rootfs_tree = Some(tree);
    Ok(bench)
}

async fn end(bench: &Bench) {
    bench.driver.discard(&bench.plan, LogsOnDiscard::Remove).await.unwrap();
    trash::tests::wait_empty(&bench.dir.path().join("disk"));
    for folder in ["run", "disk", "log"] {
        let left = std::fs::read_dir(bench.dir.path().join(folder)).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == trash::TRASH), "{folder}: {left:?}");
    }
    assert!(bench.driver.host_env.cgroups.dirs(&bench.plan.workspace).is_empty());
    bench.driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_process_one_kills_everything_in_it() {
    let daemonise = "b=/lower/bin/busybox; $b setsid $b sleep 600 & \
        trap '' TERM; while :; do $b sleep 600; done";
    let bench = or_skip!(stand_in(daemonise));
    let (driver, plan) = (&bench.driver, &bench.plan);
    driver.prepare(plan).await.unwrap();
    let handle = match driver.launch(plan).await {
        Ok(launched) => launched.handle,
        Err(error) => panic!("{error}; {:?}", driver.logs(&plan.folders).await),
    };
    let _guard = fake::EndsWithTest::of(&handle);
    driver.reattach(&handle).await.unwrap();
    let all_up = async {
        loop {
            let inside = process::processes(&handle);
            // Both halves of bubblewrap, and two sleeps.
            if inside.len() >= 4 {
                return inside;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let inside = tokio::time::timeout(Duration::from_secs(20), all_up).await.unwrap();
    driver.power_down(&handle).await.unwrap();
    assert_eq!(handle.verify_process(), Ok(()), "it ignores SIGTERM");
    driver.kill(&handle).await.unwrap();
    assert_eq!(driver.watch(&handle).await.how, ExitHow::Signaled { signal: 9 });
    for pid in inside {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    }
    end(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_ends_is_told_with_its_status() {
    let bench = or_skip!(bench_of_true());
    let (driver, plan) = (&bench.driver, &bench.plan);
    driver.prepare(plan).await.unwrap();
    match driver.launch(plan).await {
        Ok(launched) => {
            let exit = driver.watch(&launched.handle).await;
            assert!(matches!(exit.how, ExitHow::Exited { code } if code != 0), "{exit:?}");
            assert!(!exit.stderr_tail.is_empty(), "{exit:?}");
        }
        // It may end before its start time can be read.
        Err(Error::DiedAtStart { how, .. }) => assert!(matches!(how, ExitHow::Exited { .. })),
        Err(error) => panic!("{error}"),
    }
    end(&bench).await;
}

const ORPHANED: &str = "HIVEKEEP_TEST_ORPHAN_HANDLE";

/// Plays a daemon that dies right after a launch; started by the next test.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "kills its own process; started by a_sandbox_outlives_the_death_of_its_daemon"]
async fn launch_and_die() {
    let file = PathBuf::from(std::env::var_os(ORPHANED).expect("the next test sets it"));
    let bench = or_skip!(stand_in("while :; do /lower/bin/busybox sleep 600; done"));
    bench.driver.prepare(&bench.plan).await.unwrap();
    let handle = bench.driver.launch(&bench.plan).await.unwrap().handle;
    std::fs::write(file, serde_json::to_vec(&handle).unwrap()).unwrap();
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    std::future::pending().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_outlives_the_death_of_its_daemon() {
    let bench = or_skip!(stand_in(""));
    let file = bench.dir.path().join("handle.json");
    let died = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sandbox::tests::launch_and_die", "--ignored"])
        .env(ORPHANED, &file)
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&died), Some(9));
    let handle: MachineHandle = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let _guard = fake::EndsWithTest::of(&handle);
    // A driver on the dead daemon's folders, which are not this bench's own.
    let root = handle.folders.run_dir.ancestors().nth(2).unwrap().to_owned();
    let mut plan = bench.plan.clone();
    plan.folders = handle.folders.clone();
    let host_env = HostEnv::open(bench.driver.host_env.options.clone(), &root.join("run"));
    let driver = SandboxDriver::open(host_env).unwrap();
    driver.reattach(&handle).await.unwrap();
    driver.kill(&handle).await.unwrap();
    assert!(driver.reattach(&handle).await.is_err());
    driver.discard(&plan, LogsOnDiscard::Remove).await.unwrap();
    assert!(handle.cgroup_dirs.iter().all(|dir| !dir.exists()));
    driver.host_env.cgroups.leave();
    bench.driver.host_env.cgroups.leave();
    trash::tests::wait_empty(&root.join("disk"));
    std::fs::remove_dir_all(root).unwrap();
}

/// A guest that cannot be executed: bubblewrap itself complains and ends.
fn bench_of_true() -> Result<Bench, String> {
    let bench = stand_in("")?;
    std::fs::write(&bench.driver.guest, "#!/no/such/interpreter\n").unwrap();
    Ok(bench)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_guest_serves_its_socket() {
    let bench = or_skip!(real_guest().await);
    let (driver, plan) = (&bench.driver, &bench.plan);
    driver.prepare(plan).await.unwrap();
    let begun = std::time::Instant::now();
    let handle = driver.launch(plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);
    let launched = begun.elapsed();
    let Endpoint::Unix { path, peer_uid } = &handle.endpoint else { panic!() };
    let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    assert_eq!(peer.uid.as_raw(), *peer_uid);
    let echoed = fake::sync_echo(stream, Duration::from_secs(20));
    let logs = driver.logs(&plan.folders).await;
    assert!(echoed.is_ok(), "{echoed:?} {logs:?}");
    eprintln!("launched in {launched:?}, answered after {:?}", begun.elapsed());
    driver.power_down(&handle).await.unwrap();
    let exit = tokio::time::timeout(Duration::from_secs(30), driver.watch(&handle)).await;
    assert_eq!(exit.expect("it ends when asked").how, ExitHow::Exited { code: 0 });
    driver.kill(&handle).await.unwrap();
    end(&bench).await;
}

/// Kills the guest daemon once it serves; process 1 says so on its console.
async fn kill_the_agent(handle: &MachineHandle) {
    let Endpoint::Unix { path, .. } = &handle.endpoint else { panic!("{handle:?}") };
    // Nobody listens between two agents.
    let serves = || {
        let stream = std::os::unix::net::UnixStream::connect(path);
        stream.is_ok_and(|stream| fake::sync_echo(stream, Duration::from_secs(20)).is_ok())
    };
    // A connection may still be the last agent's.
    while !serves() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let line = |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_agent = |pid: &i32| line(pid).starts_with(b"hivekeep-guest\0agent\0");
    let agent = process::processes(handle).into_iter().find(is_agent).expect("an agent");
    let agent = rustix::process::Pid::from_raw(agent).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
}

async fn console_says(driver: &SandboxDriver, plan: &MachinePlan, times: usize) {
    let said = async {
        while driver.logs(&plan.folders).await.unwrap().console.matches("agent ended").count()
            != times
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let said = tokio::time::timeout(Duration::from_secs(20), said).await;
    assert!(said.is_ok(), "{times} times: {:?}", driver.logs(&plan.folders).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_is_no_file_and_waits_for_the_next_daemon() {
    let bench = or_skip!(real_guest().await);
    let (driver, plan) = (&bench.driver, &bench.plan);
    driver.prepare(plan).await.unwrap();
    let handle = driver.launch(plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);
    kill_the_agent(&handle).await;
    console_says(driver, plan, 1).await;
    for pid in process::processes(&handle) {
        if handle.helpers.iter().any(|helper| helper.pid == pid) {
            continue;
        }
        for fd in 0..3 {
            let open = std::fs::metadata(format!("/proc/{pid}/fd/{fd}"));
            assert!(!open.is_ok_and(|open| open.is_file()), "{pid} has a file of the host's");
        }
    }
    // The daemon is away, and comes back.
    driver.host_env.end_beside(&plan.workspace);
    kill_the_agent(&handle).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    console_says(driver, plan, 1).await;
    driver.reattach(&handle).await.unwrap();
    console_says(driver, plan, 2).await;
    let logs = driver.logs(&plan.folders).await.unwrap();
    let landlock = match driver.facts.confinement.as_ref().unwrap().landlock.enforced {
        LandlockExtent::Full => "landlock fully enforced",
        LandlockExtent::Partial => "landlock partially enforced",
        LandlockExtent::None => "landlock not available",
    };
    assert!(logs.stderr.contains(landlock), "{landlock}: {}", logs.stderr);
    driver.kill(&handle).await.unwrap();
    driver.release(plan).await.unwrap();
    console_says(driver, plan, 2).await;
    end(&bench).await;
}

#[tokio::test]
async fn a_kernel_without_all_of_landlock_is_refused_where_it_is_required() {
    let mut bench = or_skip!(stand_in("exit 0"));
    bench.driver.host_env.options.sandbox.landlock_required = true;
    bench.driver.facts.confinement.as_mut().unwrap().landlock = Landlock::of(5);
    bench.driver.prepare(&bench.plan).await.unwrap();
    let error = bench.driver.launch(&bench.plan).await.unwrap_err();
    assert!(matches!(&error, Error::LandlockIncomplete { missing } if missing.contains("signals")));
    let refusal = hivekeep_kernel::ToolError::from(error);
    assert_eq!(refusal.code, "landlock_incomplete");
    assert!(refusal.next_step.unwrap().contains("landlock_required"));
    assert!(!bench.plan.folders.console_pipe().exists(), "nothing was begun");
    end(&bench).await;
}

#[tokio::test]
async fn what_a_sandbox_cannot_do_is_refused_by_name() {
    let bench = or_skip!(stand_in("exit 0"));
    let capabilities = bench.driver.capabilities();
    for support in
        [&capabilities.memory_snapshots, &capabilities.own_kernel, &capabilities.disk_limit]
    {
        assert!(!support.is_yes());
    }
    let vm_plan = MachinePlan { carrier: CarrierKind::VirtioSerial, ..bench.plan.clone() };
    assert!(matches!(bench.driver.launch(&vm_plan).await, Err(Error::BadPlan(_))));
    bench.driver.host_env.cgroups.leave();
}

#[test]
fn a_closed_folder_on_the_way_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let user = MachineUser { uid: 64100, gid: 64100, switch: true };
    let error = super::super::spawn::reachable(&closed.join("guest"), user).unwrap_err();
    assert!(matches!(error, Error::Unreachable { ref folder, .. } if *folder == closed), "{error}");
}
