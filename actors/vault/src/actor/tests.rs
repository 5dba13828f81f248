use std::path::Path;
use std::sync::Arc;

use hivekeep_kernel::entity::spawn_root;
use hivekeep_kernel::{Address, CallId, Census, Door, Progress, RestartPolicy, SessionId};
use hivekeep_ports::Vault as _;
use hivekeep_runtime::documents::DocumentListing as _;
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Options;

mod line_ends;
mod part;
mod queue;

/// Vault actor with a folder of its own.
struct TestVault {
    dir: tempfile::TempDir,
    address: Address<Msg>,
    handle: VaultHandle,
}

impl TestVault {
    async fn open(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address =
            Address::vacant(Census::default().probe("vault", "vault", RestartPolicy::ENTITY));
        let (handle, seed) = open(options, dir.path(), Default::default(), address.clone());
        spawn_root::<VaultActor>(&address, seed).await.unwrap();
        Self { dir, address, handle }
    }

    fn cx(&self) -> CallCx {
        CallCx {
            id: CallId::new(),
            session: SessionId::new(),
            tool: "vault",
            caller: None,
            door: Door::Internal,
            view: Default::default(),
            deadline: Instant::now() + Duration::from_secs(60),
            cancel: CancellationToken::new(),
            progress: Progress::default(),
            receipt: Default::default(),
            slot: Default::default(),
            reserved: None,
            trace: None,
            client: None,
            effect: None,
            span: tracing::Span::none(),
        }
    }

    /// Sends a call; its answer comes later.
    fn send(&self, cx: CallCx, args: Value) -> oneshot::Receiver<Result<Value, ToolError>> {
        let (reply, answer) = oneshot::channel();
        let tool = tools::catalogue()[0];
        self.address
            .send(ToolCall { tool: &tool.spec, cx, args, reply: reply.into() }.into())
            .unwrap();
        answer
    }

    async fn call(&self, args: Value) -> Result<Value, ToolError> {
        self.send(self.cx(), args).await.unwrap()
    }

    async fn ok(&self, args: Value) -> Value {
        self.call(args.clone()).await.unwrap_or_else(|error| panic!("{args}: {error}"))
    }

    async fn code(&self, args: Value) -> String {
        self.call(args.clone()).await.expect_err(&args.to_string()).code.into_owned()
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join("vault").join(path)
    }
}

#[tokio::test]
async fn changes_are_told_and_stamps_tell_states_apart() {
    let vault = TestVault::open(Options::default()).await;
    let handle = &vault.handle;
    let mut changes = handle.changes();
    let stamp = async || {
        let paths = vec!["vault:///a/n.md".to_owned(), "vault:///b.md".to_owned()];
        let stamps = handle.stamps(paths).await.unwrap();
        stamps.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(stamp().await, [None, None]);
    vault.ok(json!({"action": "write", "path": "a/n.md", "content": "one"})).await;
    let first = stamp().await;
    vault.ok(json!({"action": "write", "path": "a/n.md", "content": "two"})).await;
    let second = stamp().await;
    assert!(first[0].is_some() && first[0] != second[0] && second == stamp().await);
    // Changed by another program, without notice.
    std::fs::write(vault.at("a/n.md"), "three, and longer").unwrap();
    assert_ne!(second[0], stamp().await[0]);
    vault.ok(json!({"action": "move", "path": "a/n.md", "new_path": "b.md"})).await;
    vault.ok(json!({"action": "delete", "path": "b.md", "confirm": true})).await;
    // Files that are not notes are not published.
    handle.write("teams/crew/cards/a.json", b"{}".to_vec()).await.unwrap();
    handle.write("teams/crew/a.md", b"x".to_vec()).await.unwrap();
    let published: Vec<_> = std::iter::from_fn(|| changes.try_recv().ok()).collect();
    let published: Vec<_> =
        published.iter().map(|one| (one.uri.trim_start_matches("vault:///"), one.listed)).collect();
    let expected = [
        ("a/n.md", true),
        ("a/n.md", false),
        ("a/n.md", true),
        ("b.md", true),
        ("b.md", true),
        ("teams/crew/a.md", true),
    ];
    assert_eq!(published, expected);
    assert_eq!(
        handle.stamps(vec!["vault:///../x.md".to_owned()]).await.unwrap_err().code,
        "invalid_path"
    );
}

/// An unreadable note hides no other.
#[test]
fn notes_that_cannot_be_looked_at_are_told_one_by_one() {
    use std::os::unix::fs::PermissionsExt;

    // Root may read everything; this thread, and those that it begins, no longer may.
    let mut sets = rustix::thread::capabilities(None).unwrap();
    let everywhere = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    sets.effective.remove(everywhere);
    rustix::thread::set_capabilities(None, sets).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let vault = TestVault::open(Options::default()).await;
        for path in ["a/hidden.md", "b.md"] {
            vault.ok(json!({"action": "write", "path": path, "content": "x"})).await;
        }
        let mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(vault.at("a"), permissions).unwrap();
        };
        mode(0o000);
        let paths = ["a/hidden.md", "b.md", "c.md"].map(|path| format!("vault:///{path}"));
        let stamps = vault.handle.stamps(paths.into()).await;
        mode(0o700);
        let stamps = stamps.unwrap();
        assert_eq!(stamps[0].as_ref().unwrap_err().code, "vault_io");
        assert!(matches!((&stamps[1], &stamps[2]), (Ok(Some(_)), Ok(None))), "{stamps:?}");
    });
}

#[tokio::test]
async fn nobody_waits_for_ever_to_look_into_a_busy_vault() {
    let vault = TestVault::open(Options::default()).await;
    vault.handle.write("teams/red/cards/a.json", b"{}".to_vec()).await.unwrap();
    let readers = vault.handle.0.readers.clone();
    let busy = readers.clone().acquire_many_owned(readers.available_permits() as u32).await;
    tokio::time::pause();
    let late = vault.handle.stamps(vec!["vault:///a.md".to_owned()]).await.unwrap_err();
    assert_eq!(late.code, "deadline_exceeded");
    let late = vault.handle.read("teams/red/cards/a.json").await.unwrap_err();
    assert_eq!(late.code, "deadline_exceeded");
    tokio::time::resume();
    drop(busy);
    assert!(vault.handle.read("teams/red/cards/a.json").await.unwrap().is_some());
}

#[tokio::test]
async fn every_action_answers() {
    let vault = TestVault::open(Options::default()).await;
    let text = "---\ntags: [one]\n---\nbody #two\n";
    let wrote = vault.ok(json!({"action": "write", "path": "a/n.md", "content": text})).await;
    assert_eq!(
        wrote,
        json!({"path": "a/n.md", "mode": "overwrite", "created": true, "size_bytes": text.len()})
    );
    let read = vault.ok(json!({"action": "read", "path": "a/n.md"})).await;
    assert_eq!(read, json!({"path": "a/n.md", "content": text, "size_bytes": text.len()}));
    let read = vault.ok(json!({"action": "read", "path": "a/n.md", "format": "json"})).await;
    assert_eq!(read["frontmatter"], json!({"tags": ["one"]}));
    let found = vault.ok(json!({"action": "search", "query": "body", "tag": "two"})).await;
    assert_eq!(found["result_count"], 1);
    let row = json!({"path": "a/n.md", "line_number": 4, "line": "body #two", "context": "tags: [one]\n---\nbody #two"});
    assert_eq!(found["results"], json!([row]));
    assert_eq!((&found["truncated"], &found["notes_searched"]), (&json!(false), &json!(1)));
    let listed = vault.ok(json!({"action": "list"})).await;
    assert_eq!(listed["entries"], json!([{"path": "a", "is_dir": true, "size": 0}]));
    let page = json!({"action": "list", "recursive": true, "notes_only": true, "limit": 1});
    let listed = vault.ok(page).await;
    let size = text.len();
    assert_eq!(listed["entries"], json!([{"path": "a/n.md", "is_dir": false, "size": size}]));
    let after = json!({"action": "list", "recursive": true, "after": "a/n.md"});
    assert_eq!(vault.ok(after).await["count"], 0);
    let set = json!({"action": "frontmatter", "frontmatter_action": "set", "path": "a/n.md", "key": "k", "value": null});
    assert_eq!(vault.ok(set).await["frontmatter"], json!({"tags": ["one"], "k": null}));
    let delete = json!({"action": "frontmatter", "frontmatter_action": "delete", "path": "a/n.md", "key": "k"});
    assert_eq!(vault.ok(delete.clone()).await["changed"], true);
    assert_eq!(vault.ok(delete).await["changed"], false);
    let add = json!({"action": "tags", "tags_action": "add", "path": "a/n.md", "tag": "#three"});
    let added = vault.ok(add).await;
    assert_eq!(
        (&added["tags"], &added["inline_tags"], &added["changed"]),
        (&json!(["one", "three", "two"]), &json!(["two"]), &json!(true))
    );
    let replace =
        json!({"action": "replace", "path": "a/n.md", "old_string": "body", "new_string": "text"});
    assert_eq!(vault.ok(replace).await["replacements"], 1);
    let same = vault.ok(json!({"action": "move", "path": "a/n.md", "new_path": "a/n.md"})).await;
    assert_eq!(same, json!({"moved": false, "from": "a/n.md", "to": "a/n.md"}));
    let moved = vault.ok(json!({"action": "move", "path": "a/n.md", "new_path": "b/m.md"})).await;
    assert_eq!(moved["moved"], true);
    let batch =
        vault.ok(json!({"action": "batch_read", "paths": ["b/m.md", "no.md", "../x.md"]})).await;
    assert_eq!(batch["notes"][0]["content"], "---\ntags: [one, three]\n---\ntext #two\n");
    assert!(batch["notes"][1]["error"].as_str().unwrap().contains("no.md"));
    assert!(batch["notes"][2]["error"].as_str().unwrap().contains(".."));
    let stats = vault.ok(json!({"action": "stats"})).await;
    assert_eq!((&stats["total_notes"], &stats["total_folders"]), (&json!(1), &json!(2)));
    assert_eq!(stats["recent_files"][0]["path"], "b/m.md");
    assert_eq!(vault.code(json!({"action": "delete", "path": "b/m.md"})).await, "not_confirmed");
    let gone = vault.ok(json!({"action": "delete", "path": "b/m.md", "confirm": true})).await;
    assert_eq!(gone, json!({"path": "b/m.md", "deleted": true}));
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_refused_by_name() {
    let vault = TestVault::open(Options::default()).await;
    for (args, code) in [
        (json!({"action": "read"}), "invalid_input"),
        (json!({"action": "read", "path": "../a.md"}), "invalid_path"),
        (json!({"action": "read", "path": "/a.md"}), "invalid_path"),
        (json!({"action": "read", "path": "a.txt"}), "not_a_note"),
        (json!({"action": "write", "path": "a.sh", "content": "x"}), "not_a_note"),
        (json!({"action": "write", "path": ".git/a.md", "content": "x"}), "invalid_path"),
        (json!({"action": "write", "path": "teams/t/cards/m.json", "content": "x"}), "not_a_note"),
        (json!({"action": "read", "path": "a.md"}), "note_not_found"),
        (json!({"action": "list", "path": ".obsidian"}), "invalid_path"),
        (json!({"action": "search", "query": "(", "regex": true}), "invalid_pattern"),
        (json!({"action": "search", "query": "x", "tag": "a b"}), "invalid_input"),
        (
            json!({"action": "tags", "path": "a.md", "tags_action": "add", "tag": "12"}),
            "invalid_input",
        ),
        (
            json!({"action": "frontmatter", "path": "a.md", "frontmatter_action": "set", "key": "k"}),
            "invalid_input",
        ),
        (json!({"action": "delete", "path": "a.md", "confirm": true}), "note_not_found"),
    ] {
        assert_eq!(vault.code(args.clone()).await, code, "{args}");
    }
}

#[tokio::test]
async fn malformed_front_matter_is_told_with_its_place_and_kept() {
    let vault = TestVault::open(Options::default()).await;
    let text = "---\nok: 1\nbad: [1, 2\n---\nbody #t\n";
    vault.ok(json!({"action": "write", "path": "a.md", "content": text})).await;
    let on = |mut args: Value| {
        args["path"] = "a.md".into();
        args
    };
    for args in [
        json!({"action": "frontmatter", "frontmatter_action": "get"}),
        json!({"action": "frontmatter", "frontmatter_action": "set", "key": "ok", "value": 2}),
        json!({"action": "frontmatter", "frontmatter_action": "delete", "key": "ok"}),
        json!({"action": "tags", "tags_action": "add", "tag": "x"}),
        json!({"action": "tags", "tags_action": "remove", "tag": "x"}),
    ] {
        let refused = vault.call(on(args.clone())).await.expect_err("refused");
        assert_eq!(refused.code, "malformed_frontmatter", "{args}");
        assert_eq!(refused.details["line"], 4, "{args}");
        assert!(refused.details["column"].is_u64() && refused.next_step.is_some());
    }
    assert_eq!(std::fs::read_to_string(vault.at("a.md")).unwrap(), text, "nothing was changed");
    let read = vault.ok(on(json!({"action": "read", "format": "json"}))).await;
    assert!(read["frontmatter_error"].as_str().unwrap().contains("line 4"), "{read}");
    assert_eq!((&read["content"], read.get("frontmatter")), (&json!(text), None));
    let tags = vault.ok(on(json!({"action": "tags", "tags_action": "list"}))).await;
    assert_eq!(tags["tags"], json!(["t"]));
    assert!(tags["frontmatter_error"].is_string());
    let batch = vault.ok(json!({"action": "batch_read", "paths": ["a.md"]})).await;
    assert_eq!(batch["notes"][0]["content"], text);
    assert!(batch["notes"][0]["error"].as_str().unwrap().contains("line 4"));
    assert_eq!(
        vault.ok(json!({"action": "search", "query": "body", "tag": "t"})).await["result_count"],
        1
    );
    vault.ok(on(json!({"action": "write", "mode": "prepend", "content": "first\n"}))).await;
    vault.ok(on(json!({"action": "write", "mode": "append", "content": "last\n"}))).await;
    vault.ok(on(json!({"action": "replace", "old_string": "[1, 2", "new_string": "[1, 2]"}))).await;
    let now = std::fs::read_to_string(vault.at("a.md")).unwrap();
    assert_eq!(now, "---\nok: 1\nbad: [1, 2]\n---\nfirst\nbody #t\nlast\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_note_lose_nothing() {
    let vault = Arc::new(TestVault::open(Options::default()).await);
    vault.ok(json!({"action": "write", "path": "n.md", "content": ""})).await;
    // Sent in this order, so appended in this order, whatever runs beside it.
    let answers: Vec<_> = (0..100)
        .map(|n| {
            let line = format!("{n}\n");
            vault.send(
                vault.cx(),
                json!({"action": "write", "path": "n.md", "mode": "append", "content": line}),
            )
        })
        .collect();
    let tags: Vec<_> = (0..20)
        .map(|n| vault.send(vault.cx(), json!({"action": "tags", "tags_action": "add", "path": "n.md", "tag": format!("t{n}")})))
        .collect();
    let others: Vec<_> = (0..20)
        .map(|n| {
            vault.send(
                vault.cx(),
                json!({"action": "write", "path": format!("{n}.md"), "content": "x"}),
            )
        })
        .collect();
    for answer in answers.into_iter().chain(tags).chain(others) {
        answer.await.unwrap().unwrap();
    }
    let text = std::fs::read_to_string(vault.at("n.md")).unwrap();
    let body: String = (0..100).map(|n| format!("{n}\n")).collect();
    let tags: String = (0..20).map(|n| format!("  - t{n}\n")).collect();
    assert_eq!(text, format!("---\ntags:\n{tags}---\n{body}"));
}

#[tokio::test]
async fn patterns_that_take_long_keep_no_quick_writer_out() {
    let vault = TestVault::open(Options::default()).await;
    vault.ok(json!({"action": "write", "path": "n.md", "content": "text"})).await;
    let crowd = vault.handle.0.slow_writers.clone();
    let busy = crowd.clone().acquire_many_owned(crowd.available_permits() as u32).await.unwrap();
    let replace = json!({"action": "replace", "path": "n.md", "old_string": "t", "new_string": "T", "regex": true});
    let waits: Vec<_> = (0..20).map(|_| vault.send(vault.cx(), replace.clone())).collect();
    vault.ok(json!({"action": "write", "path": "o.md", "content": "text"})).await;
    vault.handle.write("teams/red/cards/a.json", b"{}".to_vec()).await.unwrap();
    assert_eq!(std::fs::read_to_string(vault.at("n.md")).unwrap(), "text");
    drop(busy);
    for (nth, answer) in waits.into_iter().enumerate() {
        let replacements = if nth == 0 { 2 } else { 0 };
        assert_eq!(answer.await.unwrap().unwrap()["replacements"], replacements);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_back_and_forth_never_wait_for_each_other() {
    let vault = TestVault::open(Options::default()).await;
    vault.ok(json!({"action": "write", "path": "a.md", "content": "text"})).await;
    let answers: Vec<_> = (0..60)
        .map(|n| {
            let (from, to) = if n % 2 == 0 { ("a.md", "b.md") } else { ("b.md", "a.md") };
            vault.send(vault.cx(), json!({"action": "move", "path": from, "new_path": to}))
        })
        .collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap().unwrap()["moved"], true);
    }
    assert!(vault.at("a.md").exists() && !vault.at("b.md").exists());
}

#[tokio::test]
async fn a_cancelled_change_that_waits_does_nothing() {
    let vault = TestVault::open(Options::default()).await;
    let cx = vault.cx();
    cx.cancel.cancel();
    let answer = vault.send(cx, json!({"action": "write", "path": "a.md", "content": "x"}));
    assert_eq!(answer.await.unwrap().unwrap_err().code, "cancelled");
    assert!(!vault.at("a.md").exists());
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_said_and_looked_for_again() {
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("mount");
    let vault = TestVault::open(Options { path: Some(path.clone()), ..Options::default() }).await;
    let list = || json!({"action": "list"});
    let refused = vault.call(list()).await.unwrap_err();
    assert_eq!((refused.code.as_ref(), refused.retryable), ("vault_unavailable", true));
    assert_eq!(
        vault.code(json!({"action": "write", "path": "a.md", "content": "x"})).await,
        "vault_unavailable"
    );
    assert!(!path.exists(), "a folder that was set is not made");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(vault.ok(list()).await["count"], 0);
    let off = TestVault::open(Options { enabled: false, ..Options::default() }).await;
    assert_eq!(off.code(list()).await, "vault_disabled");
    assert!(!off.at("").exists());
}

#[tokio::test]
async fn the_daemon_keeps_files_of_its_own_there() {
    let vault = TestVault::open(Options::default()).await;
    let port = &vault.handle;
    let card = "teams/red/cards/red-coder.json";
    assert_eq!(port.read(card).await.unwrap(), None);
    assert!(port.list("teams/red").await.unwrap().is_empty());
    port.write(card, b"{}".to_vec()).await.unwrap();
    port.write(card, b"{\"a\":1}".to_vec()).await.unwrap();
    port.write("teams/red/notes/a.md", b"a".to_vec()).await.unwrap();
    assert_eq!(port.read(card).await.unwrap().unwrap(), b"{\"a\":1}");
    assert_eq!(port.list("teams/red").await.unwrap(), [card, "teams/red/notes/a.md"]);
    for refused in ["cards/a.json", "teams/../a.json", "teams/a.txt", "/teams/a.json"] {
        assert!(port.write(refused, Vec::new()).await.is_err(), "{refused}");
    }
    assert!(port.remove(card).await.unwrap() && !port.remove(card).await.unwrap());
    assert!(Path::new(&vault.at("teams/red/cards")).exists());
}

#[tokio::test]
async fn a_change_too_many_is_busy_and_was_not_done() {
    let vault = TestVault::open(Options::default()).await;
    let append = json!({"action": "write", "path": "n.md", "content": "x", "mode": "append"});
    let sent: Vec<_> = (0..3_000).map(|_| vault.send(vault.cx(), append.clone())).collect();
    let (mut done, mut busy) = (0, 0);
    for answer in sent {
        match answer.await.unwrap() {
            Ok(_) => done += 1,
            Err(error) => {
                assert!(error.code == "busy" && error.retryable, "{error}");
                busy += 1;
            }
        }
    }
    assert!(busy > 0, "all of them waited");
    assert_eq!(std::fs::read_to_string(vault.at("n.md")).unwrap().len(), done);
}
