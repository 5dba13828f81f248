use super::*;
use crate::{Options, fake};

const UUID: &str = "6a0e0f4c-3f5e-4f0e-9d8b-2f6f0b6f7a11";

#[test]
fn only_tags_of_our_run_root_count() {
    let root = Path::new("/run/hivekeep/machines");
    let tag = format!("hivekeep:{UUID}:/run/hivekeep/machines/ws_1");
    for word in [tag.clone(), format!("guest={tag}"), format!("HIVEKEEP_MACHINE={tag}")] {
        assert_eq!(workspace_of(&word, root).as_deref(), Some("ws_1"), "{word}");
    }
    for word in [
        format!("hivekeep:{UUID}:/run/other/machines/ws_1"),
        format!("hivekeep:{UUID}:/run/hivekeep/machines/ws_1/deeper"),
        "hivekeep:no-uuid:/run/hivekeep/machines/ws_1".into(),
        format!("x{tag}"),
        "/run/hivekeep/machines/ws_1".into(),
    ] {
        assert_eq!(workspace_of(&word, root), None, "{word}");
    }
}

#[tokio::test]
async fn leftovers_are_found_and_removed_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let host_env = HostEnv::open(Options::default(), &root.join("run"));
    let sweeper = Sweeper::new(host_env, root.join("run"), &[root.join("disk")]);
    let (kept, lost) = (fake::plan("ws_kept", root), fake::plan("ws_lost", root));
    for plan in [&kept, &lost] {
        crate::host_env::make_folders(plan).unwrap();
        fs::write(plan.folders.disk(), "disk").unwrap();
    }
    fs::create_dir(root.join("disk/somebody-elses")).unwrap();
    let child = std::process::Command::new("sleep").arg("60").env(TAG_VARIABLE, lost.tag()).spawn();
    let process = ProcessId::of_pid(child.unwrap().id() as i32).unwrap();
    let other = std::process::Command::new("sleep").arg("60").env(TAG_VARIABLE, kept.tag()).spawn();
    let other = ProcessId::of_pid(other.unwrap().id() as i32).unwrap();

    let known = HashSet::from(["ws_kept".to_owned()]);
    let (removed, failed) = sweeper.sweep(&known).await.unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let expected = [
        Leftover::Process { process, workspace: "ws_lost".into() },
        Leftover::Folder { path: lost.folders.run_dir.clone() },
        Leftover::Folder { path: lost.folders.disk_dir.clone() },
    ];
    assert_eq!(removed, expected);
    assert!(process.verify().is_err() && other.verify().is_ok());
    assert!(kept.folders.disk().exists() && !lost.folders.disk_dir.exists());
    assert!(root.join("disk/somebody-elses").exists());
    assert!(sweeper.find(&known).await.unwrap().is_empty());
    sweeper.host_env.watcher.kill(other, KILL_WAIT).await.unwrap();
    sweeper.host_env.cgroups.leave();
}
