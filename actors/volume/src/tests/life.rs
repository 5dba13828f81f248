//! Volumes from their creation to their end.

use std::{os::unix::fs::MetadataExt, sync::Arc};

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{CallCx, Progress, SessionId, WorkspaceId};
use hivekeep_ports::{LateTools, VolumeRequest, Volumes};
use hivekeep_runtime::Daemon;
use hivekeep_store::Journal;
use hivekeep_testkit::context;
use serde_json::json;
use tokio::time::Duration;

use super::stage::{MIB, Stage, can_mount, loops_below, unmount_below, users};
use crate::{
    Options,
    tools::{VolumeCreate, VolumeList},
    volumes::VolumeService,
};

fn request(volume: &str) -> VolumeRequest {
    VolumeRequest { volume: volume.to_owned(), path: "/data".to_owned(), read_only: false }
}

#[tokio::test]
async fn what_is_written_is_there_after_a_crash_and_gone_after_a_deletion() {
    let Some(mut stage) = Stage::open(Options::default()).await else { return };
    let made = stage.make("work", 17).await;
    assert_eq!((&made["id"], &made["name"]), (&made["volume_id"], &json!("work")));
    assert_eq!(made["size_limit_bytes"], 17 * MIB);
    let file = json!({ "volume_id": "work", "path": "a/b.txt", "content": "kept" });
    stage.good("file.write", file).await;
    stage.crash().await;
    stage.volumes().all_set();
    let read = stage.good("file.read", json!({ "volume_id": made["id"], "path": "a/b.txt" })).await;
    assert_eq!(read["content"], "kept");
    let quota = stage.good("volume.quota", json!({})).await;
    assert_eq!(
        (&quota["volume_count"], &quota["total_allocated_bytes"]),
        (&json!(1), &json!(17 * MIB))
    );
    let used = quota["total_bytes_used"].as_u64().expect("a number");
    assert!(used > 0 && used < 4 * MIB, "sparse: {used}");
    let gone = stage.good("volume.delete", json!({ "volume_id": "work" })).await;
    assert_eq!(gone["deleted"], true);
    assert_eq!(stage.good("volume.list", json!({})).await["count"], 0);
    assert_eq!(
        stage.refused("volume.delete", json!({ "volume_id": "work" })).await,
        "volume_not_found"
    );
    let left: Vec<_> = stage.folder().join("volumes").read_dir().expect("a folder").collect();
    assert!(left.is_empty() && loops_below(stage.folder()).is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_volume_is_its_users_alone_and_within_its_limits() {
    let options = Options { max_volumes: 2, max_total_mb: 40, ..Options::default() };
    let Some(stage) = Stage::open(options).await else { return };
    let id = stage.make("mine", 16).await["id"].clone();
    for (tool, args) in [
        ("volume.delete", json!({ "volume_id": id })),
        ("file.list", json!({ "volume_id": id, "path": "/" })),
        ("file.read", json!({ "volume_id": "mine", "path": "a" })),
        ("file.write", json!({ "volume_id": id, "path": "a", "content": "x" })),
        ("file.delete", json!({ "volume_id": id, "path": "a" })),
        ("file.mkdir", json!({ "volume_id": id, "path": "a" })),
    ] {
        let refused = stage.as_session(stage.other, tool, args).await.expect_err(tool);
        assert_eq!(refused.code, "volume_not_found", "{tool}");
    }
    let workspace = WorkspaceId::new();
    let attached = stage.volumes().attach(stage.other, workspace, &[request("mine")]);
    assert_eq!(attached.expect_err("another's").code, "volume_not_found");
    let over = stage.as_session(stage.over, "volume.list", json!({})).await.expect_err("over");
    assert_eq!(over.code, "session_ended");
    let same = json!({ "label": "mine", "size_limit_bytes": 1 });
    assert_eq!(stage.refused("volume.create", same.clone()).await, "name_taken");
    stage.as_session(stage.other, "volume.create", same).await.expect("labels of one's own");
    let large = json!({ "label": "large", "size_limit_bytes": 25 * MIB });
    assert_eq!(stage.refused("volume.create", large).await, "volume_quota_exceeded");
    stage.make("second", 16).await;
    let third = json!({ "label": "third", "size_limit_bytes": 1 });
    assert_eq!(stage.refused("volume.create", third).await, "volume_quota_exceeded");
}

#[tokio::test]
async fn what_is_attached_is_not_deleted_also_by_the_next_daemon() {
    let Some(mut stage) = Stage::open(Options::default()).await else { return };
    let id = stage.make("v", 16).await["id"].clone();
    let (session, workspace) = (stage.rig().session, WorkspaceId::new());
    let attached = stage.volumes().attach(session, workspace, &[request("v")]).expect("attached");
    let folders = stage.volumes().mount(&attached).await.expect("mounted");
    std::fs::write(folders[0].folder.join("from-a-guest"), "x").expect("written");
    let deletion = json!({ "volume_id": "v" });
    let refused = stage.call("volume.delete", deletion.clone()).await.expect_err("in use");
    assert_eq!(refused.code, "volume_in_use");
    assert!(refused.message.contains(&workspace.to_string()), "{refused}");
    let listed = stage.good("volume.list", json!({})).await;
    assert_eq!(listed["volumes"][0]["workspaces"], json!([workspace]));

    stage.crash().await;
    // Until the workspaces have told, nobody knows whether it is free.
    let limit = Duration::from_millis(200);
    let early = stage.rig().begin_as(session, "aegis.volume.delete", deletion.clone(), limit);
    assert!(early.answer().await.is_err(), "deleted before its workspace told that it has it");
    stage.volumes().set(workspace, &attached);
    stage.volumes().all_set();
    assert_eq!(stage.refused("volume.delete", deletion.clone()).await, "volume_in_use");
    let again = stage.volumes().mount(&attached).await.expect("mounted");
    assert_eq!((&again, again[0].folder.join("from-a-guest").exists()), (&folders, true));
    stage.volumes().set(workspace, &[]);
    assert_eq!(stage.good("volume.delete", deletion).await["volume_id"], id);
}

#[tokio::test]
async fn a_full_volume_refuses_a_byte_more_and_the_host_keeps_its_room() {
    let Some(stage) = Stage::open(Options::default()).await else { return };
    let id = stage.make("v", 16).await["id"].as_str().expect("an id").to_owned();
    let content = "x".repeat(5 * 1024 * 1024);
    let mut written = 0;
    let full = loop {
        let file = json!({ "volume_id": "v", "path": format!("f{written}"), "content": content });
        match stage.call("file.write", file).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 4, "16 MiB hold no 20");
    };
    assert_eq!((full.code.as_ref(), written), ("volume_full", 2));
    assert!(full.details["free_bytes"].as_u64().expect("a number") < 5 * MIB, "{full:?}");
    let listed = stage.good("file.list", json!({ "volume_id": "v", "path": "." })).await;
    let names: Vec<_> = listed["entries"].as_array().expect("entries").iter().collect();
    assert!(names.iter().all(|entry| entry["size_bytes"] == 5 * MIB), "no part stays: {names:?}");
    // A replacement that does not fit leaves the old one.
    let over = json!({ "volume_id": "v", "path": "f0", "content": content });
    assert_eq!(stage.refused("file.write", over).await, "volume_full");
    let image = stage.folder().join(format!("volumes/{id}/image"));
    assert!(std::fs::metadata(image).expect("an image").blocks() * 512 <= 16 * MIB);
}

/// A daemon's context over a journal in a folder.
fn daemon(folder: &std::path::Path) -> Daemon {
    let (journal, _) = Journal::open(hivekeep_store::Options::at(folder)).expect("it opens");
    let users = users(SessionId::new(), SessionId::new());
    Daemon::for_tests(folder, journal, Arc::new(users), Arc::new(LateTools::default()))
}

fn call(session: SessionId) -> CallCx {
    context(session, "a test", Duration::from_secs(60), Progress::default())
}

struct Unmounted(tempfile::TempDir);

impl Drop for Unmounted {
    fn drop(&mut self) {
        unmount_below(self.0.path());
    }
}

fn labels(listed: crate::tools::VolumeListed) -> Vec<String> {
    listed.volumes.into_iter().map(|volume| volume.label).collect()
}

#[tokio::test]
async fn time_ends_what_no_workspace_has_and_idle_mounts() {
    if !can_mount() {
        return;
    }
    let home = Unmounted(tempfile::tempdir().expect("a folder"));
    let daemon = daemon(home.0.path());
    let options = Options { idle_unmount_secs: 0, ..Options::default() };
    let service = Arc::new(VolumeService::open(&daemon, options).await.expect("opened"));
    let (session, workspace) = (SessionId::new(), WorkspaceId::new());
    let cx = || call(session);
    for (label, ttl_hours) in
        [("hour", Some(1)), ("used", Some(1)), ("day", Some(24)), ("kept", None)]
    {
        let input = VolumeCreate { label: label.to_owned(), size_limit_bytes: 1, ttl_hours };
        service.clone().create(cx(), input).await.expect(label);
    }
    let attached = service.attach(session, workspace, &[request("used")]).expect("attached");
    let now = Utc::now();
    // Not before it is known what workspaces have.
    service.tend(now + TimeDelta::hours(2)).await;
    let list = async || labels(service.clone().list(cx(), VolumeList {}).await.expect("listed"));
    assert_eq!(list().await, ["hour", "used", "day", "kept"]);
    assert_eq!(loops_below(home.0.path()).len(), 4);
    service.all_set();
    service.mount(&attached).await.expect("mounted");
    service.tend(now + TimeDelta::minutes(59)).await;
    assert_eq!(list().await.len(), 4);
    assert_eq!(loops_below(home.0.path()).len(), 1, "what nothing uses is unmounted");
    service.tend(now + TimeDelta::hours(2)).await;
    assert_eq!(list().await, ["used", "day", "kept"]);
    let late = service.attach(session, WorkspaceId::new(), &[request("day"), request("hour")]);
    assert_eq!(late.expect_err("expired").code, "volume_not_found");
    service.set(workspace, &[]);
    service.tend(now + TimeDelta::hours(2)).await;
    assert_eq!(list().await, ["day", "kept"]);
    assert!(loops_below(home.0.path()).is_empty());
}

#[tokio::test]
async fn a_folder_that_no_record_names_is_left_alone() {
    let home = Unmounted(tempfile::tempdir().expect("a folder"));
    let volumes = home.0.path().join("volumes");
    let lost = volumes.join(hivekeep_kernel::VolumeId::new().to_string());
    std::fs::create_dir_all(&lost).expect("made");
    std::fs::write(lost.join("image"), "work").expect("written");
    let daemon = daemon(home.0.path());
    VolumeService::open(&daemon, Options::default()).await.expect("opened");
    assert_eq!(std::fs::read(lost.join("image")).expect("there"), b"work");
}

#[tokio::test]
async fn a_tier_bounds_its_users_volumes() {
    let Some(stage) = Stage::open(Options::default()).await else { return };
    let create = async |label: &str, mib: u64| {
        let args = json!({ "label": label, "size_limit_bytes": mib * MIB });
        stage.as_session(stage.other, "volume.create", args).await.map_err(|error| error.code)
    };
    let full = Err("volume_quota_exceeded".into());
    assert_eq!(create("large", 65).await, full);
    for label in ["one", "two"] {
        create(label, 16).await.expect("allowed");
    }
    assert_eq!(create("three", 16).await, full);
    let quota = stage.as_session(stage.other, "volume.quota", json!({})).await.expect("told");
    assert_eq!(
        (&quota["max_volumes"], &quota["total_storage_bytes"]),
        (&json!(2), &json!(64 * MIB))
    );
    stage.make("large", 65).await;
}
