//! The store and its tools over a real folder, for two users, and through crashes.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::{CallId, SessionId, ToolError, User};
use hivekeep_ports::{KeptResult, LargeResult, LateTools, ResultKeeper};
use hivekeep_runtime::documents::{DocumentBody, DocumentListing, Documents, Refusal};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    ArtifactAccess, ArtifactFamily, ArtifactInfo, Artifacts, Options, artifact_id,
    folder::ArtifactFolder,
};

const OWNER: User = User::Uid(0);
const OTHER: User = User::Uid(1);

/// The rig's session is the owner's, the other one another user's, whose tier allows one artifact.
struct Stage {
    rig: Rig<ArtifactFamily>,
    other: SessionId,
}

impl Stage {
    async fn new(options: Options) -> Self {
        let other = SessionId::new();
        let users = FakeUsers::all(OWNER).and(other, OTHER).allowed(OTHER, "artifacts", 1);
        let services = RigServices {
            sessions: Arc::new(users),
            tools: Arc::new(LateTools::default()),
            offer: Arc::new(|_| ()),
        };
        Self { rig: Rig::new(options, services).await, other }
    }

    fn store(&self) -> Arc<Artifacts> {
        self.rig.daemon.ports.need::<Artifacts>().expect("it is offered")
    }

    fn files(&self) -> Vec<PathBuf> {
        let folder =
            fs::read_dir(self.rig.daemon.folders.state.join("artifacts")).expect("a folder");
        folder.map(|entry| entry.expect("an entry").path()).collect()
    }

    async fn keep(&self, user: User, value: Value) -> Result<KeptResult, ToolError> {
        let keeper = self.rig.daemon.ports.need::<dyn ResultKeeper>().expect("it is offered");
        let (session, call) = (self.rig.session, CallId::new());
        keeper.keep(LargeResult { user, session, call, tool: "exec", value }).await
    }

    async fn as_other(&self, tool: &str, args: Value) -> Result<Value, ToolError> {
        self.rig.begin_as(self.other, tool, args, Duration::from_secs(60)).answer().await
    }
}

/// All of an artifact, read in ranges of so many bytes.
async fn read_all(stage: &Stage, uri: &str, length: usize) -> String {
    let (mut whole, mut offset) = (String::new(), Some(0));
    while let Some(at) = offset {
        let args = json!({ "uri": uri, "offset": at, "length": length });
        let part = stage.rig.call("artifact_read", args).await.expect("a range");
        let text = part["text"].as_str().expect("a text");
        assert!(text.len() <= length && (part["offset"] == at), "{part}");
        whole.push_str(text);
        offset = part["next_offset"].as_u64();
    }
    whole
}

#[tokio::test]
async fn what_is_kept_is_read_back_byte_for_byte_also_after_a_crash() {
    let mut stage = Stage::new(Options::default()).await;
    let value = json!({ "stdout": "größe \u{1d11e}\n\"x\" ".repeat(2_000), "exit_code": 0 });
    let text = value.to_string();
    let kept = stage.keep(OWNER, value).await.expect("kept");
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((kept.bytes, &kept.sha256), (text.len() as u64, &digest));
    for length in [4, 1_000, 1024 * 1024] {
        assert_eq!(read_all(&stage, &kept.uri, length).await, text);
    }
    stage.rig = stage.rig.crashed().await;
    assert_eq!(read_all(&stage, &kept.uri, 32 * 1024).await, text);
    let rows = stage.rig.call("artifact_list", json!({})).await.expect("listed");
    let row = &rows["artifacts"][0];
    assert_eq!(
        (&row["uri"], &row["sha256"], &row["tool"]),
        (&json!(kept.uri), &json!(digest), &json!("exec"))
    );
    assert_eq!(row["expires_at"], json!(kept.expires_at), "as it was told before the crash");
    let behind = json!({ "uri": kept.uri, "offset": text.len() + 1 });
    assert_eq!(
        stage.rig.call("artifact_read", behind).await.expect_err("behind").code,
        "invalid_input"
    );
}

#[tokio::test]
async fn an_artifact_is_its_users_alone_and_the_operators() {
    let stage = Stage::new(Options::default()).await;
    let uri = stage.keep(OWNER, json!("x".repeat(9_000))).await.expect("kept").uri;
    for tool in ["artifact_read", "artifact_delete"] {
        let refused = stage.as_other(tool, json!({ "uri": uri })).await.expect_err(tool);
        let unknown = json!({ "uri": hivekeep_kernel::ArtifactId::new() });
        let missing = stage.as_other(tool, unknown).await.expect_err(tool);
        assert_eq!((&refused.code, refused.layer), (&missing.code, missing.layer));
        assert_eq!(refused.code, "artifact_not_found", "{tool}");
    }
    assert_eq!(stage.as_other("artifact_list", json!({})).await.expect("listed")["total"], 0);
    let (store, id) = (stage.store(), artifact_id(&uri).expect("an id"));
    let open = store.open(id, ArtifactAccess::Operator).await.expect("the operator's");
    assert!(store.open(id, ArtifactAccess::User(OTHER)).await.is_err());
    stage.rig.call("artifact_delete", json!({ "uri": uri })).await.expect("its own");
    assert_eq!(stage.files().len(), 0);
    let part = open.text(0, 10).await.expect("what is open stays readable");
    assert_eq!((part.text.as_str(), part.next), ("\"xxxxxxxxx", Some(10)));
    assert_eq!(
        stage.rig.call("artifact_read", json!({ "uri": uri })).await.expect_err("gone").code,
        "artifact_not_found"
    );
}

#[tokio::test]
async fn no_more_is_kept_than_may_be_and_nothing_gives_way_before_its_time() {
    let bounds = Options { max_user_mb: 1, max_total_mb: 2, max_per_user: 3, ..Options::default() };
    let stage = Stage::new(bounds).await;
    let value = |kib: usize| json!("x".repeat(kib * 1024));
    let first = stage.keep(OWNER, value(600)).await.expect("kept");
    let refused = stage.keep(OWNER, value(600)).await.expect_err("a megabyte");
    assert_eq!(refused.code, "artifacts_full");
    stage.keep(OWNER, value(1)).await.expect("kept");
    stage.keep(OWNER, value(1)).await.expect("kept");
    assert_eq!(stage.keep(OWNER, value(1)).await.expect_err("three").code, "artifacts_full");
    stage.keep(OTHER, value(1)).await.expect("a bound of its own");
    assert_eq!(stage.keep(OTHER, value(1)).await.expect_err("its tier").code, "artifacts_full");
    stage.keep(User::Bearer, value(1_000)).await.expect("kept");
    let refused = stage.keep(User::Uid(9), value(1_000)).await.expect_err("two in all");
    assert!(refused.message.contains("together"), "{refused}");
    assert_eq!(stage.files().len(), 5, "what is refused leaves nothing");
    stage.rig.call("artifact_delete", json!({ "uri": first.uri })).await.expect("deleted");
    stage.keep(OWNER, value(600)).await.expect("there is room again");
}

#[tokio::test]
async fn parallel_results_together_keep_to_the_bound() {
    let stage = Stage::new(Options { max_per_user: 5, ..Options::default() }).await;
    let keep = |_| stage.keep(OWNER, json!("x".repeat(100_000)));
    let all = futures::future::join_all((0..12).map(keep)).await;
    let kept = all.iter().filter(|kept| kept.is_ok()).count();
    assert_eq!((kept, stage.files().len()), (5, 5), "{all:?}");
}

#[tokio::test]
async fn what_has_expired_is_not_found_and_then_removed() {
    let mut stage = Stage::new(Options { kept_hours: 2, ..Options::default() }).await;
    stage.keep(OWNER, json!("x")).await.expect("kept");
    let store = stage.store();
    store.expire(Utc::now() + TimeDelta::minutes(119)).await;
    assert_eq!(stage.files().len(), 1);
    store.expire(Utc::now() + TimeDelta::minutes(121)).await;
    assert_eq!(stage.files().len(), 0);
    // One that expired while the daemon did not run.
    let mut info = sample();
    info.expires_at = Utc::now() - TimeDelta::seconds(1);
    let (folder, _) =
        ArtifactFolder::open(stage.rig.daemon.folders.state.join("artifacts")).expect("opens");
    folder.write(&mut info, &json!("old")).expect("written");
    stage.rig = stage.rig.crashed().await;
    assert!(stage.store().find(info.id, ArtifactAccess::Operator).is_err());
    hivekeep_testkit::eventually("it is removed", async || stage.files().is_empty()).await;
}

#[tokio::test]
async fn as_documents_they_are_listed_and_read_whole_or_in_ranges() {
    let stage = Stage::new(Options::default()).await;
    let small = stage.keep(OWNER, json!({ "a": "é" })).await.expect("kept").uri;
    let large = stage.keep(OWNER, json!("x".repeat(2_000_000))).await.expect("kept").uri;
    let documents = stage.store();
    let read = async |uri: &str| {
        let args = documents.read_args(uri)?;
        let answer = stage.rig.call(documents.tool(), Value::Object(args)).await?;
        documents.body(uri, answer)
    };
    let text = |body: &str| DocumentBody::Text(body.to_owned());
    assert_eq!(read(&small).await.expect("whole"), text(r#"{"a":"é"}"#));
    assert_eq!(
        read(&format!("{small}?offset=3&length=4")).await.expect("a range"),
        text(&(r#"":"#.to_owned() + "\""))
    );
    let refused = read(&large).await.expect_err("too large to be read at once");
    assert_eq!(documents.refusal(&refused), Refusal::Invalid);
    assert!(refused.next_step.is_some_and(|step| step.contains("?offset=0&length=1048576")));
    assert_eq!(
        read(&format!("{large}?offset=1999999&length=9")).await.expect("the end"),
        text("xx\"")
    );
    let missing = read(&format!("{small}0").replace("art_0", "art_f")).await.expect_err("no id");
    assert_eq!(documents.refusal(&missing), Refusal::Invalid);
    let args = Value::Object(documents.list_args(None, 1));
    let answer = stage.rig.call(documents.list_tool(), args).await.expect("listed");
    let page = documents.listed(answer).expect("a page");
    assert_eq!(
        (page.documents[0].uri.as_str(), page.documents[0].size),
        (large.as_str(), 2_000_002)
    );
    let args = Value::Object(documents.list_args(page.next.as_deref(), 1));
    let answer = stage.rig.call(documents.list_tool(), args).await.expect("listed");
    let page = documents.listed(answer).expect("a page");
    assert_eq!((page.documents[0].uri.as_str(), page.next), (small.as_str(), None));
}

fn sample() -> ArtifactInfo {
    ArtifactInfo {
        id: hivekeep_kernel::ArtifactId::new(),
        user: OWNER,
        session: SessionId::new(),
        call: CallId::new(),
        tool: "exec".to_owned(),
        bytes: 0,
        sha256: String::new(),
        created_at: Utc::now(),
        expires_at: Utc::now() + TimeDelta::hours(1),
    }
}

#[test]
fn a_start_removes_what_was_half_written_and_what_is_damaged_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("artifacts");
    let (folder, found) = ArtifactFolder::open(path.clone()).expect("made");
    assert_eq!(found, []);
    let mut infos = [sample(), sample(), sample()];
    for info in &mut infos {
        folder.write(info, &json!({ "a": [1, "x\ny"] })).expect("written");
    }
    let file = |info: &ArtifactInfo| path.join(info.id.to_string());
    let whole = fs::read(file(&infos[0])).expect("read");
    assert!(whole.starts_with(b"{\"a\":[1,\"x\\ny\"]}\n"), "the result stands first");
    fs::write(file(&infos[1]), &whole).expect("another's contents");
    fs::write(file(&infos[2]), &whole[..whole.len() - 9]).expect("cut");
    fs::write(path.join("art_1.part"), "half").expect("written");
    fs::write(path.join("a person's note"), "x").expect("written");
    let (_, found) = ArtifactFolder::open(path.clone()).expect("opened");
    assert_eq!(found, [infos[0].clone()]);
    let mut left: Vec<_> =
        fs::read_dir(&path).expect("listed").map(|entry| entry.expect("an entry").path()).collect();
    left.sort();
    assert_eq!(left, [path.join("a person's note"), file(&infos[0])]);
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).expect("there")) & 0o777
}

#[tokio::test]
async fn files_are_the_daemons_users_alone_and_none_is_written_below_the_floor() {
    let stage = Stage::new(Options::default()).await;
    stage.keep(OWNER, json!("x")).await.expect("kept");
    let files = stage.files();
    assert_eq!((mode(&files[0]), mode(files[0].parent().expect("a folder"))), (0o600, 0o700));
    let free = Arc::new(std::sync::atomic::AtomicU64::new(1));
    let mut daemon = stage.rig.daemon.clone();
    daemon.room = hivekeep_kernel::Room::from_counter(1 << 20, free);
    let store = Artifacts::open_store(&daemon, Options::default()).await.expect("opened");
    let (session, call) = (stage.rig.session, CallId::new());
    let result = LargeResult { user: OWNER, session, call, tool: "exec", value: json!("y") };
    let refused = store.keep(result).await.expect_err("no room");
    assert_eq!((refused.code.as_ref(), stage.files().len()), ("host_disk_full", 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn ranges_of_text_add_up_to_the_whole(text in "\\PC{0,80}", lengths in prop::collection::vec(4_usize..12, 1..8)) {
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, _) = ArtifactFolder::open(dir.path().join("a")).expect("made");
        let (mut info, value) = (sample(), json!(text));
        folder.write(&mut info, &value).expect("written");
        let open = crate::OpenArtifact::new(info.clone(), folder.file(info.id).expect("opened"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let whole = runtime.block_on(async {
            let (mut whole, mut at, mut lengths) = (String::new(), Some(0), lengths.iter().cycle());
            while let Some(offset) = at {
                let part = open.text(offset, *lengths.next().expect("for ever")).await.expect("a range");
                assert_eq!(part.offset, offset);
                whole.push_str(&part.text);
                at = part.next;
            }
            whole
        });
        prop_assert_eq!(whole, value.to_string());
    }
}
