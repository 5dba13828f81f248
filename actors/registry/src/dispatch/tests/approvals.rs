//! Approvals as calls meet them: each good for one call, whatever runs beside it.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CredentialId, Door, ToolError, User};
use hivekeep_policy::{
    ApprovalAnswer, ApprovalState, Approver, Options, Remember, RuleEffect, RuleOptions,
    ToolPattern, WantedCall, input_digest,
};
use serde_json::{Value, json};

use crate::{ApprovalRoute, CallRequest, client_question, codes, test_util::Stage};

fn pattern(text: &str) -> ToolPattern {
    ToolPattern::try_from(text.to_owned()).expect("a pattern")
}

fn asks(tools: &str) -> RuleOptions {
    RuleOptions {
        name: "careful".to_owned(),
        effect: RuleEffect::Ask,
        tools: vec![pattern(tools)],
        when: None,
        why: String::new(),
    }
}

fn rules() -> Options {
    Options { rules: vec![asks("toy_echo")], ..Options::default() }
}

async fn stage() -> Stage {
    Stage::ruled(rules()).await
}

fn person() -> Approver {
    Approver { user: User::Uid(1), door: Door::Cli }
}

fn yes() -> ApprovalAnswer {
    ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: None }
}

fn echo(stage: &Stage, text: &str) -> CallRequest {
    stage.request("toy_echo", json!({ "text": text }))
}

async fn call(stage: &Stage, request: CallRequest) -> Result<Value, ToolError> {
    stage.dispatcher.call(request).await.result
}

fn code(result: Result<Value, ToolError>) -> String {
    result.expect_err("refused").code.into_owned()
}

/// The call of a request, as an approval is bound to it.
fn wanted(request: &CallRequest) -> WantedCall {
    WantedCall {
        tool: "toy_echo".to_owned(),
        session: request.session,
        user: crate::test_util::stage::USER,
        door: Door::Internal,
        agent: None,
        workspace: None,
        input_digest: input_digest(&request.args),
        input: String::new(),
        input_chars: 0,
    }
}

#[tokio::test]
async fn a_call_that_does_not_wait_is_repeated_once_when_it_is_approved() {
    let stage = stage().await;
    let refused = call(&stage, echo(&stage, "x")).await.expect_err("asks");
    assert_eq!(refused.code, "approval_required");
    let approvals = stage.dispatcher.policy().approvals().clone();
    // The same call asks nobody twice.
    call(&stage, echo(&stage, "x")).await.expect_err("asks");
    let [waiting] = approvals.list(false).try_into().expect("one");
    assert_eq!(refused.details["approval"], json!(waiting.id.to_string()));
    assert!(waiting.call.input.contains("\"x\""));
    approvals.decide(waiting.id, &person(), yes()).await.expect("decided");
    // Another input is another call.
    assert_eq!(code(call(&stage, echo(&stage, "y")).await), "approval_required");
    call(&stage, echo(&stage, "x")).await.expect("let through");
    assert_eq!(code(call(&stage, echo(&stage, "x")).await), "approval_required");
}

#[tokio::test]
async fn a_call_that_is_repeated_hears_the_denial_and_asks_nobody_again() {
    let stage = stage().await;
    let approvals = stage.dispatcher.policy().approvals();
    call(&stage, echo(&stage, "x")).await.expect_err("asks");
    let no = ApprovalAnswer { approved: false, why: Some("no".to_owned()), ..yes() };
    approvals.decide(approvals.list(false)[0].id, &person(), no).await.expect("decided");
    let denied = call(&stage, echo(&stage, "x")).await.expect_err("denied");
    assert_eq!((denied.code.as_ref(), &denied.details["why"]), ("approval_denied", &json!("no")));
    assert_eq!(approvals.list(false), []);
    assert_eq!(code(call(&stage, echo(&stage, "y")).await), "approval_required");
}

#[tokio::test]
async fn a_person_is_shown_no_credential() {
    let stage = stage().await;
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    call(&stage, echo(&stage, &secret)).await.expect_err("asks");
    let shown = stage.dispatcher.policy().approvals().list(false)[0].call.input.clone();
    assert!(!shown.contains(&secret) && shown.contains("text"), "{shown}");
}

#[tokio::test]
async fn a_person_is_told_what_is_left_out_and_shown_it_on_demand() {
    let stage = stage().await;
    let text = format!("{}; git push --force", "x".repeat(2_500));
    let refused = call(&stage, echo(&stage, &text)).await.expect_err("asks");
    let approvals = stage.dispatcher.policy().approvals();
    let [listed] = approvals.list(false).try_into().expect("one");
    let left = text.len() + r#"{"text":""}"#.len() - 2_000;
    let told = format!("\n... {left} more characters: `hivekeep approvals show {}`", listed.id);
    assert!(listed.call.input.ends_with(&told), "{}", listed.call.input);
    assert_eq!(refused.details["approval"], json!(listed.id.to_string()));
    let whole = approvals.get(listed.id).expect("it is known");
    assert_eq!(whole.call.input, json!({ "text": text }).to_string());
    // The same at a client that asks its person.
    assert!(client_question(&whole).question.ends_with(&told));
    // A decided one keeps the beginning alone.
    let no = ApprovalAnswer { approved: false, ..yes() };
    let denied = approvals.decide(listed.id, &person(), no).await.expect("decided");
    let told = format!("\n... {left} more characters, which are not kept");
    assert!(denied.call.input.ends_with(&told), "{}", denied.call.input);
}

/// Begins a call that waits for a person, until it does.
async fn begin(stage: &Arc<Stage>) -> tokio::task::JoinHandle<Result<Value, ToolError>> {
    let mut changes = stage.dispatcher.policy().approvals().changes();
    let mut request = echo(stage, "x");
    request.approval = ApprovalRoute::waiting();
    let calling = stage.clone();
    let running = tokio::spawn(async move { call(&calling, request).await });
    while stage.dispatcher.policy().approvals().list(false).is_empty() {
        changes.changed().await.expect("it lives");
    }
    running
}

#[tokio::test]
async fn a_call_that_was_approved_is_judged_by_the_rules_that_hold_then() {
    let stage = Arc::new(stage().await);
    let running = begin(&stage).await;
    let policy = stage.dispatcher.policy();
    let freeze =
        RuleOptions { name: "freeze".to_owned(), effect: RuleEffect::Deny, ..asks("toy_echo") };
    policy.add_rule(freeze, "me").await.expect("added");
    let id = policy.approvals().list(false)[0].id;
    policy.approvals().decide(id, &person(), yes()).await.expect("decided");
    let refused = running.await.expect("no panic").expect_err("it is denied meanwhile");
    assert!(refused.is(codes::DENIED) && refused.message.contains("freeze"), "{refused}");
}

#[tokio::test]
async fn whoever_calls_in_anothers_session_is_the_caller_there_too() {
    let stage = stage().await;
    let approvals = stage.dispatcher.policy().approvals();
    let operator = User::Credential(CredentialId::new());
    let by = Approver { user: operator, door: Door::HttpApi };
    let mut request = echo(&stage, "x");
    request.approval.caller = Some(operator);
    assert_eq!(code(call(&stage, request.clone()).await), "approval_required");
    let id = approvals.list(false)[0].id;
    let own = approvals.decide(id, &by, yes()).await.expect_err("its own");
    assert_eq!(own.code, "self_approval");
    // Neither is what it approved for the session's user an approval of its own call.
    let minted = approvals.mint(wanted(&request), &by).await.expect("for the session's user");
    request.approval.token = Some(minted.token);
    assert_eq!(code(call(&stage, request.clone()).await), "approval_token_mismatch");
    request.approval.caller = None;
    call(&stage, request).await.expect("the session's user makes it");
}

#[tokio::test]
async fn a_call_that_waits_goes_on_when_a_person_answers() {
    let stage = Arc::new(stage().await);
    let approvals = stage.dispatcher.policy().approvals().clone();
    for (answer, expected) in [
        (yes(), None),
        (
            ApprovalAnswer { approved: false, why: Some("no".to_owned()), ..yes() },
            Some("approval_denied"),
        ),
    ] {
        let running = begin(&stage).await;
        let id = approvals.list(false)[0].id;
        approvals.decide(id, &person(), answer).await.expect("decided");
        let outcome = running.await.expect("no panic");
        assert_eq!(outcome.err().map(|error| error.code.into_owned()).as_deref(), expected);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_to_approve() {
    let stage = stage().await;
    let approvals = stage.dispatcher.policy().approvals().clone();
    let mut request = echo(&stage, "x");
    request.approval = ApprovalRoute::waiting();
    let gone = tokio::time::timeout(Duration::from_millis(200), call(&stage, request)).await;
    assert!(gone.is_err());
    let mut changes = approvals.changes();
    while !approvals.list(false).is_empty() {
        changes.changed().await.expect("it lives");
    }
    assert_eq!(approvals.list(true)[0].state, ApprovalState::Withdrawn);
}

#[tokio::test]
async fn whoever_calls_cannot_approve() {
    let stage = stage().await;
    call(&stage, echo(&stage, "x")).await.expect_err("asks");
    let approvals = stage.dispatcher.policy().approvals();
    let id = approvals.list(false)[0].id;
    let caller = Approver { user: crate::test_util::stage::USER, door: Door::Internal };
    let refused = approvals.decide(id, &caller, yes()).await.expect_err("its own");
    assert_eq!(refused.code, "self_approval");
    let minted = approvals.mint(wanted(&echo(&stage, "x")), &caller).await;
    assert_eq!(minted.expect_err("its own").code, "self_approval");
    let no = ApprovalAnswer { approved: false, ..yes() };
    approvals.decide(id, &caller, no).await.expect("anybody may say no");
}

#[tokio::test]
async fn a_token_is_burnt_at_most_once_by_a_hundred_calls() {
    let stage = Arc::new(stage().await);
    let approvals = stage.dispatcher.policy().approvals().clone();
    let request = echo(&stage, "x");
    let minted = approvals.mint(wanted(&request), &person()).await.expect("minted");
    assert_eq!(minted.token.len(), 43);
    assert!(!format!("{:?}", approvals.list(true)).contains(&minted.token));
    let other = CallRequest {
        approval: ApprovalRoute { token: Some(minted.token.clone()), ..Default::default() },
        ..echo(&stage, "y")
    };
    assert_eq!(code(call(&stage, other).await), "approval_token_mismatch", "and it survives");
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (stage, mut request) = (stage.clone(), request.clone());
        request.approval.token = Some(minted.token.clone());
        running.spawn(async move { call(&stage, request).await });
    }
    let outcomes = running.join_all().await;
    let through = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let replayed = |outcome: &Result<Value, ToolError>| {
        outcome.as_ref().is_err_and(|error| error.code == "approval_token_replayed")
    };
    assert_eq!((through, outcomes.iter().filter(|one| replayed(one)).count()), (1, 99));
}

#[tokio::test]
async fn grants_rules_and_uses_outlive_the_daemon() {
    let stage = stage().await;
    let approvals = stage.dispatcher.policy().approvals();
    call(&stage, echo(&stage, "x")).await.expect_err("asks");
    let id = approvals.list(false)[0].id;
    let remember = Remember::Tools { tools: pattern("toy_*"), secs: 600 };
    approvals.decide(id, &person(), ApprovalAnswer { remember, ..yes() }).await.expect("decided");
    let minted = approvals.mint(wanted(&echo(&stage, "t")), &person()).await.expect("made");
    let mut used = echo(&stage, "t");
    used.approval.token = Some(minted.token);
    call(&stage, used.clone()).await.expect("let through");
    stage
        .dispatcher
        .policy()
        .add_rule(RuleOptions { name: "look".to_owned(), ..asks("toy.look") }, "me")
        .await
        .expect("added");

    let stage = stage.restarted_ruled(rules()).await;
    let approvals = stage.dispatcher.policy().approvals();
    let [grant] = approvals.grants().try_into().expect("one");
    call(&stage, echo(&stage, "anything")).await.expect("granted");
    used.session = stage.attachment.session;
    assert_eq!(code(call(&stage, used).await), "approval_token_mismatch", "of another session");
    let look = || stage.request("toy.look", json!({ "toy_id": "red" }));
    call(&stage, look()).await.expect("granted as well");
    approvals.revoke_grant(grant.id, &person()).await.expect("ended");
    assert_eq!(code(call(&stage, look()).await), "approval_required");
    stage.dispatcher.policy().remove_rule("look", "me").await.expect("removed");
    call(&stage, look()).await.expect("no rule is left");
}
