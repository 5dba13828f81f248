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
        keyed: false,
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

pub(crate) fn pattern(text: &str) -> ToolPattern {
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

pub(crate) struct Bench {
    pub(crate) engine: PolicyEngine,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) async fn new(options: Options) -> Self {
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
pub(crate) fn wanted(user: User, nth: usize) -> WantedCall {
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

/// The user of an agent's session is another than the agent, at each door that no agent has; whoever holds a credential
/// and calls by it is the same one still, also for an agent that the call says it is.
#[tokio::test]
async fn a_user_approves_for_their_agent_and_no_agent_does() {
    let bench = with_pending(64).await;
    let approvals = bench.engine.approvals();
    let yes =
        || ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: None };
    let users = [User::Credential(CredentialId::new()), User::Uid(7), User::Bearer];
    for (nth, user) in users.into_iter().enumerate() {
        for (called, by, code) in [
            (Door::Agent, Door::Cli, None),
            (Door::Agent, Door::HttpApi, None),
            (Door::Agent, Door::McpHttp, None),
            (Door::Agent, Door::Agent, Some("self_approval")),
            (Door::HttpApi, Door::HttpApi, Some("self_approval")),
        ] {
            let agent = Some("coder".to_owned());
            let call = WantedCall { door: called, agent, ..wanted(user, nth) };
            let asked = approvals.ask(call, "why".to_owned(), true).await.expect("asked");
            let decided = approvals.decide(asked.id, &Approver { user, door: by }, yes()).await;
            let told = decided.err().map(|error| error.code);
            assert_eq!(told.as_deref(), code, "{user}: {called:?}, {by:?}");
        }
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

/// Options with one context `small`, which has nothing but reading.
fn with_context() -> Options {
    let read = CapabilityOptions {
        tools: vec![pattern("fs.read")],
        paths: None,
        commands: None,
        domains: None,
    };
    let context = ContextOptions {
        capabilities: vec![read],
        max_result_bytes: Some(5),
        max_calls: Some(6),
        ..ContextOptions::default()
    };
    Options { contexts: BTreeMap::from([("small".to_owned(), context)]), ..Options::default() }
}

fn question<'a>(profile: &'a SessionProfile, view: &'a ToolView) -> Question<'a> {
    Question::new((SessionId::new(), User::Uid(7), Door::McpStdio), view, profile, &READ, None)
}

#[tokio::test]
async fn a_context_is_the_sessions_or_the_users_or_everybodys() {
    let small = || Some("small".to_owned());
    let bench = Bench::new(with_context()).await;
    let view = ToolView::default();
    let limits = |bench: &Bench, context: Option<String>| {
        let profile = SessionProfile { context, ..SessionProfile::default() };
        let limits = bench.engine.limits(&question(&profile, &view));
        let write = bench.asked(&profile, &WRITE, &json!({})).0;
        (write, limits.max_result_bytes, limits.max_calls)
    };
    assert_eq!(limits(&bench, None), (PolicyDecision::Allowed, None, None));
    assert_eq!(limits(&bench, small()), (PolicyDecision::Denied, Some(5), Some(6)));
    // It was in the configuration when the session was made.
    assert_eq!(limits(&bench, Some("gone".to_owned())), (PolicyDecision::Denied, None, None));
    let bench = Bench::new(Options { default_context: small(), ..with_context() }).await;
    assert_eq!(limits(&bench, None), (PolicyDecision::Denied, Some(5), Some(6)));
    let user_contexts = BTreeMap::from([(User::Uid(8), "small".to_owned())]);
    let bench = Bench::new(Options { user_contexts, ..with_context() }).await;
    assert_eq!(limits(&bench, None).0, PolicyDecision::Allowed, "it is another user's");
}

#[tokio::test]
async fn a_mode_of_a_conversation_may_be_left_only_for_less() {
    let mode = |tools: &[&str]| ConversationOptions {
        tools: tools.iter().map(|tool| pattern(tool)).collect(),
        prompt: String::new(),
    };
    let own = [
        ("files", mode(&["fs.*", "exec"])),
        ("read", mode(&["fs.read"])),
        ("chat", mode(&["exec"])),
    ];
    let conversations = own.map(|(name, mode)| (name.to_owned(), mode)).into();
    let bench = Bench::new(Options { conversations, ..Options::default() }).await;
    let widens = |before, mode| bench.engine.widens(before, mode);
    assert!(
        !widens(None, "files") && !widens(Some("files"), "read") && !widens(Some("read"), "read")
    );
    assert!(widens(Some("read"), "files") && widens(Some("read"), "chat"));
    assert!(widens(Some("gone"), "read") && widens(Some("read"), "gone"), "nobody can compare");
    let modes = &bench.engine.options().conversations;
    assert_eq!(modes["chat"], mode(&["exec"]), "the operator's own");
    let operator = ["*", "zaru.*", "ask_user"].map(pattern);
    assert!(modes["operator"].tools == operator && !modes["operator"].prompt.is_empty());
    assert!(["agentic", "execute", "architect"].iter().all(|name| modes[*name].tools.len() > 4));
    let profile =
        SessionProfile { conversation: Some("gone".to_owned()), ..SessionProfile::default() };
    assert_eq!(bench.asked(&profile, &READ, &json!({})).0, PolicyDecision::Denied);
}

#[tokio::test]
async fn what_does_more_than_read_is_asked_for() {
    static OPEN: ToolSpec = ToolSpec { open_world: true, ..tool("fs.x", "files", Effect::Read) };
    static RISKY: ToolSpec = ToolSpec { risk: Risk::Medium, ..tool("fs.x", "files", Effect::Read) };
    let mode = PermissionMode::ApproveReads;
    let bench = Bench::new(Options { permission_mode: mode, ..Options::default() }).await;
    let (profile, view) = (SessionProfile::default(), ToolView::operator());
    let decides = |tool: &'static ToolSpec| {
        let caller = (SessionId::new(), User::Uid(7), Door::Cli);
        let question = Question::new(caller, &view, &profile, tool, None);
        bench.engine.decide(&question, &[], || Verdict::allow("served", ""), &mut Vec::new())
    };
    assert_eq!([&READ, &SYSTEM].map(decides), [PolicyDecision::Allowed; 2]);
    assert_eq!([&OPEN, &RISKY, &WRITE, &OPERATOR].map(decides), [PolicyDecision::Asks; 4]);
    assert_eq!(bench.engine.permission_mode(&question(&profile, &view)), mode);
}

#[tokio::test]
async fn an_attachment_has_its_toolsets_and_what_nobody_serves_is_told_before_it_is_asked_for() {
    let rules = vec![rule("ask", RuleEffect::Ask, "fs.*", None)];
    let bench = Bench::new(Options { rules, ..Options::default() }).await;
    let profile = SessionProfile::default();
    let decides = |toolset: &str, served: Verdict| {
        let toolsets = Some(vec![toolset.to_owned()]);
        let view = ToolView { toolsets, ..ToolView::default() };
        let mut verdicts = Vec::new();
        let decision =
            bench.engine.decide(&question(&profile, &view), &[], || served, &mut verdicts);
        (decision, verdicts.last().expect("some").layer)
    };
    let served = || Verdict::allow("served", "");
    let down = Verdict { ruling: crate::Ruling::Unavailable, ..served() };
    assert_eq!(decides("Files", served()), (PolicyDecision::Asks, "served"));
    assert_eq!(decides("files", down), (PolicyDecision::Unavailable, "served"));
    assert_eq!(decides("web", served()), (PolicyDecision::Denied, "toolset"));
    let no = Verdict::deny("served", crate::ReasonCode::SourceDisabled, "");
    assert_eq!(decides("files", no.clone()), (PolicyDecision::Denied, "served"));
    assert!(no.notable() && served().by("rule").notable() && !served().notable());
    assert!(profile.is_empty());
    assert!(!SessionProfile { agent: Some(String::new()), ..profile.clone() }.is_empty());
}

/// A layer in front of the others.
#[derive(Debug)]
struct Front(fn() -> Verdict);

impl crate::Policy for Front {
    fn rule(&self, _: &Question<'_>, _: &[Verdict]) -> Verdict {
        (self.0)()
    }
}

#[tokio::test]
async fn a_layer_in_front_is_heard_first_and_its_denial_ends_the_decision() {
    let bench = Bench::new(Options::default()).await;
    let (profile, view) = (SessionProfile::default(), ToolView::default());
    let decides = |front: fn() -> Verdict| {
        let front: std::sync::Arc<dyn crate::Policy> = std::sync::Arc::new(Front(front));
        let mut verdicts = Vec::new();
        let served = || Verdict::allow("served", "");
        let decision =
            bench.engine.decide(&question(&profile, &view), &[front], served, &mut verdicts);
        (decision, verdicts.len(), verdicts[0].layer)
    };
    let allow = || Verdict::allow("front", "");
    let deny = || Verdict::deny("front", crate::ReasonCode::PolicyDenied, "");
    assert_eq!(decides(allow), (PolicyDecision::Allowed, 13, "front"));
    assert_eq!(decides(deny), (PolicyDecision::Denied, 1, "front"));
    assert_eq!(decides(|| Verdict::ask("front", "")).0, PolicyDecision::Asks);
}

#[tokio::test]
async fn rules_are_listed_as_they_are_asked_and_changes_are_counted() {
    let options =
        Options { rules: vec![rule("kept", RuleEffect::Ask, "x", None)], ..Options::default() };
    let bench = Bench::new(options).await;
    let listed = || {
        let rows = bench.engine.rules().into_iter();
        rows.map(|row| (row.rule.name, row.added)).collect::<Vec<_>>()
    };
    let changes = || *bench.engine.changes().borrow();
    for name in ["first", "second"] {
        let why = "because".to_owned();
        let rule = RuleOptions { why, ..rule(name, RuleEffect::Deny, "fs.read", None) };
        bench.engine.add_rule(rule, "me").await.expect("added");
    }
    let row = |name: &str, added| (name.to_owned(), added);
    assert_eq!(listed(), [row("second", true), row("first", true), row("kept", false)]);
    let (_, verdict) = bench.asked(&SessionProfile::default(), &READ, &json!({}));
    assert_eq!(verdict.why, "the rule `second` denies it: because");
    assert_eq!(verdict.rule.as_deref(), Some("second"));
    for name in ["kept", "second"] {
        let taken = bench.engine.add_rule(rule(name, RuleEffect::Ask, "x", None), "me").await;
        assert_eq!(taken.expect_err("taken").code, "invalid_rule");
    }
    assert_eq!(
        bench.engine.remove_rule("kept", "me").await.expect_err("the file's").code,
        "rule_not_found"
    );
    assert_eq!(changes(), 2);
    bench.engine.remove_rule("second", "me").await.expect("removed");
    assert_eq!((listed(), changes()), (vec![row("first", true), row("kept", false)], 3));
}

#[test]
fn each_problem_of_the_options_is_told_by_its_key() {
    let problem =
        |options: &Options| options.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let named = |name: &str| rule(name, RuleEffect::Ask, "x", None);
    let longest = named(&"n".repeat(64));
    let rules = vec![
        longest.clone(),
        named(""),
        named(&"n".repeat(65)),
        named("a\nb"),
        RuleOptions { tools: Vec::new(), ..named("no tools") },
        RuleOptions { when: Some("1 +".to_owned()), ..named("no expression") },
        longest,
    ];
    let keys = problem(&Options { rules, ..Options::default() });
    let wanted = [(1, "name"), (2, "name"), (3, "name"), (4, "tools"), (5, "when"), (6, "name")];
    assert_eq!(keys, wanted.map(|(nth, key)| format!("rules[{nth}].{key}")));

    let user_contexts =
        BTreeMap::from([(User::Uid(7), "gone".to_owned()), (User::Bearer, "small".to_owned())]);
    let default_context = Some("other".to_owned());
    let mut options = Options { user_contexts, default_context, ..with_context() };
    assert_eq!(problem(&options), ["user_contexts.uid:7", "default_context"]);
    (options.user_contexts, options.default_context) = (BTreeMap::new(), Some("small".to_owned()));
    for (path, good) in [("/a/**", true), ("a", false), ("/a/../b", false), ("~/a", false)] {
        let small = options.contexts.get_mut("small").expect("it is there");
        small.capabilities[0].paths = Some(vec![path.to_owned()]);
        let keys: &[&str] = if good { &[] } else { &["contexts.small.capabilities"] };
        assert_eq!(problem(&options), keys, "{path}");
    }
}

/// Ruling of one rule with a condition.
fn ruling(effect: RuleEffect, when: &str, args: Option<&Value>) -> crate::Ruling {
    let compiled = CompiledRule::new(rule("r", effect, "*", Some(when)), false).expect(when);
    let (view, profile) = (ToolView::default(), SessionProfile::default());
    let caller = (SessionId::new(), User::Uid(7), Door::McpStdio);
    let rules = RuleSet::new(vec![compiled], &[&READ]);
    rules.rule(&Question::new(caller, &view, &profile, &READ, args)).ruling
}

#[test]
fn an_expression_and_its_input_are_bounded() {
    use crate::Ruling::{Allow, Ask, Deny};
    let sized = |bytes: usize| {
        let when = format!("{}true", " ".repeat(bytes - 4));
        CompiledRule::new(rule("r", RuleEffect::Deny, "*", Some(&when)), false).is_ok()
    };
    assert!(sized(4_096) && !sized(4_097));
    let rules = |args: Value| ruling(RuleEffect::Deny, "size(args) > 0", Some(&args));
    // The object and the list are values too.
    assert_eq!(rules(json!({ "list": vec![1; 998] })), Deny);
    assert_eq!(rules(json!({ "list": vec![1; 999] })), Ask);
    assert_eq!(rules(json!({ "a": "x".repeat(128 * 1024), "b": "x".repeat(128 * 1024) })), Deny);
    assert_eq!(rules(json!({ "a": "x".repeat(128 * 1024), "b": "x".repeat(128 * 1024 + 1) })), Ask);
    assert_eq!(rules(json!({})), Allow);
    for (when, listed) in [
        ("tool.name == 'fs.read'", Deny),
        ("size(args) >= 0", Allow),
        ("size(commands) >= 0", Allow),
    ] {
        assert_eq!(ruling(RuleEffect::Deny, when, Some(&json!({}))), Deny, "{when}");
        assert_eq!(ruling(RuleEffect::Deny, when, None), listed, "a listing has no input: {when}");
    }
    assert_eq!(ruling(RuleEffect::Allow, "args.n == 1", Some(&json!({}))), Allow);
    assert_eq!(ruling(RuleEffect::Ask, "args.n == 1", Some(&json!({}))), Ask);
    assert_eq!(ruling(RuleEffect::Ask, "args.n == 1", Some(&json!({ "n": 2 }))), Allow);
}

#[test]
fn a_name_that_an_expression_binds_is_known_in_it_wherever_it_stands() {
    for when in [
        "args.list.exists(x, x == 1)",
        "size(args.list.filter(x, x > 1)) == 0",
        "[args.list.exists(x, x == 1)] == [true]",
        "{'a': args.list.exists(x, x == 1)} == {'a': true}",
        "{args.list.all(x, x == 1): 1} == {true: 1}",
        "args.list.map(x, [x]).exists(y, y.exists(z, z == 1))",
        "!args.list.exists(x, x == 2)",
        "args.list.map(x, {'a': x}).exists(y, y.a == 1)",
    ] {
        let args = json!({ "list": [1] });
        assert_eq!(ruling(RuleEffect::Deny, when, Some(&args)), crate::Ruling::Deny, "{when}");
    }
    for when in ["args.list.exists(x, y == 1)", "x == 1", "[y] == [1]"] {
        let compiled = CompiledRule::new(rule("r", RuleEffect::Deny, "*", Some(when)), false);
        assert!(compiled.expect_err(when).contains("is not one of"), "{when}");
    }
}
