//! A daemon of an ordinary user with a range of subordinate users. These tests are root's: in a
//! mount namespace they give a user of the host such a range, and become that user.

use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use super::*;
use crate::HostUser;
use crate::doctor;
use crate::sweep::{Leftover, Sweeper};

/// Of Debian's, and used by nothing.
const USER: &str = "games";
const FIRST: u32 = 300_000;
const COUNT: u32 = 50;
/// The folder of a test, for the part of it that runs as that user.
const FOLDER: &str = "TEST_HIVEKEEP_ORDINARY_USER";

/// Runs the ignored test of this name as [`USER`], who has `subuid` for a range.
fn as_ordinary_user(test: &str, subuid: &str) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root becomes another user".into());
    }
    let guest = std::env::var_os("TEST_HIVEKEEP_GUEST").ok_or("TEST_HIVEKEEP_GUEST is not set")?;
    for program in ["newuidmap", "getsubids", "setpriv", "busybox"] {
        options::find_program(Path::new(program), "cargo xtask setup")
            .map_err(|error| error.to_string())?;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (name, mode) in [("", 0o755), ("state", 0o700), ("state/tree", 0o755)] {
        let _there = std::fs::create_dir(at(name));
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::copy(guest, at("state/guest")).unwrap();
    for folder in ["bin", "dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
        std::fs::create_dir(at("state/tree").join(folder)).unwrap();
    }
    let busybox = options::find_program(Path::new("busybox"), "").unwrap();
    std::fs::copy(busybox, at("state/tree/bin/busybox")).unwrap();
    std::fs::write(at("state/tree/secret"), "image").unwrap();
    std::fs::set_permissions(at("state/tree/secret"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    std::fs::write(at("ids"), subuid).unwrap();
    std::fs::write(at("test"), "").unwrap();
    // Nothing of it is seen outside.
    let script = format!(
        "set -e; chown -R {USER}:{USER} \"$1/state\"; mount --bind \"$2\" \"$1/test\"; \
         mount --bind \"$1/ids\" /etc/subuid; mount --bind \"$1/ids\" /etc/subgid; cd /; \
         exec setpriv --reuid {USER} --regid {USER} --clear-groups \
         \"$1/test\" --exact \"$3\" --ignored --nocapture"
    );
    let tested = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args([dir.path(), &std::env::current_exe().unwrap()])
        .arg(format!("sandbox::tests::ordinary::{test}"))
        .env(FOLDER, dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tested.stdout);
    let complained = String::from_utf8_lossy(&tested.stderr);
    assert!(tested.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    Ok(())
}

#[test]
fn each_sandbox_has_a_user_of_the_range_its_files_too_and_nothing_stays() {
    let range = format!("{USER}:{FIRST}:{COUNT}\n");
    if let Err(why) = as_ordinary_user("two_sandboxes", &range) {
        hivekeep_skip::skip(why);
    }
}

#[test]
fn without_a_range_they_share_the_daemons_user_and_that_is_said() {
    if let Err(why) = as_ordinary_user("one_that_shares", "somebody:300000:50\n") {
        hivekeep_skip::skip(why);
    }
}

/// What the part that runs as the ordinary user begins with.
fn driver_of(folder: &Path) -> SandboxDriver {
    let options = Options { guest_path: folder.join("state/guest"), ..Options::default() };
    SandboxDriver::open(HostEnv::open(options, &folder.join("state/run"))).unwrap()
}

fn plan_of(folder: &Path, slot: u32) -> MachinePlan {
    let mut plan = fake::plan(&format!("ws_{slot}"), &folder.join("state"));
    (plan.carrier, plan.slot) = (CarrierKind::Unix, slot);
    plan.uuid = uuid::Uuid::new_v4();
    plan.images.rootfs_tree = Some(folder.join("state/tree"));
    plan
}

/// Of the trees that the plan's user has.
fn only_copy(folder: &Path, plan: &MachinePlan) -> PathBuf {
    let own = folder.join(format!("state/disk/.hivekeep-trees/{}", plan.slot + 1));
    let copies: Vec<_> = std::fs::read_dir(own).unwrap().map(|copy| copy.unwrap().path()).collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    copies[0].clone()
}

/// Launches, and has the guest answer. What runs, and the user that it answers as.
async fn serves(
    driver: &SandboxDriver,
    plan: &MachinePlan,
) -> (MachineHandle, fake::EndsWithTest, u32) {
    driver.prepare(plan).await.unwrap();
    let handle = match driver.launch(plan).await {
        Ok(launched) => launched.handle,
        Err(error) => panic!("{error}; {:?}", driver.logs(&plan.folders).await),
    };
    let guard = fake::EndsWithTest::of(&handle);
    let Endpoint::Unix { path, peer_uid } = &handle.endpoint else { panic!() };
    let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap().uid.as_raw();
    assert_eq!(peer, *peer_uid);
    let echoed = fake::sync_echo(stream, Duration::from_secs(20));
    assert!(echoed.is_ok(), "{echoed:?} {:?}", driver.logs(&plan.folders).await);
    for pid in process::processes(&handle) {
        let uid = std::fs::metadata(format!("/proc/{pid}")).unwrap().uid();
        assert_eq!(uid, peer, "process {pid}");
    }
    assert!(driver.usage(&handle).await.unwrap().rss_bytes > 100_000);
    (handle, guard, peer)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs as an ordinary user; started by each_sandbox_has_a_user_of_the_range_..."]
async fn two_sandboxes() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("as_ordinary_user sets it"));
    let driver = driver_of(&folder);
    assert_eq!(driver.host_env.subordinates.as_ref().map(Subordinates::range), Ok((COUNT, FIRST)));
    assert_eq!(driver.facts.confinement.as_ref().unwrap().user, HostUser::Own);
    // In the namespace the second's user has the number that the daemon's has on the host.
    let plans = [plan_of(&folder, 0), plan_of(&folder, 4)];
    let mut inodes = Vec::new();
    for _again in 0..2 {
        let mut handles = Vec::new();
        for plan in &plans {
            let (handle, guard, user) = serves(&driver, plan).await;
            assert_eq!(user, FIRST + plan.slot);
            let overlay = overlay_dir(plan);
            assert_eq!(std::fs::metadata(&overlay).unwrap().uid(), user);
            assert!(std::fs::read_dir(&overlay).is_err(), "not even the daemon's user looks in");
            let copy = only_copy(&folder, plan).join("tree");
            inodes.push((plan.slot, std::fs::metadata(&copy).unwrap().ino()));
            let secret = std::fs::metadata(copy.join("secret")).unwrap();
            assert_eq!((secret.uid(), secret.mode() & 0o777), (user, 0o600));
            handles.push((handle, guard));
        }
        let sweeper = Sweeper::new(driver.host_env.clone(), folder.join("state/run"), &[]);
        let found = sweeper.find(&HashSet::new()).await.unwrap();
        for (handle, _guard) in &handles {
            for process in handle.helpers.iter().chain([&handle.process]) {
                let workspace = handle.workspace.clone();
                let leftover = Leftover::Process { process: *process, workspace };
                assert!(found.contains(&leftover), "{leftover:?} is not in {found:?}");
            }
            driver.kill(handle).await.unwrap();
        }
    }
    assert_eq!(inodes[..2], inodes[2..], "a copy is made once");
    let hostile = "mkdir -p a/b && touch a/b/c && chmod 0 a/b a && chown -hR 5:5 .";
    let upper = overlay_dir(&plans[1]).join("upper");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("cd \"$1\" && {hostile}"), "sh"]).arg(upper);
    driver.host_env.subordinates.as_ref().unwrap().run(&mut shell).unwrap();
    for plan in &plans {
        driver.discard(plan, LogsOnDiscard::Remove).await.unwrap();
        assert!(!plan.folders.disk_dir.exists());
    }
    trash::tests::wait_empty(&folder.join("state/disk"));
    // A tree that is no more goes when the next is copied.
    let renewed = folder.join("state/renewed/tree");
    std::fs::create_dir(renewed.parent().unwrap()).unwrap();
    std::fs::rename(folder.join("state/tree"), &renewed).unwrap();
    let mut plan = plan_of(&folder, 4);
    plan.images.rootfs_tree = Some(renewed.clone());
    let (handle, _guard, _) = serves(&driver, &plan).await;
    let source = std::fs::read_link(only_copy(&folder, &plan).join("source"));
    assert_eq!(source.unwrap(), renewed);
    driver.kill(&handle).await.unwrap();
    driver.discard(&plan, LogsOnDiscard::Remove).await.unwrap();
    trash::tests::wait_empty(&folder.join("state/disk"));
    let beyond = driver.prepare(&plan_of(&folder, COUNT)).await.unwrap_err();
    assert!(beyond.to_string().contains("/etc/subuid"), "{beyond}");
    let trees = folder.join("state/disk/.hivekeep-trees");
    driver.host_env.subordinates.as_ref().unwrap().remove(&trees).unwrap();
    driver.host_env.cgroups.leave();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs as an ordinary user; started by without_a_range_they_share_..."]
async fn one_that_shares() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("as_ordinary_user sets it"));
    let driver = driver_of(&folder);
    let HostUser::Shared { why } = driver.facts.confinement.clone().unwrap().user else { panic!() };
    assert!(why.contains("games has no range in /etc/subuid"), "{why}");
    let plan = plan_of(&folder, 0);
    let (handle, _guard, user) = serves(&driver, &plan).await;
    assert_eq!(user, rustix::process::getuid().as_raw());
    driver.kill(&handle).await.unwrap();
    driver.discard(&plan, LogsOnDiscard::Remove).await.unwrap();
    trash::tests::wait_empty(&folder.join("state/disk"));
    let findings = doctor::doctor(&driver.host_env.options, "ordinary");
    let users = findings.iter().find(|finding| finding.what == "users of machines").unwrap();
    assert!(!users.ok && users.detail.contains(&why), "{users:?}");
    assert!(users.remedy.as_ref().unwrap().contains("usermod --add-subuids"), "{users:?}");
    driver.host_env.cgroups.leave();
}
