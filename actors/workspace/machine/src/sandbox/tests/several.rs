//! Sandboxes with users besides root.

use std::os::unix::fs::{MetadataExt, chown};

use super::*;
use crate::VolumeMount;
use crate::sandbox::ids::IDS;

/// Has each user make a file where it may, and says who it was told to be.
const SCRIPT: &str = "b=/lower/bin/busybox; cd /overlay/upper
$b mkdir /etc; echo app:x:1000:1001::/:/bin/sh > /etc/passwd; echo app:x:1001: > /etc/group
as() { $b start-stop-daemon -S -p /none -c 1000:1001 -a $b -- \"$@\"; }
$b cat /proc/self/uid_map /proc/self/gid_map > maps
$b stat -c %u:%g /lower/apps /lower/bin/busybox > tree
$b mkdir own; $b chown 1000:1001 own; $b touch roots; $b chmod 600 roots
as touch own/file; as cat roots 2> denied
$b chown 65536 own 2> beyond
$b chmod 755 /volumes; for n in 0 1; do
    $b stat -c %u:%g /volumes/$n/roots /volumes/$n/others; $b touch /volumes/$n/made
    $b mkdir /volumes/$n/d; $b chmod 777 /volumes/$n/d; as touch /volumes/$n/d/made
done > volumes 2>&1
$b touch done; while :; do $b sleep 600; done";

#[tokio::test(flavor = "multi_thread")]
async fn owners_inside_are_ids_of_the_range_outside() {
    if !rustix::process::geteuid().is_root() {
        return hivekeep_skip::skip("only root maps ids");
    }
    let mut bench = or_skip!(stand_in(SCRIPT));
    let ids = bench.driver.host_env.sandbox_ids.clone().expect("ids that nobody has");
    let tree = bench.plan.images.rootfs_tree.clone().unwrap();
    std::fs::write(tree.join("apps"), "").unwrap();
    chown(tree.join("apps"), Some(1000), Some(44)).unwrap();
    // A volume, of which a machine's user has a file already, and a folder of the host.
    let volumes_first = ids.ranges().1;
    let folders = ["volume", "folder"].map(|name| bench.dir.path().join(name));
    for (folder, owner) in folders.iter().zip([0, 64_555]) {
        std::fs::create_dir(folder).unwrap();
        for file in ["roots", "others"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        chown(folder, Some(owner), Some(owner)).unwrap();
        chown(folder.join("roots"), Some(owner), Some(owner)).unwrap();
        chown(folder.join("others"), Some(volumes_first + 7), Some(volumes_first + 8)).unwrap();
        let owner = (owner != 0).then_some((owner, owner));
        let path = "/v".into();
        bench.plan.volumes.push(VolumeMount {
            folder: folder.clone(),
            path,
            read_only: false,
            owner,
        });
    }
    bench.plan.several_users = true;
    bench.plan.slot = 3;
    let root = ids.root(3).unwrap().uid;
    let (driver, plan) = (&bench.driver, &bench.plan);
    driver.prepare(plan).await.unwrap();
    let handle = driver.launch(plan).await.unwrap().handle;
    let _guard = fake::EndsWithTest::of(&handle);
    let upper = plan.folders.disk_dir.join("overlay/upper");
    let begun = std::time::Instant::now();
    while !upper.join("done").exists() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            driver.logs(&plan.folders).await
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let said = |name: &str| std::fs::read_to_string(upper.join(name)).unwrap();
    let map = format!("0 {root} {IDS}");
    for line in said("maps").lines() {
        assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), map);
    }
    let refusals = ["denied", "beyond"].map(said);
    assert!(refusals[0].contains("ermission denied"), "{refusals:?}");
    assert!(refusals[1].contains("nvalid argument"), "{refusals:?}");
    assert_eq!(said("tree"), "1000:44\n0:0\n");
    let owner = |path: PathBuf| {
        let meta = std::fs::symlink_metadata(path).unwrap();
        (meta.uid(), meta.gid())
    };
    assert_eq!(owner(upper.join("own/file")), (root + 1000, root + 1001));
    assert_eq!(owner(upper.join("roots")), (root, root));
    // In the volume root is root, and each other user one of the volumes'; in the folder of the
    // host its owner is root, and nobody else makes anything.
    let volumes = said("volumes");
    assert!(volumes.starts_with("0:0\n7:8\n0:0\n65534:65534\n"), "{volumes}");
    assert_eq!(volumes.lines().count(), 5, "one is refused: {volumes}");
    assert_eq!(owner(folders[0].join("made")), (0, 0));
    assert_eq!(owner(folders[0].join("d/made")), (volumes_first + 1000, volumes_first + 1001));
    assert_eq!(owner(folders[1].join("made")), (64_555, 64_555));
    assert!(!folders[1].join("d/made").exists());
    for pid in process::processes(&handle) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ids =
            status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
        let ids = ids.flat_map(|line| line.split_whitespace().skip(1)).map(|id| id.parse::<u32>());
        assert!(ids.flatten().all(|id| (root..root + IDS).contains(&id)), "{pid}: {status}");
    }
    driver.kill(&handle).await.unwrap();
    driver.release(plan).await.unwrap();
    the_files_stay_their_owners(&bench, root).await;
    end(&bench).await;
}

/// Another number, or other ranges, would make them somebody else's.
async fn the_files_stay_their_owners(bench: &Bench, root: u32) {
    let moved = MachinePlan { slot: 4, ..bench.plan.clone() };
    let error = bench.driver.launch(&moved).await.unwrap_err();
    assert!(matches!(&error, Error::NoIds(why) if why.contains(&root.to_string())), "{error}");
    assert_eq!(hivekeep_kernel::ToolError::from(error).code, "sandbox_user_missing");
}

#[tokio::test]
async fn where_ids_are_somebodys_sandboxes_have_root_alone() {
    let mut bench = or_skip!(stand_in("exit 0"));
    let mut host_env = bench.driver.host_env.clone();
    host_env.sandbox_ids = Err("they are ada's".into());
    let driver = SandboxDriver::open(host_env).unwrap();
    let why = CapabilitySupport::no("they are ada's");
    assert_eq!(driver.capabilities().several_users, why);
    assert!(driver.facts().cannot.iter().any(|cannot| cannot.contains("ada")));
    bench.plan.several_users = true;
    assert!(matches!(driver.prepare(&bench.plan).await, Err(Error::NoIds(_))));
    end(&bench).await;
}
