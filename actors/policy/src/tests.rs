//! Decisions by the layers, as tables.

use std::{collections::BTreeMap, str::FromStr as _, time::Duration};

use hivekeep_kernel::{
    Access, Addressing, CredentialId, Door, Effect, RateClass, Risk, SessionId, Tier, ToolSpec,
    User, view::ToolView,
};
use hivekeep_ports::{UserOutcome, UserQuestion, UserReply};
use hivekeep_store::Journal;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    AgentOptions, ApprovalAnswer, ApprovalOptions, Approver, CapabilityOptions, ContextOptions,
    ConversationOptions, Options, PermissionMode, PolicyDecision, PolicyEngine, Question, Remember,
    RuleEffect, RuleOptions, SessionProfile, SourceTrust, ToolPattern, ToolsetOptions, Verdict,
    WantedCall, rules::CompiledRule, rules::RuleSet,
};

const fn tool(name: &'static str, family: &'static str, effect: Effect) -> ToolSpec {
    ToolSpec {
        name,
        title: name,
        family,
        source: None,
        effect,
        concurrency_safe: true,
        open_world: false,
        risk: Risk::Low,
        tier: Tier::User,
        access: Access::Any,
        rate: RateClass::Default,
        rate_of: hivekeep_kernel::tool::rate_as_declared,
        addressing: Addressing::Singleton("x"),
        timeout_secs: 1,
        limit_secs: hivekeep_kernel::tool::own_timeout,
        result_budget_bytes: 1,
        weight: |_| 1,
        told_by: None,
        content: hivekeep_kernel::tool::plain_result,
    }
}

static READ: ToolSpec = tool("fs.read", "files", Effect::Read);
static WRITE: ToolSpec = tool("fs.write", "files", Effect::Write);
static RUN: ToolSpec = tool("cmd.run", "commands", Effect::Write);
static SYSTEM: ToolSpec =
    ToolSpec { tier: Tier::System, ..tool("fs.system", "files", Effect::Read) };
static OPERATOR: ToolSpec =
    ToolSpec { tier: Tier::Operator, ..tool("fs.operator", "files", Effect::Read) };
static FOREIGN: ToolSpec =
    ToolSpec { source: Some("other"), ..tool("mcp__other__x", "mcp__other", Effect::Read) };
static FETCH: ToolSpec = tool("web.fetch", "web", Effect::Read);

fn pattern(text: &str) -> ToolPattern {
    ToolPattern::try_from(text.to_owned()).expect("a pattern")
}

fn rule(name: &str, effect: RuleEffect, tools: &str, when: Option<&str>) -> RuleOptions {
    let when = when.map(str::to_owned);
    RuleOptions {
        name: name.to_owned(),
        effect,
        tools: vec![pattern(tools)],
        when,
        why: String::new(),
    }
}

struct Bench {
    engine: PolicyEngine,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(options: Options) -> Self {
        assert_eq!(options.problems(), []);
        let dir = tempfile::tempdir().expect("a folder");
        let store = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(store)).await;
        let (journal, _) = opened.expect("no panic").expect("opens");
        let tools = vec![&READ, &WRITE, &RUN, &FETCH];
        let engine = PolicyEngine::open(options, tools, journal).await.expect("opens");
        Self { engine, _dir: dir }
    }

    fn asked(
        &self,
        profile: &SessionProfile,
        tool: &'static ToolSpec,
        args: &Value,
    ) -> (PolicyDecision, Verdict) {
        let view = ToolView::default();
        let caller = (SessionId::new(), User::Uid(7), Door::McpStdio);
        let question = Question::new(caller, &view, profile, tool, Some(args));
        let mut verdicts = Vec::new();
        let served = || Verdict::allow("availability", "it is served");
        let decision = self.engine.decide(&question, &[], served, &mut verdicts);
        let telling = verdicts.iter().find(|verdict| verdict.ruling != crate::Ruling::Allow);
        (decision, telling.unwrap_or_else(|| verdicts.last().expect("some")).clone())
    }

    fn decides(&self, tool: &'static ToolSpec, args: Value) -> (PolicyDecision, &'static str) {
        let (decision, verdict) = self.asked(&SessionProfile::default(), tool, &args);
        (decision, verdict.layer)
    }
}

#[tokio::test]
async fn rules_deny_first_and_then_the_first_that_matches_decides() {
    let pushes = r#"commands.exists(c, c[0] == "git" && "push" in c)"#;
    let options = Options {
        permission_mode: PermissionMode::ApproveReads,
        rules: vec![
            rule("tests", RuleEffect::Allow, "cmd.*", Some(r#"commands.all(c, c[0] == "cargo")"#)),
            rule("no-push", RuleEffect::Deny, "cmd_*", Some(pushes)),
            rule("etc", RuleEffect::Ask, "fs.write", Some(r#"args.path.startsWith("/etc/")"#)),
            rule("files", RuleEffect::Allow, "fs.*", None),
        ],
        ..Options::default()
    };
    let bench = Bench::new(options).await;
    let run = |line: &str| bench.decides(&RUN, json!({ "command": line }));
    assert_eq!(run("cargo test"), (PolicyDecision::Allowed, "availability"));
    assert_eq!(run("cargo test && git push"), (PolicyDecision::Denied, "rules"));
    let pushes = "/usr/local/bin/git push";
    assert_eq!(run(pushes), (PolicyDecision::Denied, "rules"), "by the last part of its path");
    for hidden in
        ["gi\\\nt push", "git pu\\\nsh", "git pus?", "busybox sh -c 'git push'", "make push"]
    {
        assert_eq!(run(hidden), (PolicyDecision::Asks, "rules"), "{hidden}");
    }
    assert_eq!(
        run("/tmp/cargo test"),
        (PolicyDecision::Asks, "permission_mode"),
        "another program of the name is not allowed"
    );
    assert_eq!(run("git 'push'"), (PolicyDecision::Denied, "rules"));
    assert_eq!(run("echo git push"), (PolicyDecision::Asks, "permission_mode"));
    assert_eq!(
        run("cargo $(git push)"),
        (PolicyDecision::Asks, "rules"),
        "what cannot be judged asks"
    );
    assert_eq!(bench.decides(&WRITE, json!({ "path": "/etc/x" })), (PolicyDecision::Asks, "rules"));
    assert_eq!(
        bench.decides(&WRITE, json!({ "path": "/home" })),
        (PolicyDecision::Allowed, "availability")
    );
    assert_eq!(
        bench.decides(&WRITE, json!({})),
        (PolicyDecision::Asks, "rules"),
        "no path is not an answer"
    );
    assert_eq!(bench.decides(&READ, json!({})), (PolicyDecision::Allowed, "availability"));
}

#[tokio::test]
async fn the_permission_mode_rules_on_the_rest() {
    for (mode, read, write) in [
        (PermissionMode::ApproveAll, PolicyDecision::Allowed, PolicyDecision::Allowed),
        (PermissionMode::ApproveReads, PolicyDecision::Allowed, PolicyDecision::Asks),
        (PermissionMode::DenyAll, PolicyDecision::Denied, PolicyDecision::Denied),
    ] {
        let bench = Bench::new(Options { permission_mode: mode, ..Options::default() }).await;
        assert_eq!(bench.decides(&READ, json!({})).0, read, "{mode:?}");
        assert_eq!(bench.decides(&WRITE, json!({})).0, write, "{mode:?}");
    }
    let bench = Bench::new(Options { tools_enabled: false, ..Options::default() }).await;
    assert_eq!(bench.decides(&READ, json!({})), (PolicyDecision::Denied, "switch"));
}

#[tokio::test]
async fn agents_children_and_conversations_have_what_they_were_given() {
    let agent = AgentOptions {
        toolsets: vec!["mine".to_owned()],
        deny_tools: vec![pattern("fs.write")],
        permission_mode: Some(PermissionMode::ApproveReads),
        ..AgentOptions::default()
    };
    // It leads back to itself.
    let mine = ToolsetOptions {
        tools: vec![pattern("cmd.*")],
        toolsets: vec!["mine".to_owned(), "files".to_owned()],
    };
    let chat = ConversationOptions { tools: vec![pattern("fs.read")], prompt: String::new() };
    let options = Options {
        agents: BTreeMap::from([("coder".to_owned(), agent)]),
        toolsets: BTreeMap::from([("mine".to_owned(), mine)]),
        conversations: BTreeMap::from([("chat".to_owned(), chat)]),
        ..Options::default()
    };
    let bench = Bench::new(options).await;
    let of = |profile: SessionProfile, tool| {
        let (decision, verdict) = bench.asked(&profile, tool, &json!({ "command": "ls" }));
        (decision, verdict.layer)
    };
    let coder = || SessionProfile { agent: Some("coder".to_owned()), ..SessionProfile::default() };
    assert_eq!(of(coder(), &READ), (PolicyDecision::Allowed, "availability"));
    assert_eq!(of(coder(), &WRITE), (PolicyDecision::Denied, "agent"));
    assert_eq!(of(coder(), &RUN), (PolicyDecision::Asks, "permission_mode"));
    assert_eq!(of(coder(), &FETCH), (PolicyDecision::Denied, "allow_list"));
    let child = SessionProfile { parent: Some(SessionId::new()), ..SessionProfile::default() };
    assert_eq!(of(child.clone(), &READ), (PolicyDecision::Denied, "lineage"));
    let given = SessionProfile { tools: Some(["fs.read".to_owned()].into()), ..child };
    assert_eq!(of(given.clone(), &READ), (PolicyDecision::Allowed, "availability"));
    assert_eq!(of(given, &WRITE), (PolicyDecision::Denied, "lineage"));
    let chat =
        SessionProfile { conversation: Some("chat".to_owned()), ..SessionProfile::default() };
    assert_eq!(of(chat.clone(), &READ), (PolicyDecision::Allowed, "availability"));
    assert_eq!(of(chat, &RUN), (PolicyDecision::Denied, "conversation"));
}

#[tokio::test]
async fn a_context_denies_what_no_capability_takes() {
    let limited = |tools: &str| CapabilityOptions {
        tools: vec![pattern(tools)],
        paths: None,
        commands: None,
        domains: None,
    };
    let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let context = ContextOptions {
        deny: vec![pattern("fs.write")],
        capabilities: vec![
            CapabilityOptions { paths: list(&["/work/**"]), ..limited("fs.*") },
            CapabilityOptions { commands: list(&["git status", "ls"]), ..limited("cmd.run") },
            CapabilityOptions { domains: list(&["example.org"]), ..limited("web.*") },
        ],
        ..ContextOptions::default()
    };
    let options = Options {
        contexts: BTreeMap::from([("small".to_owned(), context)]),
        user_contexts: BTreeMap::from([(User::Uid(7), "small".to_owned())]),
        ..Options::default()
    };
    let bench = Bench::new(options).await;
    for (tool, args, is) in [
        (&READ, json!({ "path": "/work/a" }), PolicyDecision::Allowed),
        (&READ, json!({ "path": "/work/../etc" }), PolicyDecision::Denied),
        (&READ, json!({ "paths": ["/work/a", "/etc"] }), PolicyDecision::Denied),
        (&READ, json!({ "path": "work/a", "place": "w:/srv" }), PolicyDecision::Denied),
        (&READ, json!({ "path": "a", "place": "w:/work/sub" }), PolicyDecision::Allowed),
        (&READ, json!({ "place": "w:/srv" }), PolicyDecision::Denied),
        (&WRITE, json!({ "path": "/work/a" }), PolicyDecision::Denied),
        (&RUN, json!({ "command": "git status; ls -l" }), PolicyDecision::Allowed),
        (&RUN, json!({ "command": "git status; git push" }), PolicyDecision::Denied),
        (&RUN, json!({ "command": "ls $(git push)" }), PolicyDecision::Denied),
        (&RUN, json!({ "command": "ls", "args": ["; rm x"] }), PolicyDecision::Allowed),
        (&FETCH, json!({ "url": "https://a.example.org/" }), PolicyDecision::Allowed),
        (&FETCH, json!({ "url": "https://example.org@evil.net/" }), PolicyDecision::Denied),
    ] {
        assert_eq!(bench.decides(tool, args.clone()).0, is, "{} {args}", tool.name);
    }
}

#[tokio::test]
async fn rules_change_while_calls_run() {
    let bench = Bench::new(Options::default()).await;
    let add = |rule| bench.engine.add_rule(rule, "me");
    add(rule("stop", RuleEffect::Deny, "fs.*", None)).await.expect("added");
    assert_eq!(bench.decides(&READ, json!({})), (PolicyDecision::Denied, "rules"));
    for (bad, why) in [
        (rule("stop", RuleEffect::Ask, "fs.*", None), "taken"),
        (rule("x", RuleEffect::Ask, "fs.*", Some("1 +")), "no expression"),
        (rule("x", RuleEffect::Ask, "fs.*", Some("nothing.here")), "no variable"),
        (rule("", RuleEffect::Ask, "fs.*", None), "no name"),
    ] {
        assert_eq!(add(bad).await.expect_err(why).code, "invalid_rule");
    }
    bench.engine.remove_rule("stop", "me").await.expect("removed");
    assert_eq!(bench.decides(&READ, json!({})), (PolicyDecision::Allowed, "availability"));
    let unknown = bench.engine.remove_rule("stop", "me").await.expect_err("gone");
    assert_eq!(unknown.code, "rule_not_found");
}

/// A call of a user, one of many.
fn wanted(user: User, nth: usize) -> WantedCall {
    WantedCall {
        tool: "ask_user".to_owned(),
        session: SessionId::from_str("ses_0192f0c1a2b37c4d8e5f60718293a4b5").expect("an id"),
        user,
        door: Door::McpStdio,
        agent: None,
        workspace: None,
        input_digest: format!("sha256:{nth}"),
        input: String::new(),
        input_chars: 0,
    }
}

async fn with_pending(max_pending: usize) -> Bench {
    let approvals = ApprovalOptions { max_pending, ..ApprovalOptions::default() };
    Bench::new(Options { approvals, ..Options::default() }).await
}

#[tokio::test]
async fn what_waits_of_one_user_leaves_room_to_others_and_ends_at_a_word() {
    let bench = with_pending(4).await;
    let approvals = bench.engine.approvals();
    let ask = async |user, nth| approvals.ask(wanted(user, nth), "why".to_owned(), false).await;
    let question = UserQuestion { free_text: true, ..UserQuestion::default() };
    let short = Duration::from_millis(10);
    let asks = async |user, nth| {
        approvals.ask_question(wanted(user, nth), question.clone(), short, None).await
    };
    let (one, other) = (User::Uid(7), User::Uid(8));
    for nth in 0..2 {
        asks(one, nth).await.expect("it has room for two questions");
        ask(one, nth + 10).await.expect("and for two calls beside them");
    }
    let full = ask(one, 12).await.expect_err("it has its half");
    assert_eq!(full.code, "approvals_full");
    assert!(full.message.contains("half of what others leave"), "{full}");
    assert_eq!(asks(one, 2).await.expect_err("it has its half").code, "approvals_full");
    ask(other, 0).await.expect("there is room");
    asks(other, 1).await.expect("there is room");

    let by = Approver { user: User::Uid(1), door: Door::Cli };
    assert_eq!(approvals.deny_all_of(one, &by, None).await.expect("denied"), 4);
    let left = approvals.list(false);
    assert!(left.len() == 2 && left.iter().all(|it| it.call.user == other), "{left:?}");
    ask(one, 13).await.expect("there is room again");
}

#[tokio::test]
async fn a_credential_is_the_same_one_at_every_door_and_a_user_of_the_host_is_not() {
    let bench = with_pending(4).await;
    let approvals = bench.engine.approvals();
    let yes =
        || ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: None };
    for (user, code) in
        [(User::Credential(CredentialId::new()), Some("self_approval")), (User::Uid(7), None)]
    {
        let asked = approvals.ask(wanted(user, 0), "why".to_owned(), false).await.expect("asked");
        let by = Approver { user, door: Door::HttpApi };
        let decided = approvals.decide(asked.id, &by, yes()).await;
        assert_eq!(decided.err().map(|error| error.code).as_deref(), code, "{user}");
    }
}

#[tokio::test]
async fn a_question_is_asked_once_answered_once_and_idle_in_between() {
    let bench = Bench::new(Options::default()).await;
    let approvals = bench.engine.approvals();
    let question = UserQuestion { free_text: true, ..UserQuestion::default() };
    let ask =
        |limit| approvals.ask_question(wanted(User::Uid(7), 0), question.clone(), limit, None);
    let short = Duration::from_millis(200);
    let unanswered = ask(short).await.expect("asked");
    assert_eq!(*approvals.changes().borrow(), 1, "waiting changes nothing");
    let UserOutcome::Unanswered(id) = unanswered else { panic!("{unanswered:?}") };
    assert_eq!(ask(short).await.expect("asked"), UserOutcome::Unanswered(id), "the same one");
    let reply = Some(UserReply {
        selected: Vec::new(),
        text: Some("yes".to_owned()),
        ..UserReply::default()
    });
    let answer = ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply };
    let remember = Remember::Tools { tools: pattern("*"), secs: 3_600 };
    let grant = ApprovalAnswer { remember, ..answer.clone() };
    // Whoever asked may answer: a reply approves nothing.
    let by = Approver { user: User::Uid(7), door: Door::McpStdio };
    assert_eq!(approvals.decide(id, &by, grant).await.expect_err("grants").code, "invalid_input");
    approvals.decide(id, &by, answer).await.expect("decided");
    let replied = ask(Duration::from_secs(60)).await.expect("asked");
    assert!(matches!(replied, UserOutcome::Replied(reply) if reply.text.as_deref() == Some("yes")));
    let again = ask(short).await.expect("asked");
    assert!(matches!(again, UserOutcome::Unanswered(other) if other != id), "{again:?}");
}

#[test]
fn what_is_large_or_odd_is_not_judged_and_asks() {
    let condition = |when: &str| {
        let rule = CompiledRule::new(rule("r", RuleEffect::Deny, "*", Some(when)), false);
        RuleSet::new(vec![rule.expect("compiles")], &[&READ])
    };
    let says = |rules: &RuleSet, args: Value| {
        let (view, profile) = (ToolView::default(), SessionProfile::default());
        let caller = (SessionId::new(), User::Uid(7), Door::McpStdio);
        rules.rule(&Question::new(caller, &view, &profile, &READ, Some(&args))).ruling
    };
    let many = json!({ "list": vec![1; 5_000] });
    assert_eq!(says(&condition("args.list.exists(x, x == 2)"), many), crate::Ruling::Ask);
    assert_eq!(says(&condition("1"), json!({})), crate::Ruling::Ask, "no answer");
    assert_eq!(says(&condition("args.n > 3"), json!({ "n": "x" })), crate::Ruling::Ask);
    assert_eq!(says(&condition("args.n > 3"), json!({ "n": 4 })), crate::Ruling::Deny);
    assert_eq!(says(&condition(r#"session.user == "uid:7""#), json!({})), crate::Ruling::Deny);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}|command|path|url", inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    /// Whatever the input: a decision, and for a command that is denied never a pass.
    #[test]
    fn no_input_gets_past_a_denial_of_everything(args in json_value()) {
        let rules = vec![CompiledRule::new(rule("r", RuleEffect::Deny, "*", None), false).expect("compiles")];
        let rules = RuleSet::new(rules, &[&RUN]);
        let (view, profile) = (ToolView::default(), SessionProfile::default());
        let caller = (SessionId::new(), User::Uid(7), Door::McpStdio);
        let question = Question::new(caller, &view, &profile, &RUN, Some(&args));
        prop_assert_eq!(rules.rule(&question).ruling, crate::Ruling::Deny);
    }

    /// The words of a quoted line are the words that were quoted.
    #[test]
    fn quoting_hides_no_word(words in prop::collection::vec("[a-z'\" $;&|]{1,6}", 1..4)) {
        let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let args = json!({ "command": format!("run {}", quoted.join(" ")) });
        let when = format!("commands.exists(c, c == {})", json!([&["run".to_owned()][..], &words].concat()));
        let rules = vec![CompiledRule::new(rule("r", RuleEffect::Deny, "*", Some(&when)), false).expect("compiles")];
        let rules = RuleSet::new(rules, &[&RUN]);
        let (view, profile) = (ToolView::default(), SessionProfile::default());
        let caller = (SessionId::new(), User::Uid(7), Door::McpStdio);
        let question = Question::new(caller, &view, &profile, &RUN, Some(&args));
        prop_assert_eq!(rules.rule(&question).ruling, crate::Ruling::Deny, "{}", when);
    }
}

#[tokio::test]
async fn a_tier_reaches_whom_it_is_for() {
    let bench = Bench::new(Options::default()).await;
    assert_eq!(bench.decides(&READ, json!({})).0, PolicyDecision::Allowed);
    assert_eq!(bench.decides(&SYSTEM, json!({})), (PolicyDecision::Denied, "visibility"));
    assert_eq!(bench.decides(&OPERATOR, json!({})), (PolicyDecision::Denied, "visibility"));
    let system_users = [User::Uid(7)].into();
    let bench = Bench::new(Options { system_users, ..Options::default() }).await;
    assert_eq!(bench.decides(&SYSTEM, json!({})).0, PolicyDecision::Allowed);
    assert_eq!(bench.decides(&OPERATOR, json!({})), (PolicyDecision::Denied, "visibility"));
}

#[tokio::test]
async fn another_server_is_trusted_by_name_by_rule_or_not() {
    let decides = async |options: Options| {
        let bench = Bench::new(options).await;
        bench.decides(&FOREIGN, json!({}))
    };
    assert_eq!(decides(Options::default()).await, (PolicyDecision::Asks, "source"));
    let allowed = rule("x", RuleEffect::Allow, "mcp__other__*", None);
    let granted = Options { rules: vec![allowed], ..Options::default() };
    assert_eq!(decides(granted.clone()).await.0, PolicyDecision::Allowed);
    let denied = [("other".to_owned(), SourceTrust::Deny)].into();
    let denied = Options { sources: denied, ..granted };
    assert_eq!(decides(denied).await, (PolicyDecision::Denied, "source"));
    let trusted = Options { source_default: SourceTrust::Allow, ..Options::default() };
    assert_eq!(decides(trusted.clone()).await.0, PolicyDecision::Allowed);
    // Trust is no answer to what the permission mode asks of everybody.
    let dont = Options { permission_mode: PermissionMode::DenyAll, ..trusted };
    assert_eq!(decides(dont).await, (PolicyDecision::Denied, "permission_mode"));
}
