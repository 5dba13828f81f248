//! The registry over a real journal, with notes as its manifests.

use std::{collections::BTreeMap, sync::Arc};

use hivekeep_kernel::{ErrorCode, ScriptId, ToolError, User};
use hivekeep_ports::LateTools;
use hivekeep_runtime::{Daemon, log};
use hivekeep_store::{Journal, Seq};
use hivekeep_testkit::FakeUsers;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    DeployRequest, ManifestEntry, ManifestLabels, ManifestQuery, ManifestRegistry, ManifestScope,
    ManifestVersion, RegisteredManifest, RegistryCaller, RegistryLimits, ScopeMove, check_tenant,
    codes,
};

hivekeep_kernel::codes! {
    /// There is no such note.
    NOTE_NOT_FOUND = "note_not_found" { cause: "A test.", next: "None." }
}

#[derive(Debug, Clone)]
struct Note {
    name: String,
    version: String,
    words: String,
}

impl RegisteredManifest for Note {
    type Id = ScriptId;

    const KIND: &'static str = "note";
    const HELD: &'static str = "notes";
    const NOT_FOUND: &'static ErrorCode = NOTE_NOT_FOUND;
    const LISTED_BY: &'static str = "note_list";

    fn new_id() -> ScriptId {
        ScriptId::new()
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn version(&self) -> &str {
        &self.version
    }
    fn description(&self) -> Option<&str> {
        Some("A note")
    }
    fn labels(&self) -> ManifestLabels {
        ManifestLabels::from([("topic".to_owned(), self.words.clone())])
    }
    fn words(&self) -> String {
        self.words.clone()
    }
}

const ADA: RegistryCaller = RegistryCaller { user: User::Uid(1), operator: false };
const BEN: RegistryCaller = RegistryCaller { user: User::Uid(2), operator: false };
const OPERATOR: RegistryCaller = RegistryCaller { user: User::Uid(1), operator: true };
const CALLERS: [RegistryCaller; 3] = [ADA, BEN, OPERATOR];
const ROOMY: RegistryLimits = RegistryLimits { names: 100, bytes: 64 << 20 };

fn request(name: &str, version: &str, text: &str) -> DeployRequest<Note> {
    let [name, version, text] = [name, version, text].map(str::to_owned);
    let manifest = Note { name, version, words: text.chars().take(40).collect() };
    DeployRequest { manifest, text, update: false, force: false }
}

struct Stage {
    registry: ManifestRegistry<Note>,
    journal: Journal,
    folder: TempDir,
    limits: RegistryLimits,
}

impl Stage {
    async fn new(limits: RegistryLimits) -> Self {
        Self::open(TempDir::new().expect("a folder"), limits).await
    }

    async fn open(folder: TempDir, limits: RegistryLimits) -> Self {
        let options = hivekeep_store::Options::at(folder.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await;
        let (journal, _) = opened.expect("no panic").expect("the journal opens");
        let users = FakeUsers::all(ADA.user).allowed(BEN.user, "notes", 1);
        let tools = Arc::new(LateTools::default());
        let daemon = Daemon::for_tests(folder.path(), journal.clone(), Arc::new(users), tools);
        let registry = ManifestRegistry::open(&daemon, limits).await.expect("it opens");
        Self { registry, journal, folder, limits }
    }

    /// The same state by another daemon; what was not on the disk is lost.
    async fn crashed(self) -> Self {
        let Self { registry, journal, folder, limits } = self;
        drop(registry);
        journal.close().await;
        Self::open(folder, limits).await
    }

    async fn put(&self, by: RegistryCaller, name: &str, version: &str) -> Result<(), ToolError> {
        self.registry.deploy(by, request(name, version, "text")).await.map(drop)
    }

    fn text(&self, by: RegistryCaller, name: &str, version: Option<&str>) -> String {
        let found = self.registry.find(by, name, version);
        found.map_or_else(|error| error.code.into_owned(), |(_, _, kept)| kept.text.clone())
    }

    async fn found(&self, words: &str, labels: &[(&str, &str)]) -> Vec<(f64, String)> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let (words, labels) = (words.to_owned(), labels.collect());
        let query = ManifestQuery { words, labels, min_score: 0.3, global: true };
        let found = self.registry.search(ADA, query).await.expect("searched").into_iter();
        found.map(|(score, _, entry)| (score, entry.name)).collect()
    }
}

fn code(outcome: Result<(), ToolError>) -> String {
    outcome.map_or_else(|error| error.code.into_owned(), |()| "ok".to_owned())
}

#[derive(Debug, Clone)]
enum Act {
    Deploy { by: usize, name: &'static str, minor: u32, update: bool, force: bool },
    Delete { by: usize, nth: usize },
    Move { by: usize, nth: usize, by_name: bool, way: ScopeMove, target: ManifestScope },
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    let name = prop::sample::select(vec!["a", "b"]);
    let minor = prop::sample::select(vec![2, 9, 10]);
    let deploy = (0..3_usize, name, minor, any::<bool>(), any::<bool>());
    let way = prop::sample::select(vec![ScopeMove::Promote, ScopeMove::Demote]);
    let (ada, everybody) = (ManifestScope::User(ADA.user), ManifestScope::Global);
    let target = prop::sample::select(vec![ada, ManifestScope::Tenant, everybody]);
    prop_oneof![
        8 => deploy.prop_map(|(by, name, minor, update, force)| Act::Deploy { by, name, minor, update, force }),
        2 => (0..3_usize, 0..4_usize).prop_map(|(by, nth)| Act::Delete { by, nth }),
        6 => (1..3_usize, 0..4_usize, any::<bool>(), way, target)
            .prop_map(|(by, nth, by_name, way, target)| Act::Move { by, nth, by_name, way, target }),
        1 => Just(Act::Crash),
    ]
}

/// Texts that have to be there, by scope and name, and by version.
type Model = BTreeMap<(ManifestScope, &'static str), BTreeMap<u32, String>>;

fn sees(by: RegistryCaller, scope: ManifestScope) -> bool {
    by.operator || scope.owner().is_none_or(|user| user == by.user)
}

async fn do_act(stage: &Stage, model: &mut Model, act: &Act, text: String) {
    match act {
        Act::Deploy { by, name, minor, update, force } => {
            let (by, version) = (CALLERS[*by], format!("1.{minor}.0"));
            let key = |scope| (scope, *name);
            let promoted = *update && by.operator && !model.contains_key(&key(by.scope()));
            let promoted = promoted && model.contains_key(&key(ManifestScope::Global));
            let key = key(if promoted { ManifestScope::Global } else { by.scope() });
            let there = model.get(&key);
            let expected = match there {
                None if *update => "note_not_found",
                Some(versions) if versions.contains_key(minor) && !force => "version_exists",
                _ => "ok",
            };
            if expected == "ok" {
                model.entry(key).or_default().insert(*minor, text.clone());
            }
            let asked = request(name, &version, &text);
            let asked = DeployRequest { update: *update, force: *force, ..asked };
            let done = stage.registry.deploy(by, asked).await.map(drop);
            assert_eq!(code(done), expected, "{act:?}");
        }
        Act::Delete { by, nth } => {
            let all = stage.registry.list(OPERATOR);
            let Some((id, entry)) = all.get(*nth) else { return };
            let by = CALLERS[*by];
            let may = by.operator || entry.scope == by.scope();
            let done = stage.registry.delete(by, &id.to_string()).await.map(drop);
            assert_eq!(code(done), if may { "ok" } else { "note_not_found" }, "{act:?}");
            if may {
                model.retain(|(scope, name), _| (*scope, *name) != (entry.scope, &*entry.name));
            }
        }
        Act::Move { by, nth, by_name, way, target } => {
            let all = stage.registry.list(OPERATOR);
            let Some((id, entry)) = all.get(*nth) else { return };
            let (by, name) = (CALLERS[*by], if entry.name == "a" { "a" } else { "b" });
            let height = |scope: ManifestScope| scope.height();
            let fits = |from: &ManifestScope| match way {
                ScopeMove::Promote => height(*from) < height(*target),
                ScopeMove::Demote => height(*from) > height(*target),
            };
            let named = model.keys().filter(|(scope, it)| {
                *it == name && scope.owner().is_none_or(|user| user == by.user) && fits(scope)
            });
            let nearest = named.map(|(scope, _)| *scope);
            let nearest = nearest.min_by_key(|scope| height(*scope).abs_diff(height(*target)));
            let from = if *by_name { nearest } else { Some(entry.scope).filter(fits) };
            let known = !*by_name
                || model.keys().any(|(scope, it)| {
                    *it == name && scope.owner().is_none_or(|user| user == by.user)
                });
            let expected = match from {
                _ if !by.operator => "scope_unfit",
                _ if !known => "note_not_found",
                None => "scope_unfit",
                Some(_) if model.contains_key(&(*target, name)) => "scope_name_taken",
                Some(_) => "ok",
            };
            let asked = if *by_name { name.to_owned() } else { id.to_string() };
            let done = stage.registry.relocate(by, &asked, *way, *target).await;
            assert_eq!(code(done.map(drop)), expected, "{act:?}");
            if let Some(from) = from.filter(|_| expected == "ok") {
                let versions = model.remove(&(from, name)).expect("it is there");
                model.insert((*target, name), versions);
            }
        }
        Act::Crash => {}
    }
}

fn check(stage: &Stage, model: &Model) {
    for by in CALLERS {
        let listed: Vec<_> = stage.registry.list(by);
        let rows = listed.iter().map(|(_, entry)| (entry.scope, entry.name.as_str()));
        let mut wanted: Vec<_> =
            model.keys().map(|(scope, name)| (*scope, *name)).filter(|it| sees(by, it.0)).collect();
        wanted.sort_by_key(|(scope, name)| (*name, *scope));
        assert_eq!(rows.collect::<Vec<_>>(), wanted);
        for (id, entry) in &listed {
            let versions = &model[&(entry.scope, if entry.name == "a" { "a" } else { "b" })];
            let (minor, latest) = versions.last_key_value().expect("one");
            assert_eq!(entry.latest().version, format!("1.{minor}.0").parse().expect("valid"));
            assert_eq!(&stage.text(by, &id.to_string(), None), latest);
            for (minor, text) in versions {
                let version = format!("1.{minor}.0");
                assert_eq!(&stage.text(by, &id.to_string(), Some(&version)), text);
            }
        }
        for name in ["a", "b"] {
            let scopes =
                [ManifestScope::User(by.user), ManifestScope::Tenant, ManifestScope::Global];
            let nearest = scopes.iter().find_map(|scope| model.get(&(*scope, name)));
            let latest = nearest.and_then(|versions| versions.values().next_back());
            let expected = latest.map_or("note_not_found", String::as_str);
            assert_eq!(stage.text(by, name, None), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Each caller sees what is its to see, in the latest version, whatever is deployed and deleted by whom and
    /// whenever the daemon dies; nothing of what was answered is lost.
    #[test]
    fn callers_see_what_is_theirs_also_after_crashes(acts in prop::collection::vec(act(), 1..30)) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let limits = RegistryLimits { names: 100, bytes: 64 << 20 };
            let mut stage = Stage::new(limits).await;
            let mut model = Model::new();
            for (at, act) in acts.iter().enumerate() {
                // A tier allows one of the callers a single name.
                let full = matches!(act, Act::Deploy { by: 1, name: "b", .. });
                if matches!(act, Act::Crash) {
                    stage = stage.crashed().await;
                } else if !full {
                    do_act(&stage, &mut model, act, format!("text {at}")).await;
                }
                check(&stage, &model);
            }
            check(&stage.crashed().await, &model);
        });
    }

    #[test]
    fn versions_are_compared_as_numbers(a: [u32; 3], b: [u32; 3]) {
        let text = |[major, minor, patch]: [u32; 3]| format!("{major}.{minor}.{patch}");
        let read = |version: [u32; 3]| text(version).parse::<ManifestVersion>().expect("valid");
        prop_assert_eq!(read(a).to_string(), text(a));
        prop_assert_eq!(read(a).cmp(&read(b)), a.cmp(&b));
    }
}

#[test]
fn what_is_not_three_numbers_is_no_version() {
    for text in ["", "1", "1.2", "1.2.3.4", "1.2.", "1.+2.3", "1.2.x", "1.2.4294967296", "v1.2.3"] {
        assert!(text.parse::<ManifestVersion>().is_err(), "{text}");
    }
    let [old, new] = ["1.9.0", "1.10.0"].map(|text| text.parse::<ManifestVersion>());
    assert!(new.expect("valid") > old.expect("valid"));
}

#[tokio::test]
async fn a_version_is_replaced_by_force_alone_and_that_is_logged() {
    let stage = Stage::new(ROOMY).await;
    stage.put(ADA, "a", "1.0.0").await.expect("the first");
    let refused = stage.put(ADA, "a", "1.0.0").await.expect_err("it is there");
    assert!(refused.is(codes::VERSION_EXISTS) && refused.next_step.is_some(), "{refused:?}");
    let events = || stage.journal.events().read(Seq::new(1), 500).expect("read").events;
    assert!(events().is_empty());
    let mut ids = Vec::new();
    for n in 0..60 {
        let asked = DeployRequest { force: true, ..request("a", "1.0.0", &format!("text {n}")) };
        ids.push(stage.registry.deploy(ADA, asked).await.expect("replaced").0);
    }
    assert_eq!(stage.text(ADA, "a", None), "text 59");
    let events = events();
    assert_eq!(events.len(), 60);
    assert!(events.iter().all(|it| it.kind == "note.replaced" && it.subject == ids[0].to_string()));
    assert_eq!(
        (&events[0].data["version"], &events[0].data["by"]),
        (&"1.0.0".into(), &"uid:1".into())
    );
    // Folded: the stream has the state and the records since.
    stage.registry.delete(BEN, &ids[0].to_string()).await.expect_err("another's");
    let stream = log::stream::<ManifestEntry<Note>>(ids[0]).expect("a name");
    let records = || stage.journal.replay(&stream).expect("read").records.len();
    for _ in 0..1_000 {
        if records() < 40 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(records() < 40, "{} records", records());
    let stage = stage.crashed().await;
    assert_eq!(stage.text(ADA, "a", Some("1.0.0")), "text 59");
}

#[tokio::test]
async fn names_and_bytes_are_bounded_by_limits_and_tiers() {
    let stage = Stage::new(RegistryLimits { names: 2, bytes: 3 << 20 }).await;
    let full = |outcome: Result<(), ToolError>| code(outcome) == "manifest_registry_full";
    stage.put(BEN, "a", "1.0.0").await.expect("as many as the tier allows");
    assert!(full(stage.put(BEN, "b", "1.0.0").await));
    stage.put(BEN, "a", "1.0.1").await.expect("a version is not a name");
    for name in ["a", "b"] {
        stage.put(ADA, name, "1.0.0").await.expect("within the limit");
    }
    assert!(full(stage.put(ADA, "c", "1.0.0").await));
    let many = (0..20).map(|_| stage.put(OPERATOR, "same", "1.0.0"));
    let mut made = 0;
    for outcome in futures::future::join_all(many).await {
        made += usize::from(outcome.is_ok());
    }
    assert_eq!(made, 1);
    let text = "x".repeat(256 << 10);
    let mut versions = 0;
    loop {
        let asked = request("same", &format!("2.0.{versions}"), &text);
        match stage.registry.deploy(OPERATOR, asked).await {
            Ok(_) => versions += 1,
            Err(error) => break assert!(error.is(codes::MANIFEST_REGISTRY_FULL), "{error:?}"),
        }
    }
    assert_eq!(versions, 7, "two MiB of one name");
    let asked = DeployRequest { force: true, ..request("same", "2.0.0", &text) };
    stage.registry.deploy(OPERATOR, asked).await.expect("what is replaced makes room");
}

#[tokio::test]
async fn a_name_is_moved_whole_and_where_there_is_room_alone() {
    let mut stage = Stage::new(ROOMY).await;
    let shipped = Note { name: "b".into(), version: "1.0.0".into(), words: "shipped".into() };
    stage.registry.ship(ScriptId::new(), &shipped, "shipped").expect("it ships");
    for (by, version) in [(ADA, "1.9.0"), (ADA, "1.10.0"), (BEN, "1.0.0")] {
        stage.put(by, "a", version).await.expect("deployed");
    }
    stage.put(OPERATOR, "b", "1.0.0").await.expect("deployed");
    let moved = async |stage: &Stage, name: &str, way, target| {
        stage.registry.relocate(OPERATOR, name, way, target).await.map(drop)
    };
    use ManifestScope::{Global, Tenant, User};
    let taken = moved(&stage, "b", ScopeMove::Promote, Global).await.expect_err("it is shipped");
    assert!(taken.is(codes::SCOPE_NAME_TAKEN) && taken.details.get("id").is_some(), "{taken:?}");
    let full = moved(&stage, "b", ScopeMove::Demote, User(BEN.user)).await;
    assert_eq!(code(full), "manifest_registry_full", "a tier allows a single name");
    moved(&stage, "a", ScopeMove::Promote, Global).await.expect("it goes up");
    let id = stage.registry.find(BEN, "a", None).expect("its own").0;
    let stage = stage.crashed().await;
    for (by, version) in [(ADA, "1.10.0"), (OPERATOR, "1.10.0"), (BEN, "1.0.0")] {
        let (_, entry, kept) = stage.registry.find(by, "a", None).expect("seen");
        assert_eq!(kept.version.to_string(), version);
        assert_eq!(entry.scope == Global, version != "1.0.0");
    }
    // Another user's, whom a name does not mean and an id does.
    moved(&stage, "a", ScopeMove::Demote, Tenant).await.expect("it is found where it went");
    let taken = moved(&stage, &id.to_string(), ScopeMove::Promote, Tenant).await;
    assert_eq!(code(taken), "scope_name_taken");
    let events = stage.journal.events().read(Seq::new(1), 500).expect("read").events;
    let told: Vec<_> = events.iter().map(|it| (it.kind.as_str(), it.data["to"].clone())).collect();
    assert_eq!(told, [("note.moved", "global".into()), ("note.moved", "tenant".into())]);
}

#[tokio::test]
async fn the_best_are_found_first_and_others_change_no_score() {
    let stage = Stage::new(ROOMY).await;
    for (name, words) in
        [("reviewer", "reviews code"), ("code-poet", "writes poems"), ("resizer", "resizes images")]
    {
        stage.registry.deploy(ADA, request(name, "1.0.0", words)).await.expect("deployed");
    }
    let alone = stage.found("review code", &[]).await;
    assert_eq!(alone[0], (1.0, "reviewer".to_owned()));
    assert_eq!(stage.found("resizer", &[]).await, [(1.0, "resizer".to_owned())]);
    assert_eq!(stage.found("oet", &[]).await, [(0.5, "code-poet".to_owned())]);
    assert_eq!(stage.found("image zebra", &[("topic", "resizes images")]).await.len(), 1);
    assert!(stage.found("image zebra", &[("topic", "x")]).await.is_empty());
    for n in 0..20 {
        let hidden = request(&format!("n{n}"), "1.0.0", "reviews code code");
        let others = RegistryCaller { user: User::Uid(3), operator: false };
        stage.registry.deploy(others, hidden).await.expect("deployed");
    }
    assert_eq!(stage.found("review code", &[]).await, alone);
    assert!(check_tenant(None).is_ok() && check_tenant(Some("local")).is_ok());
    assert!(check_tenant(Some("other")).expect_err("another").is(codes::TENANT_NOT_FOUND));
}
