//! Workspaces as places: the session's own, others of it, and guests that lie.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_file_engine::{
    FileError, FileErrorKind, FileOperation, FileOutcome, FolderPage, FoundLines, FoundPaths,
    ListEntry, LookAt, LookedAt, TextRange, Unread, decode, encode,
};
use hivekeep_kernel::{Progress, SessionId};
use hivekeep_ports::{
    OwnWorkspace, OwnWorkspaces, PlaceFiles, Places, WorkspaceReadiness, own_workspace_name,
};
use hivekeep_testkit::context;
use serde_json::json;
use tokio::time::Duration;

use super::stage::Stage;
use crate::Options;

async fn without_folders() -> Stage {
    Stage::of(Options::default(), tempfile::TempDir::new().expect("a folder")).await
}

#[tokio::test]
async fn calls_at_once_make_one_workspace_and_later_ones_find_it() {
    let stage = without_folders().await;
    let calls = (0..8).map(|n| {
        let args = json!({ "path": format!("f{n}"), "content": "x" });
        stage.call("write", args)
    });
    for written in futures::future::join_all(calls).await {
        let written = written.expect("written");
        assert_eq!(written["place"], "session");
        assert!(written["path"].as_str().is_some_and(|path| path.starts_with("/workspace/f")));
    }
    assert_eq!(stage.machines.count("workspace_create"), 1);
    let name = own_workspace_name(stage.session());
    let (_, request) = stage.machines.calls.lock().expect("no panic")[0].clone();
    assert_eq!(request, json!({ "name": name }), "the rest is the workspaces' own default");
    // As a daemon finds it that was killed since.
    let machines = stage.machines.clone();
    machines.put(&name, Some(stage.session()), WorkspaceReadiness::Off);
    stage.good("list", json!({ "path": ".", "place": "session" })).await;
    assert_eq!((machines.count("workspace_create"), machines.count("workspace_start")), (1, 1));
    machines.put(&name, Some(SessionId::new()), WorkspaceReadiness::Ready);
    assert_eq!(stage.refused("list", json!({ "path": "." })).await, "not_owner");
}

/// Decides on the workspace of one session.
struct Decided(SessionId);

impl OwnWorkspaces for Decided {
    fn of(&self, session: SessionId) -> Option<OwnWorkspace> {
        let request = json!({ "memory_mb": 128, "isolation": null });
        let request = request.as_object().cloned().expect("one");
        (session == self.0).then_some(OwnWorkspace { request, only: true })
    }
}

#[tokio::test]
async fn a_workspace_that_was_decided_on_is_made_so_and_is_its_sessions_only_place() {
    let stage = Stage::new().await;
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    let write = json!({ "path": "f", "content": "x" });
    assert_eq!(stage.good("write", write.clone()).await["place"], "work", "as it is configured");
    stage.daemon().ports.offer::<dyn OwnWorkspaces>(Arc::new(Decided(stage.session())));
    assert_eq!(stage.good("write", write).await["place"], "session");
    let name = own_workspace_name(stage.session());
    let (_, request) = stage.machines.calls.lock().expect("no panic").pop().expect("it was made");
    assert_eq!(request, json!({ "name": name, "memory_mb": 128 }));
    for (place, code) in [
        ("session", None),
        ("root@session:/etc", None),
        (&*name, None),
        ("work", Some("place_withheld")),
        ("mine", Some("place_withheld")),
        ("mine:/session", Some("place_withheld")),
        ("volume:v", Some("place_withheld")),
        ("nobodys", Some("place_withheld")),
    ] {
        let args = json!({ "path": ".", "place": place });
        let refused = stage.call("list", args).await.err().map(|error| error.code.into_owned());
        assert_eq!(refused.as_deref(), code, "{place}");
    }
}

#[tokio::test]
async fn a_creation_goes_on_when_its_call_does_not_wait() {
    let stage = without_folders().await;
    let places = stage.daemon().ports.need::<dyn Places>().expect("offered");
    let cx = context(stage.session(), "cmd.run", Duration::from_secs(60), Progress::default());
    let first = places.workspace(&cx, None);
    assert!(tokio::time::timeout(Duration::from_millis(10), first).await.is_err());
    let place = places.workspace(&cx, None).await.expect("the same one");
    assert_eq!((place.place.as_str(), place.root.as_str()), ("session", "/workspace"));
    assert_eq!(stage.machines.count("workspace_create"), 1);
}

#[tokio::test]
async fn a_workspace_is_a_place_by_id_and_name_for_its_own_session() {
    let stage = Stage::new().await;
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    stage.machines.put("theirs", Some(SessionId::new()), WorkspaceReadiness::Ready);
    let id = stage.machines.known.lock().expect("no panic")["mine"].id;
    for place in ["mine".to_owned(), id.to_string()] {
        let args = json!({ "place": place, "path": "/tmp" });
        assert_eq!(stage.good("list", args).await["place"], "mine");
    }
    let places = stage.daemon().ports.need::<dyn Places>().expect("offered");
    let cx = context(stage.session(), "cmd.run", Duration::from_secs(60), Progress::default());
    assert_eq!(places.workspace(&cx, Some("mine")).await.expect("it is").workspace, id);
    // Beside a folder of the host is a sandbox that mounts it.
    let beside = places.workspace(&cx, Some("look")).await.expect("made");
    assert_eq!((&*beside.place, &*beside.root), ("look", "/work"));
    let (tool, request) =
        stage.machines.calls.lock().expect("no panic").pop().expect("it was made");
    let mount = json!([{ "volume": "place:look", "path": "/work", "read_only": true }]);
    let made = (tool, &request["isolation"], &request["volumes"]);
    assert_eq!(made, ("workspace_create", &json!("sandbox"), &mount));
    let again = places.workspace(&cx, Some("look")).await.expect("found");
    assert_eq!(again, beside);
    let other = places.workspace(&cx, Some("work")).await.expect("made");
    assert_ne!(other.workspace, beside.workspace);
    for (place, code) in [("theirs", "not_owner"), ("nobodys", "place_unknown")] {
        assert_eq!(stage.refused("list", json!({ "place": place, "path": "." })).await, code);
        let refused = places.workspace(&cx, Some(place)).await.expect_err("not its own");
        assert_eq!(refused.code, code);
    }
    assert_eq!(stage.good("list", json!({ "path": "." })).await["place"], "work", "the default");
}

#[tokio::test]
async fn answers_that_no_engine_gives_are_refused() {
    let stage = Stage::new().await;
    stage.machines.put("w", Some(stage.session()), WorkspaceReadiness::Ready);
    let many = || vec!["x".to_owned(); 1_000];
    let text = |text: &str, offset, next_offset| {
        FileOutcome::ReadText(TextRange {
            text: text.to_owned(),
            offset,
            next_offset,
            size_bytes: 1,
        })
    };
    let page = (0..500).map(|n| (n.to_string(), ListEntry::Other)).collect::<BTreeMap<_, _>>();
    let unread = || Unread { named: many(), total: 1_000 };
    let lies = [
        ("read", text(&"x".repeat(400_000), 0, 400_000)),
        ("read", text("x", 7, 3)),
        ("read", FileOutcome::MakeFolder(hivekeep_file_engine::FolderMade)),
        ("list", FileOutcome::ListNames(FolderPage { entries: page, total: 2, more: true })),
        ("grep", FileOutcome::GrepFiles(FoundLines { shown: many(), ..FoundLines::default() })),
        (
            "glob",
            FileOutcome::GlobFiles(FoundPaths { paths: many(), total: 1_000, unread: unread() }),
        ),
        ("glob", FileOutcome::GlobFiles(FoundPaths { paths: vec![], total: 0, unread: unread() })),
    ];
    for (tool, lie) in lies {
        let told = encode(&Ok::<_, FileError>(lie.clone())).expect("it fits");
        *stage.machines.lie.lock().expect("no panic") = Some(Box::new(move |_| told.clone()));
        let args = json!({ "place": "w", "path": "f", "pattern": "x" });
        let args = match tool {
            "read" | "list" => json!({ "place": "w", "path": "f" }),
            _ => args,
        };
        assert_eq!(stage.refused(tool, args).await, "guest_misbehaves", "{tool} {lie:?}");
    }
    *stage.machines.lie.lock().expect("no panic") = Some(Box::new(|_| b"\xff\xff\xff".to_vec()));
    let read = json!({ "place": "w", "path": "f" });
    assert_eq!(stage.refused("read", read.clone()).await, "guest_misbehaves");
    let full = FileError::new(FileErrorKind::NoSpace, "x".repeat(100_000));
    let told = encode(&Err::<FileOutcome, _>(full)).expect("it fits");
    *stage.machines.lie.lock().expect("no panic") =
        Some(Box::new(move |_: FileOperation| told.clone()));
    let error = stage.call("read", read).await.expect_err("full");
    assert!(error.code == "guest_disk_full" && error.message.len() < 10_000, "{}", error.code);
}

#[tokio::test]
async fn a_taken_name_of_a_workspace_is_no_folder() {
    let stage = Stage::new().await;
    stage.machines.put("work", Some(stage.session()), WorkspaceReadiness::Ready);
    std::fs::write(stage.work("f"), "of the host").expect("written");
    let read = stage.good("read", json!({ "place": "work", "path": "f" })).await;
    assert_eq!(read["content"], "of the host", "what the operator names comes first");
}

#[tokio::test]
async fn other_families_reach_files_by_a_lasting_name_and_no_other_sessions() {
    let stage = without_folders().await;
    let files = stage.daemon().ports.need::<dyn PlaceFiles>().expect("offered");
    let context =
        |session| context(session, "rag_ingest", Duration::from_secs(60), Progress::default());
    let (own, other) = (context(stage.session()), context(SessionId::new()));
    stage.machines.put("w", Some(stage.session()), WorkspaceReadiness::Ready);
    let located = files.locate(&own, Some("w")).await.expect("found");
    assert!(located.id.starts_with("ws_") && located.name == "w" && located.folder.is_none());
    let session = files.locate(&own, None).await.expect("made");
    assert!(session.id.starts_with("ws_") && session.id != located.id, "{session:?}");
    let look = encode(&FileOperation::from(LookAt { path: ".".to_owned() })).expect("it fits");
    let looked = files.run(&own, &located.id, look.clone()).await.expect("looked");
    let outcome: FileOutcome = decode(&looked).expect("an outcome");
    assert_eq!(outcome, FileOutcome::LookAt(LookedAt::Folder));
    for refused in [
        files.locate(&other, Some("w")).await.expect_err("another's").code,
        files.run(&other, &located.id, look).await.expect_err("another's").code,
    ] {
        assert_eq!(refused, "not_owner");
    }
}

#[tokio::test]
async fn a_place_has_a_user_and_a_folder_as_scp_names_them() {
    let stage = Stage::new().await;
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    let home = stage.machines.home.to_str().expect("UTF-8").to_owned();
    let ran_as = || stage.machines.ran_as.lock().expect("no panic").clone();
    let told = |text: &str| Some(text.to_owned());
    let (work, at_home) = (format!("{home}/work"), format!("{home}/app/src"));
    for (place, user, folder) in [
        ("mine".to_owned(), None, None),
        (format!("mine:{work}"), None, told(&work)),
        ("app@mine".to_owned(), told("app"), None),
        (format!("app@mine:{work}/"), told("app"), Some(format!("{work}/"))),
        ("app@mine:~/src".to_owned(), told("app"), Some(at_home.clone())),
    ] {
        let args = json!({ "place": place, "path": "f", "content": "x" });
        let written = stage.call("write", args).await;
        assert_eq!(ran_as(), (user, folder.clone()), "{place}");
        if let Some(folder) = folder {
            let written = written.expect("written");
            assert_eq!(written["path"], format!("{folder}/f"), "{place}");
            assert_eq!(written["place"], place.as_str());
        }
    }
    // The root of all is one, too, with and without its slash.
    for path in [format!("{work}/f"), format!("{work}/f")[1..].to_owned()] {
        let read = stage.good("read", json!({ "place": "mine:/", "path": path })).await;
        assert_eq!(read["content"], "x");
    }
    let places = stage.daemon().ports.need::<dyn Places>().expect("offered");
    let cx = context(stage.session(), "cmd.run", Duration::from_secs(60), Progress::default());
    let found = places.workspace(&cx, Some("app@mine:~")).await.expect("it is");
    assert_eq!((found.user.as_deref(), &*found.root), (Some("app"), &*format!("{home}/app")));
    assert_eq!(found.place, "app@mine:~");
    let found = places.workspace(&cx, Some("mine:~")).await.expect("it is");
    assert_eq!((found.user, found.root), (None, format!("{home}/image")));
    let files = stage.daemon().ports.need::<dyn PlaceFiles>().expect("offered");
    let located = files.locate(&cx, Some("app@mine:/srv")).await.expect("found");
    assert!(located.id.starts_with("app@ws_") && located.id.ends_with(":/srv"), "{located:?}");
    for (place, code) in [
        ("ghost@mine:~", "user_unknown"),
        ("app@mine:src", "invalid_input"),
        ("mine:/../up", "outside_place"),
        ("app@nobodys", "place_unknown"),
        ("app@work", "place_no_workspace"),
        ("work:/srv", "place_no_workspace"),
        ("app@volume:v", "place_no_workspace"),
        ("volume:v:/srv", "place_no_workspace"),
        ("volume:none", "volume_not_found"),
    ] {
        assert_eq!(stage.refused("list", json!({ "place": place, "path": "." })).await, code);
    }
}

#[tokio::test]
async fn a_watch_is_of_a_workspace_and_its_user_and_tells_what_changed() {
    let stage = Stage::new().await;
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    let args = json!({ "place": "app@mine:/srv", "path": "sub", "recursive": true });
    let begun = stage.good("watch", args).await;
    assert_eq!((&begun["watch"], &begun["path"]), (&json!("8"), &json!("/srv/sub")));
    let ran_as = stage.machines.ran_as.lock().expect("no panic").clone();
    assert_eq!(ran_as, (Some("app".to_owned()), Some("/srv/sub".to_owned())));
    stage.good("watch", json!({ "place": "mine", "path": "/" })).await;
    assert_eq!(stage.machines.ran_as.lock().expect("no panic").0, None);
    let args = json!({ "place": "mine", "watch": "7", "after": 5, "wait_secs": 9 });
    let told = stage.good("changes", args).await;
    let change = json!({ "seq": 6, "kind": "create", "path": "waited 9 s" });
    assert_eq!(told, json!({ "changes": [change], "next": 6, "lost": true }));
    for (tool, args, code) in [
        ("watch", json!({ "place": "work", "path": "." }), "place_no_workspace"),
        ("watch", json!({ "place": "mine", "path": "/../up" }), "outside_place"),
        ("changes", json!({ "place": "mine", "watch": "8" }), "watch_unknown"),
        ("changes", json!({ "place": "mine", "watch": "x" }), "invalid_input"),
        ("unwatch", json!({ "place": "nobodys", "watch": "7" }), "place_unknown"),
    ] {
        assert_eq!(stage.refused(tool, args.clone()).await, code, "{tool} {args}");
    }
    for (watch, ended) in [("7", true), ("8", false)] {
        let told = stage.good("unwatch", json!({ "place": "mine", "watch": watch })).await;
        assert_eq!(told["ended"], ended);
    }
}

#[tokio::test]
async fn bytes_are_put_in_pieces_and_come_back_with_what_is_known_of_them() {
    let stage = Stage::new().await;
    let put = json!({ "path": "new/f", "content_base64": "AP/D", "mode": 0o640 });
    let put = stage.good("put", put).await;
    assert_eq!(
        (&put["bytes"], &put["replaced"], &put["place"]),
        (&json!(3), &json!(false), &json!("work"))
    );
    let put = json!({ "path": "new/f", "content_base64": "YWI=", "at": 2 });
    assert_eq!(stage.good("put", put).await["bytes"], 4);
    assert_eq!(std::fs::read(stage.work("new/f")).expect("there"), [0, 255, b'a', b'b']);
    let got = stage.good("get", json!({ "path": "new/f", "max_bytes": 3 })).await;
    assert_eq!(
        (&got["content_base64"], &got["bytes"], &got["next"]),
        (&json!("AP9h"), &json!(4), &json!(3))
    );
    let got = stage.good("get", json!({ "path": "new/f", "from": 3 })).await;
    assert_eq!((&got["content_base64"], &got["next"]), (&json!("Yg=="), &json!(null)));
    let told = stage.good("stat", json!({ "path": "new", "depth": 1 })).await;
    let [entry] = &told["entries"].as_array().expect("a list")[..] else { panic!("{told}") };
    assert_eq!(
        (&entry["path"], &entry["name"], &entry["kind"]),
        (&json!("new/f"), &json!("f"), &json!("file"))
    );
    assert_eq!((&entry["bytes"], &entry["mode"]), (&json!(4), &json!(0o640)));
    assert!(entry["modified_at"].is_string() && told["truncated"] == false);
    for (tool, args, code) in [
        ("put", json!({ "path": "new/f", "content_base64": "A", "at": 0 }), "invalid_input"),
        ("put", json!({ "path": "new/f", "content_base64": "", "at": 9 }), "past_end"),
        (
            "put",
            json!({ "path": "x", "content_base64": "", "metadata": { "a b": "" } }),
            "invalid_input",
        ),
        ("put", json!({ "path": "x", "content_base64": "", "place": "look" }), "place_read_only"),
        ("get", json!({ "path": "new" }), "is_a_directory"),
        ("stat", json!({ "path": "new/f", "depth": 1 }), "not_a_directory"),
        ("stat", json!({ "path": "none" }), "not_found"),
    ] {
        assert_eq!(stage.refused(tool, args.clone()).await, code, "{tool} {args}");
    }
}
