//! Approvals by themselves: what each is bound to, how long it holds, and what is told of it.

use hivekeep_kernel::SessionId;
use hivekeep_ports::{
    QuestionState, StandingQuestion, StandingQuestions, UserOutcome, UserQuestion,
};
use hivekeep_runtime::log::Sourced;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::{
    Options,
    tests::{Bench, pattern, wanted},
};

const ME: User = User::Uid(7);

fn call() -> WantedCall {
    let (agent, workspace) = (Some("coder".to_owned()), Some("ws".to_owned()));
    WantedCall { tool: "fs.write".to_owned(), agent, workspace, ..wanted(ME, 0) }
}

/// Calls that differ from [`call`] in one thing that an approval is bound to, by name.
fn others() -> [(&'static str, WantedCall); 8] {
    [
        ("tool", WantedCall { tool: "fs.read".to_owned(), ..call() }),
        ("session", WantedCall { session: SessionId::new(), ..call() }),
        ("user", WantedCall { user: User::Uid(8), ..call() }),
        ("agent", WantedCall { agent: Some("other".to_owned()), ..call() }),
        ("no agent", WantedCall { agent: None, ..call() }),
        ("workspace", WantedCall { workspace: Some("other".to_owned()), ..call() }),
        ("no workspace", WantedCall { workspace: None, ..call() }),
        ("input", WantedCall { input_digest: "sha256:1".to_owned(), ..call() }),
    ]
}

fn at(secs: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_000_000 + secs, 0).expect("a time")
}

const STATES: [ApprovalState; 6] = [
    ApprovalState::Pending,
    ApprovalState::Approved,
    ApprovalState::Denied,
    ApprovalState::TimedOut,
    ApprovalState::Withdrawn,
    ApprovalState::Used,
];

/// An approval of [`call`] that was asked for at 0 and is over at 60 seconds.
fn approval(state: ApprovalState) -> Approval {
    Approval {
        id: ApprovalId::new(),
        call: call(),
        why: "why".to_owned(),
        asked_at: at(0),
        expires_at: at(60),
        state,
        waits: false,
        decided_by: None,
        decided_at: None,
        question: None,
        reply: None,
        decided_why: None,
        token: None,
    }
}

fn ledger(all: impl IntoIterator<Item = Approval>) -> ApprovalLedger {
    let approvals = all.into_iter().map(|one| (one.id, one)).collect();
    ApprovalLedger { approvals, ..ApprovalLedger::default() }
}

fn grant(session: Option<SessionId>) -> Grant {
    let (id, tools, by) = (hivekeep_kernel::GrantId::new(), pattern("fs.*"), "me".to_owned());
    Grant { id, tools, user: ME, session, until: at(60), by, at: at(0) }
}

#[test]
fn an_approval_is_of_one_call_in_one_state_until_its_end() {
    for state in STATES {
        let one = approval(state);
        let ledger = ledger([one.clone()]);
        let found = |call: &WantedCall, secs| {
            let all = [
                ledger.asked(call, at(secs)),
                ledger.approved(call, at(secs)),
                ledger.denied(call, at(secs)),
            ];
            all.map(|found| found.is_some())
        };
        let is = |wanted| state == wanted;
        let live =
            [is(ApprovalState::Pending), is(ApprovalState::Approved), is(ApprovalState::Denied)];
        assert_eq!(found(&call(), 59), live, "{state:?}");
        assert_eq!(found(&call(), 60), [false; 3], "{state:?} is over");
        assert!(ledger.same_call(one.id, &call()) && !ledger.same_call(ApprovalId::new(), &call()));
        for (what, other) in others() {
            assert_eq!(found(&other, 0), [false; 3], "{state:?} of another {what}");
            assert!(!ledger.same_call(one.id, &other), "another {what}");
        }
        let over = if live[0] || live[1] { ApprovalState::TimedOut } else { state };
        assert_eq!([state_at(&one, at(59)), state_at(&one, at(60))], [state, over]);
    }
    let waits = Approval { waits: true, ..approval(ApprovalState::Pending) };
    assert_eq!(ledger([waits]).asked(&call(), at(0)), None, "it is another call's");
    let token = Some("hash".to_owned());
    let token = ledger([Approval { token, ..approval(ApprovalState::Approved) }]);
    assert_eq!(token.approved(&call(), at(0)), None, "whoever has the token shows it");
    assert!(token.of_token("hash").is_some() && token.of_token("other").is_none());
}

#[test]
fn a_grant_is_of_its_user_its_tools_and_perhaps_one_session() {
    for (session, other) in [(None, true), (Some(call().session), false)] {
        let grant = grant(session);
        let grants = [(grant.id, grant.clone())].into();
        let ledger = ApprovalLedger { grants, ..ApprovalLedger::default() };
        let has = |call: &WantedCall, secs| ledger.grant(call, at(secs)).is_some();
        assert!(has(&call(), 59) && !has(&call(), 60));
        assert_eq!(has(&WantedCall { session: SessionId::new(), ..call() }, 0), other);
        assert!(!has(&WantedCall { user: User::Uid(8), ..call() }, 0));
        assert!(!has(&WantedCall { tool: "exec".to_owned(), ..call() }, 0));
        assert!(has(&WantedCall { agent: None, input_digest: String::new(), ..call() }, 0));
    }
}

#[test]
fn what_is_long_over_is_forgotten_and_the_oldest_of_too_many() {
    let hour = 3_600;
    let mut known = ledger(STATES.map(approval));
    known.grants.extend([grant(None)].map(|grant| (grant.id, grant)));
    let ask = |ledger: &mut ApprovalLedger, secs| {
        let asked_at = at(secs);
        let approval = Approval {
            asked_at,
            expires_at: asked_at + Duration::from_secs(60),
            ..approval(ApprovalState::Pending)
        };
        ledger.apply(Record::Asked { approval: approval.into() }).expect("it follows");
    };
    ask(&mut known, 59);
    assert_eq!((known.approvals.len(), known.grants.len()), (7, 1));
    ask(&mut known, 60);
    assert_eq!((known.approvals.len(), known.grants.len()), (8, 0));
    ask(&mut known, 60 + hour - 1);
    assert_eq!(known.approvals.len(), 9);
    ask(&mut known, 60 + hour);
    assert_eq!(known.approvals.len(), 4, "six are over for an hour");

    let finished: Vec<_> = (0..4_098).map(|_| approval(ApprovalState::Used)).collect();
    let kept: Vec<_> = finished[2..].iter().map(|one| one.id).collect();
    let pending = approval(ApprovalState::Pending);
    let mut many = ledger([pending.clone()].into_iter().chain(finished));
    ask(&mut many, 1);
    assert!(many.approvals.contains_key(&pending.id) && many.approvals.len() == 4_098);
    assert!(kept.iter().all(|id| many.approvals.contains_key(id)));
}

#[test]
fn a_ledger_reads_back_from_its_snapshot() {
    let mut whole = ledger([approval(ApprovalState::Pending)]);
    whole.grants.extend([grant(None)].map(|grant| (grant.id, grant)));
    let read = ApprovalLedger::unfold(&whole.fold().expect("a snapshot")).expect("reads back");
    assert_eq!((read.approvals, read.grants), (whole.approvals, whole.grants));
    assert!(ApprovalLedger::unfold(b"?").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// However long an input is: it is shown whole, or so much of it with the number of characters that are not.
    #[test]
    fn what_is_left_out_of_an_input_is_counted(text in "[aé\u{1f600}]{0,30}", times in 0_usize..3_000) {
        let text = text.repeat(times);
        let members = [("text".to_owned(), text.clone().into())].into_iter().collect();
        let (kept, chars) = input_text(&members);
        let whole = json!({ "text": text }).to_string();
        prop_assert_eq!(chars, whole.chars().count());
        prop_assert_eq!(&kept, &whole.chars().take(40_000).collect::<String>());
        let mut one = approval(ApprovalState::Pending);
        (one.call.input, one.call.input_chars) = (kept, chars);
        let told = |shown: &str, most: usize, how: &str| {
            let beginning: String = whole.chars().take(most).collect();
            let left = chars - beginning.chars().count();
            let end = if left > 0 { format!("\n... {left} more characters{how}") } else { String::new() };
            shown == format!("{beginning}{end}")
        };
        let not_kept = ", which are not kept";
        let on_demand = format!(": `hivekeep approvals show {}`", one.id);
        prop_assert!(told(&one.input_beginning(), 2_000, &on_demand));
        prop_assert!(told(&one.whole_input(), 40_000, not_kept));
        one.shorten();
        prop_assert!(told(&one.input_beginning(), 2_000, not_kept));
        prop_assert!(told(&one.whole_input(), 2_000, not_kept));
    }

}

proptest! {
    #[test]
    fn whole_numbers_and_bytes_are_told_apart(a: i64, b: i64, bytes: Vec<u8>) {
        let digest = |n: i64| input_digest(json!({ "list": [{ "n": n }] }).as_object().expect("a map"));
        prop_assert_eq!(digest(a) == digest(b), a == b);
        prop_assert_ne!(digest(a), digest(a ^ 1));
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        prop_assert_eq!(hexadecimal(&bytes), expected);
    }
}

#[test]
fn the_longest_member_stands_last() {
    let (text, _) = input_text(json!({ "a": "long text", "b": 1 }).as_object().expect("a map"));
    assert_eq!(text, r#"{"b":1,"a":"long text"}"#);
}

#[test]
fn a_number_that_is_exact_adds_nothing_to_the_canonical_form() {
    for exact in [json!(1_u64 << 53), json!(-(1_i64 << 53))] {
        let input = json!({ "n": exact });
        let canonical = serde_json_canonicalizer::to_vec(&input).expect("JSON");
        let expected = format!("sha256:{}", hexadecimal(&Sha256::digest(canonical)));
        assert_eq!(input_digest(input.as_object().expect("a map")), expected);
    }
}

fn person() -> Approver {
    Approver { user: User::Uid(1), door: Door::Cli }
}

fn yes() -> ApprovalAnswer {
    ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply: None }
}

fn no() -> ApprovalAnswer {
    ApprovalAnswer { approved: false, why: Some("w".repeat(1_001)), ..yes() }
}

async fn bench(options: ApprovalOptions) -> Bench {
    Bench::new(Options { approvals: options, ..Options::default() }).await
}

fn code<T: fmt::Debug>(outcome: Result<T, ToolError>) -> String {
    let error = outcome.expect_err("refused");
    assert_eq!(error.layer, Layer::Approval);
    error.code.into_owned()
}

#[tokio::test]
async fn an_approval_lets_one_call_through_and_can_be_taken_back_before() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    let ask = || approvals.ask(call(), "why".to_owned(), false);
    assert_eq!(approvals.admit(&call(), None).await, Ok(None), "nobody was asked");
    let asked = ask().await.expect("asked");
    assert_eq!(ask().await.expect("asked").id, asked.id, "it is asked for once");
    assert_eq!(
        (asked.state, asked.expires_at),
        (ApprovalState::Pending, asked.asked_at + Duration::from_secs(120))
    );
    assert_eq!(approvals.admit(&call(), None).await, Ok(None), "nobody has answered");
    let given = approvals.decide(asked.id, &person(), yes()).await.expect("decided");
    assert_eq!(
        (given.state, given.decided_by.as_deref()),
        (ApprovalState::Approved, Some("uid:1 (cli)"))
    );
    assert!(approvals.list(false).is_empty() && approvals.list(true).len() == 1);
    for (what, other) in others() {
        assert_eq!(approvals.admit(&other, None).await, Ok(None), "another {what}");
    }
    assert_eq!(approvals.admit(&call(), None).await, Ok(Some(asked.id.to_string())));
    assert_eq!(approvals.admit(&call(), None).await, Ok(None), "it is used up");
    let state = |id| approvals.get(id).expect("known").state;
    assert_eq!(state(asked.id), ApprovalState::Used);
    assert_eq!(code(approvals.decide(asked.id, &person(), no()).await), "approval_not_found");
    assert_eq!(
        code(approvals.decide(ApprovalId::new(), &person(), no()).await),
        "approval_not_found"
    );

    let second = ask().await.expect("asked");
    approvals.decide(second.id, &person(), yes()).await.expect("decided");
    assert_eq!(
        code(approvals.decide(second.id, &person(), yes()).await),
        "approval_not_found",
        "it has it"
    );
    let denied = approvals.decide(second.id, &person(), no()).await.expect("taken back");
    assert_eq!(denied.decided_why, Some("w".repeat(1_000)));
    assert_eq!(approvals.admit(&call(), None).await, Ok(None));
    let refused = ask().await.expect_err("somebody said no");
    assert!(
        refused.is(codes::APPROVAL_DENIED) && refused.message.starts_with("uid:1 (cli) denied"),
        "{refused}"
    );
    assert_eq!(
        approvals.ask(call(), "why".to_owned(), true).await.expect("asked").state,
        ApprovalState::Pending
    );
}

#[tokio::test]
async fn a_call_that_waits_hears_the_answer_or_that_there_is_none() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    for (answer, heard) in [(yes(), None), (no(), Some("approval_denied"))] {
        let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
        let decide = async {
            tokio::task::yield_now().await;
            approvals.decide(asked.id, &person(), answer).await.expect("decided")
        };
        let (outcome, _) = tokio::join!(approvals.wait(&asked), decide);
        assert_eq!(outcome.err().map(|error| error.code).as_deref(), heard);
        let end = if heard.is_some() { ApprovalState::Denied } else { ApprovalState::Used };
        assert_eq!(approvals.get(asked.id).expect("known").state, end);
    }
    let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
    let gone = tokio::time::timeout(Duration::from_millis(20), approvals.wait(&asked)).await;
    assert!(gone.is_err());
    // It is seen once it is durable.
    let mut changes = approvals.changes();
    while approvals.get(asked.id).expect("known").state == ApprovalState::Pending {
        changes.changed().await.expect("it is withdrawn");
    }
    assert_eq!(approvals.get(asked.id).expect("known").state, ApprovalState::Withdrawn);
    assert!(approvals.list(false).is_empty(), "nobody waits any more");
}

#[tokio::test]
async fn what_nobody_answers_in_time_is_over() {
    let bench = bench(ApprovalOptions { timeout_secs: 0, ..ApprovalOptions::default() }).await;
    let approvals = bench.engine.approvals();
    let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
    assert_eq!(approvals.get(asked.id).expect("known").state, ApprovalState::TimedOut);
    assert_eq!(code(approvals.wait(&asked).await), "approval_timed_out");
    assert_eq!(code(approvals.decide(asked.id, &person(), yes()).await), "approval_not_found");
    let token = approvals.mint(call(), &person()).await.expect("made").token;
    assert_eq!(code(approvals.admit(&call(), Some(&token)).await), "approval_token_expired");
}

#[tokio::test]
async fn a_token_is_good_for_one_call() {
    let bench = bench(ApprovalOptions { max_pending: 2, ..ApprovalOptions::default() }).await;
    let approvals = bench.engine.approvals();
    let own = Approver { user: ME, door: call().door };
    assert_eq!(code(approvals.mint(call(), &own).await), "self_approval");
    let minted = approvals.mint(call(), &person()).await.expect("made");
    assert_eq!((minted.token.len(), &minted.approval.token), (43, &None));
    assert!(approvals.list(true).iter().all(|one| one.token.is_none()), "it is shown once");
    assert_eq!(code(approvals.mint(call(), &person()).await), "approvals_full", "half of two");
    assert_eq!(approvals.admit(&call(), None).await, Ok(None), "it has to be shown");
    for (what, other) in others() {
        let refused = approvals.admit(&other, Some(&minted.token)).await;
        assert_eq!(code(refused), "approval_token_mismatch", "another {what}");
    }
    assert_eq!(code(approvals.admit(&call(), Some("x")).await), "approval_token_mismatch");
    let id = minted.approval.id;
    assert_eq!(approvals.admit(&call(), Some(&minted.token)).await, Ok(Some(id.to_string())));
    assert_eq!(
        code(approvals.admit(&call(), Some(&minted.token)).await),
        "approval_token_replayed"
    );
    approvals.give_back(id).await.expect("nothing is given back");
    assert_eq!(
        code(approvals.admit(&call(), Some(&minted.token)).await),
        "approval_token_replayed"
    );
    let back = approvals.mint(call(), &person()).await.expect("made");
    approvals.decide(back.approval.id, &person(), no()).await.expect("taken back");
    assert_eq!(code(approvals.admit(&call(), Some(&back.token)).await), "approval_token_mismatch");
}

#[tokio::test]
async fn an_approval_is_given_back_once_to_a_call_that_comes_again() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    let asked = approvals.ask(call(), "why".to_owned(), false).await.expect("asked");
    approvals.give_back(asked.id).await.expect("it was not used");
    approvals.decide(asked.id, &person(), yes()).await.expect("decided");
    approvals.give_back(asked.id).await.expect("it was not used");
    assert_eq!(approvals.list(true).len(), 1);
    assert!(approvals.admit(&call(), None).await.expect("admitted").is_some());
    for _ in 0..2 {
        approvals.give_back(asked.id).await.expect("once");
    }
    let again = approvals.admit(&call(), None).await.expect("admitted");
    assert!(again.is_some_and(|id| id != asked.id.to_string()));
    assert_eq!(approvals.admit(&call(), None).await, Ok(None), "not a second time");
}

#[tokio::test]
async fn an_answer_is_remembered_for_as_much_as_it_says() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    let grants = async |remember| {
        let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
        approvals
            .decide(asked.id, &person(), ApprovalAnswer { remember, ..yes() })
            .await
            .expect("decided");
        // The approval itself is used up, so that what follows is by the grant.
        approvals.wait(&asked).await.expect("let through");
        let [grant] = approvals.grants().try_into().expect("one");
        let id = Some(grant.id.to_string());
        let by_grant =
            async |call: &WantedCall| approvals.admit(call, None).await == Ok(id.clone());
        let another = WantedCall { input_digest: "sha256:1".to_owned(), ..call() };
        assert!(by_grant(&another).await && by_grant(&another).await, "as often as it is called");
        let of_session = by_grant(&WantedCall { session: SessionId::new(), ..call() }).await;
        let of_tool = by_grant(&WantedCall { tool: "fs.read".to_owned(), ..call() }).await;
        approvals.revoke_grant(grant.id, &person()).await.expect("revoked");
        assert!(!by_grant(&another).await && approvals.grants().is_empty());
        assert_eq!(code(approvals.revoke_grant(grant.id, &person()).await), "grant_not_found");
        (of_session, of_tool, (grant.until - grant.at).num_seconds())
    };
    assert_eq!(grants(Remember::Session).await, (false, false, 7 * 24 * 3_600));
    let tools = |secs| Remember::Tools { tools: pattern("fs.*"), secs };
    assert_eq!(grants(tools(30)).await, (true, true, 30));
    assert_eq!(grants(tools(u64::MAX)).await, (true, true, 30 * 24 * 3_600));
    // Whoever says no grants nothing, and what is remembered for no time is nothing.
    let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
    approvals
        .decide(asked.id, &person(), ApprovalAnswer { remember: tools(30), ..no() })
        .await
        .expect("decided");
    let asked = approvals.ask(call(), "why".to_owned(), true).await.expect("asked");
    approvals
        .decide(asked.id, &person(), ApprovalAnswer { remember: tools(0), ..yes() })
        .await
        .expect("decided");
    assert_eq!(approvals.grants(), []);
}

#[tokio::test]
async fn whoever_calls_says_no_and_not_yes_unless_the_operator_lets_it() {
    let own = Approver { user: ME, door: call().door };
    for allowed in [false, true] {
        let bench =
            bench(ApprovalOptions { self_approval: allowed, ..ApprovalOptions::default() }).await;
        let approvals = bench.engine.approvals();
        let asked = approvals.ask(call(), "why".to_owned(), false).await.expect("asked");
        let decided = approvals.decide(asked.id, &own, yes()).await;
        assert_eq!(decided.is_ok(), allowed);
        approvals.decide(asked.id, &own, no()).await.expect("anybody may");
        let asked = approvals.ask(wanted(ME, 1), "why".to_owned(), false).await.expect("asked");
        let client = approvals.decide_at_client(asked.id, yes()).await.expect("at its client");
        assert_eq!(client.decided_by.as_deref(), Some("uid:7 (elicitation)"));
    }
}

#[tokio::test]
async fn calls_that_waited_when_the_daemon_ended_wait_no_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = async || {
        let options = hivekeep_store::Options::at(dir.path());
        let opened = tokio::task::spawn_blocking(move || Journal::open(options)).await;
        let (journal, _) = opened.expect("no panic").expect("opens");
        (
            Approvals::open(ApprovalOptions::default(), journal.clone()).await.expect("opens"),
            journal,
        )
    };
    let (approvals, journal) = open().await;
    let mut ids = Vec::new();
    for (nth, waits) in [true, false].into_iter().enumerate() {
        ids.push(approvals.ask(wanted(ME, nth), "why".to_owned(), waits).await.expect("asked").id);
    }
    drop(approvals);
    journal.close().await;
    drop(journal);
    let (approvals, _) = open().await;
    let states = ids.iter().map(|id| approvals.get(*id).expect("known").state);
    assert_eq!(states.collect::<Vec<_>>(), [ApprovalState::Withdrawn, ApprovalState::Pending]);
}

/// Person at a client that repeats its calls: silent at first, and then with a reply.
#[derive(Debug)]
struct Rounds(Option<UserReply>, std::sync::Mutex<Vec<ApprovalId>>);

#[async_trait::async_trait]
impl hivekeep_ports::ClientPrompt for Rounds {
    async fn ask(&self, _: ApprovalId, _: &UserQuestion) -> Option<UserReply> {
        self.0.clone()
    }

    fn repeats(&self) -> bool {
        true
    }

    fn used(&self, id: ApprovalId) {
        self.1.lock().expect("no panic").push(id);
    }
}

#[tokio::test]
async fn a_client_that_repeats_its_call_brings_the_reply_with_it() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    let question = UserQuestion { free_text: true, ..UserQuestion::default() };
    let ask = async |client: &Rounds| {
        let limit = Duration::from_secs(60);
        approvals.ask_question(call(), question.clone(), limit, Some(client)).await.expect("asked")
    };
    let silent = Rounds(None, Default::default());
    let UserOutcome::Unanswered(id) = ask(&silent).await else { panic!("nobody replied") };
    let asked = approvals.get(id).expect("known");
    assert_eq!(asked.expires_at - asked.asked_at, chrono::TimeDelta::hours(24));
    let reply = UserReply { text: Some("yes".to_owned()), ..UserReply::default() };
    let heard = Rounds(Some(reply.clone()), Default::default());
    assert_eq!(ask(&heard).await, UserOutcome::Replied(reply));
    assert_eq!((silent.1.into_inner().unwrap(), heard.1.into_inner().unwrap()), (vec![], vec![id]));
    assert_eq!(approvals.get(id).expect("known").state, ApprovalState::Used);
}

#[tokio::test]
async fn a_question_stands_with_its_answer_until_it_is_settled() {
    let bench = bench(ApprovalOptions::default()).await;
    let approvals = bench.engine.approvals();
    let (session, reply) =
        (SessionId::new(), UserReply { text: Some("x".to_owned()), ..UserReply::default() });
    let put = |name: &str| {
        let question = UserQuestion { free_text: true, ..UserQuestion::default() };
        let name = name.to_owned();
        approvals.put(StandingQuestion { session, user: ME, tool: "dag", name, question })
    };
    let replied = ApprovalAnswer { reply: Some(reply.clone()), ..yes() };
    let by = "uid:1 (cli)".to_owned();
    for (name, answer, wanted) in [
        ("a", replied, QuestionState::Replied { by: by.clone(), reply }),
        ("b", yes(), QuestionState::Replied { by: by.clone(), reply: UserReply::default() }),
        ("c", no(), QuestionState::Refused { by, why: Some("w".repeat(1_000)) }),
    ] {
        let id = put(name).await.expect("put");
        assert_eq!(StandingQuestions::state(approvals, id), QuestionState::Waits);
        assert_eq!(put(name).await, Ok(id), "it stands once");
        approvals.decide(id, &person(), answer).await.expect("decided");
        for _ in 0..2 {
            assert_eq!(StandingQuestions::state(approvals, id), wanted, "an answer is not used up");
            assert_eq!(put(name).await, Ok(id), "it is answered");
        }
        assert_eq!(approvals.standing("dag"), [id]);
        approvals.settle(id).await.expect("settled");
        assert_eq!(StandingQuestions::state(approvals, id), QuestionState::Gone);
        assert!(put(name).await.is_ok_and(|other| other != id), "it is asked anew");
        for id in approvals.standing("dag") {
            approvals.settle(id).await.expect("taken back");
        }
        assert!(approvals.list(false).is_empty(), "nobody is asked any more");
    }
    approvals.settle(ApprovalId::new()).await.expect("nothing is to be settled");
}
