//! Children are never above their parents, outlive them and the daemon, and cannot approve.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hivekeep_kernel::{Door, Effect, EffectKey, Progress, SessionId, ToolError};
use hivekeep_policy::{
    AgentOptions, ApprovalAnswer, Approver, CapabilityOptions, ContextOptions, Options,
    PermissionMode, Remember, RuleEffect, RuleOptions, SessionProfile, ToolPattern,
};
use hivekeep_ports::{ALL_TOOLS, ChildAnswer, ChildCall, ChildSession, ChildSessions};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::DispatchedChildren;
use crate::{
    Attachment, OpenSession,
    test_util::{
        Stage,
        stage::{USER, eventually},
    },
};

fn children(stage: &Stage) -> Arc<DispatchedChildren> {
    let children = DispatchedChildren::new(stage.sessions.clone());
    children.wire(stage.dispatcher.clone());
    Arc::new(children)
}

/// A request for a child of the stage's own session.
fn child(stage: &Stage, name: &str, tools: &[&str]) -> ChildSession {
    ChildSession {
        parent: stage.attachment.session,
        name: name.to_owned(),
        agent: None,
        context: None,
        tools: tools.iter().map(|name| (*name).to_owned()).collect(),
    }
}

async fn call(
    children: &DispatchedChildren,
    session: SessionId,
    tool: &str,
    args: Value,
) -> Result<ChildAnswer, ToolError> {
    children.call(child_call(session, tool, args)).await
}

fn child_call(session: SessionId, tool: &str, args: Value) -> ChildCall {
    let Value::Object(args) = args else { panic!("an object") };
    let (cancel, progress) = (CancellationToken::new(), Progress::default());
    let (tool, timeout, effect) = (tool.to_owned(), None, None);
    ChildCall { session, tool, args, timeout, cancel, progress, effect }
}

fn names(children: &DispatchedChildren, child: SessionId) -> Vec<String> {
    children.tools(child).expect("a child").into_iter().map(|tool| tool.name).collect()
}

/// An attachment of the stage's user to a new session of this profile.
async fn session(stage: &Stage, profile: SessionProfile) -> Attachment {
    let (door, client) = (Door::McpStdio, "parent".to_owned());
    let request = OpenSession { door, client, user: USER, resume: None, profile };
    stage.sessions.open(request).await.expect("opens")
}

fn pattern(text: &str) -> ToolPattern {
    ToolPattern::try_from(text.to_owned()).expect("a pattern")
}

fn code<T: std::fmt::Debug>(result: Result<T, ToolError>) -> String {
    result.expect_err("refused").code.into_owned()
}

#[tokio::test]
async fn a_child_is_its_parents_users_and_has_no_tool_that_its_parent_lacks() {
    let stage = Stage::new(Stage::loose()).await;
    let children = children(&stage);
    // The view of the stage's own calls is an operator's; a child's never is.
    let asked = ["toy_wait", "toy_echo", "toy_look", "toy.admin", "toy_none"];
    let first = children.open(child(&stage, "run", &asked)).await.expect("opens");
    assert_eq!(names(&children, first), ["toy_echo", "toy_wait", "toy_look"]);
    let look = children.tools(first).expect("a child").pop().expect("the last");
    assert_eq!((look.declared, look.effect), ("toy.look", Effect::Read));
    assert!(!look.description.is_empty() && look.input_schema["required"] == json!(["toy_id"]));
    let said = call(&children, first, "toy_echo", json!({ "text": "x" })).await.expect("says it");
    assert!(said.value["text"] == "x" && !said.from_source);
    // It may have been called before, and keeps nothing under keys: so it is not called.
    let effect = Some(EffectKey { key: "k".into(), again: true });
    let again = ChildCall { effect, ..child_call(first, "toy_echo", json!({ "text": "x" })) };
    assert_eq!(code(children.call(again).await), "effect_unknown");
    for tool in ["toy_fail", "toy.admin"] {
        let refused = call(&children, first, tool, json!({})).await;
        assert_eq!(code(refused), "denied", "{tool}");
    }
    // The child's own child asks for more than it has.
    let below = ChildSession { parent: first, ..child(&stage, "run", &["toy_echo", "toy_fail"]) };
    let second = children.open(below).await.expect("opens");
    assert_eq!(names(&children, second), ["toy_echo"]);
    assert_eq!(code(call(&children, second, "toy_wait", json!({ "ms": 0 })).await), "denied");
    let all = ChildSession { parent: first, ..child(&stage, "all", &[ALL_TOOLS]) };
    let third = children.open(all).await.expect("opens");
    assert_eq!(names(&children, third), ["toy_echo", "toy_wait", "toy_look"]);
    for session in [first, second, third] {
        let row = stage.sessions.row(session).expect("a row");
        assert_eq!((row.user, row.door), (Some(USER), Door::Agent));
    }
    let told = stage.events("call.finished", 4).await;
    assert!(told.len() == 4 && told.iter().all(|event| event.data["door"] == "agent"));
}

#[tokio::test]
async fn an_agent_or_a_context_lifts_no_limit_of_the_parent() {
    let context = |tools: &str| ContextOptions {
        capabilities: vec![CapabilityOptions {
            tools: vec![pattern(tools)],
            paths: None,
            commands: None,
            domains: None,
        }],
        ..ContextOptions::default()
    };
    let mode = |permission_mode| AgentOptions { permission_mode, ..AgentOptions::default() };
    let stage = Stage::ruled(Options {
        permission_mode: PermissionMode::ApproveReads,
        agents: [
            ("free".to_owned(), mode(Some(PermissionMode::ApproveAll))),
            ("plain".to_owned(), mode(None)),
        ]
        .into(),
        contexts: [("small".to_owned(), context("toy_echo")), ("wide".to_owned(), context("*"))]
            .into(),
        ..Options::default()
    })
    .await;
    let children = children(&stage);
    let small = SessionProfile { context: Some("small".to_owned()), ..Default::default() };
    let small = session(&stage, small).await;
    let open = async |parent: &Attachment, context: Option<&str>, agent: Option<&str>| {
        let (context, agent) = (context.map(str::to_owned), agent.map(str::to_owned));
        let parent = parent.session;
        let name = format!("{context:?} {agent:?}");
        let asked = child(&stage, &name, &["toy_echo", "toy_wait"]);
        let child = children.open(ChildSession { parent, context, agent, ..asked }).await?;
        Ok::<_, ToolError>((child, stage.sessions.profile(child).expect("lives")))
    };
    let whole = &stage.attachment;
    assert_eq!(code(open(whole, Some("none"), None).await), "invalid_input");
    let (limited, profile) = open(whole, Some("small"), Some("plain")).await.expect("opens");
    assert_eq!(names(&children, limited), ["toy_echo"], "its context has no more");
    assert_eq!(
        (profile.agent.as_deref(), profile.context.as_deref()),
        (Some("plain"), Some("small"))
    );
    // Under the daemon's own mode a person approves a wait, under the agent's nobody would.
    assert_eq!(code(open(whole, None, Some("free")).await), "denied");
    assert_eq!(code(open(&small, Some("wide"), None).await), "denied");
    let (below, profile) = open(&small, None, Some("free")).await.expect("it has no wait");
    assert_eq!(names(&children, below), ["toy_echo"]);
    assert_eq!(profile.tools, Some(BTreeSet::from(["toy_echo".to_owned()])));
    assert_eq!(profile.context.as_deref(), Some("small"));
    open(&small, Some("small"), None).await.expect("the same one");
}

#[tokio::test]
async fn a_child_is_one_by_its_name_and_outlives_its_parent_and_the_daemon() {
    let mut options = Stage::loose();
    options.sessions.max_children = 2.try_into().expect("above zero");
    let stage = Stage::new(options.clone()).await;
    let port = children(&stage);
    let opens = (0..8).map(|_| port.open(child(&stage, "run", &["toy_echo"])));
    let ids: BTreeSet<_> =
        futures::future::join_all(opens).await.into_iter().map(|id| id.expect("opens")).collect();
    let id = *ids.first().expect("one");
    assert_eq!(ids.len(), 1);
    let other = session(&stage, SessionProfile::default()).await;
    let below = ChildSession { parent: other.session, ..child(&stage, "run", &["toy_echo"]) };
    assert_ne!(port.open(below).await.expect("opens"), id, "the name is another parent's too");
    // Two are all; those that attach do not count, and children make no room.
    let full = port.open(child(&stage, "more", &[])).await;
    assert_eq!(code(full), "too_many_sessions");
    let parent = stage.attachment.session;
    stage.sessions.end(parent).await.expect("ends");
    assert_eq!(port.open(child(&stage, "run", &[])).await.expect("is there"), id);
    assert_eq!(code(port.open(child(&stage, "more", &[])).await), "session_ended");
    let request = ChildSession { parent, ..child(&stage, "run", &[]) };

    let stage = stage.restarted(options).await;
    let port = children(&stage);
    assert_eq!(port.open(request.clone()).await.expect("is there"), id);
    assert_eq!(names(&port, id), ["toy_echo"]);
    call(&port, id, "toy_echo", json!({ "text": "x" })).await.expect("it is called still");
    for _ in 0..2 {
        port.end(id).await.expect("ends, or has");
    }
    port.end(SessionId::new()).await.expect("nobody is there");
    assert_eq!(code(call(&port, id, "toy_echo", json!({ "text": "x" })).await), "session_ended");
    assert_eq!(code(port.tools(id)), "session_ended");
    assert_eq!(code(port.open(request).await), "session_ended", "there is no such child any more");
    let nobody = ChildSession { parent: SessionId::new(), ..child(&stage, "run", &[]) };
    assert_eq!(code(port.open(nobody).await), "session_unknown");
}

#[tokio::test]
async fn three_are_below_one_another_and_no_fourth() {
    let stage = Stage::new(Stage::loose()).await;
    let children = children(&stage);
    let mut parent = stage.attachment.session;
    for _ in 0..3 {
        let below = ChildSession { parent, ..child(&stage, "run", &["toy_echo"]) };
        parent = children.open(below).await.expect("opens");
    }
    let below = ChildSession { parent, ..child(&stage, "run", &["toy_echo"]) };
    let refused = children.open(below).await.expect_err("too deep");
    assert_eq!(
        (refused.code.as_ref(), &refused.details["max_depth"]),
        ("child_too_deep", &json!(3))
    );
}

#[tokio::test]
async fn a_call_waits_for_a_person_and_no_agent_is_one() {
    let asks = RuleOptions {
        name: "careful".to_owned(),
        effect: RuleEffect::Ask,
        tools: vec![pattern("toy_echo")],
        when: None,
        why: String::new(),
    };
    let stage = Stage::ruled(Options { rules: vec![asks], ..Options::default() }).await;
    let children = children(&stage);
    let id = children.open(child(&stage, "run", &["toy_echo"])).await.expect("opens");
    assert_eq!(names(&children, id), ["toy_echo"]);
    let calling = children.clone();
    let running =
        tokio::spawn(async move { call(&calling, id, "toy_echo", json!({ "text": "x" })).await });
    let approvals = stage.dispatcher.policy().approvals();
    eventually("it waits", || !approvals.list(false).is_empty()).await;
    let waiting = approvals.list(false).remove(0);
    assert_eq!(children.awaiting_approval(), BTreeSet::from([id]));
    assert_eq!((waiting.call.session, waiting.call.door, waiting.waits), (id, Door::Agent, true));
    let yes = ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: None };
    let by = |door| Approver { user: USER, door };
    let own = approvals.decide(waiting.id, &by(Door::Agent), yes.clone()).await;
    assert_eq!(code(own), "self_approval");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!running.is_finished(), "nobody let it through");
    approvals.decide(waiting.id, &by(Door::Cli), yes).await.expect("a person");
    running.await.expect("no panic").expect("it goes on");
    assert!(children.awaiting_approval().is_empty());
}

#[tokio::test]
async fn a_session_below_an_agents_is_told_from_a_persons_whatever_its_door() {
    let stage = Stage::new(Stage::loose()).await;
    let children = children(&stage);
    let own = stage.attachment.session;
    let id = children.open(child(&stage, "run", &["toy_echo"])).await.expect("opens");
    let below = ChildSession { parent: id, ..child(&stage, "run", &["toy_echo"]) };
    let deep = children.open(below).await.expect("opens");
    let at_a_door = session(&stage, SessionProfile { parent: Some(deep), ..Default::default() });
    let at_a_door = at_a_door.await.session;
    children.end(deep).await.expect("ends");
    assert_eq!(children.agents_above(at_a_door), [deep, id], "also of one that is over");
    assert_eq!(children.agents_above(id), [id]);
    assert!(children.agents_above(own).is_empty());
}

#[tokio::test]
async fn before_the_daemon_has_started_everything_is_asked_again() {
    let stage = Stage::new(Stage::loose()).await;
    let early = DispatchedChildren::new(stage.sessions.clone());
    let id = stage.attachment.session;
    let refusals = [
        early.open(child(&stage, "run", &[])).await.expect_err("early"),
        early.tools(id).expect_err("early"),
        call(&early, id, "toy_echo", json!({ "text": "x" })).await.expect_err("early"),
    ];
    for refused in refusals {
        assert!(refused.retryable && refused.code == "actor_unavailable", "{refused}");
    }
    early.wire(stage.dispatcher.clone());
    early.open(child(&stage, "run", &[])).await.expect("opens");
}

#[tokio::test]
async fn a_session_that_nobody_is_at_is_its_users_and_has_no_more_than_agents_have() {
    let stage = Stage::new(Stage::loose()).await;
    let children = children(&stage);
    let owned = children.open_for(USER, "run").await.expect("opens");
    assert_eq!(children.open_for(USER, "run").await, Ok(owned), "the same by its name");
    let row = stage.sessions.row(owned).expect("a row");
    assert_eq!((row.user, row.door), (Some(USER), Door::Agent));
    let below = ChildSession { parent: owned, ..child(&stage, "a", &["toy_echo", "toy.admin"]) };
    let below = children.open(below).await.expect("opens");
    assert_eq!(names(&children, below), ["toy_echo"]);
    children.end(owned).await.expect("ends");
    assert_ne!(children.open_for(USER, "run").await, Ok(owned));
}
