use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use hivekeep_kernel::{ApprovalId, CallCx, SessionId, ToolError};
use hivekeep_ports::{ConversationMode, People, UserOutcome, UserQuestion, UserReply};

use crate::{
    pages,
    tools::{AskUser, Conversation, ZaruInit},
};

/// Replies as it is told.
struct Scripted(Option<UserReply>);

#[async_trait]
impl People for Scripted {
    async fn ask(
        &self,
        _: &CallCx,
        question: UserQuestion,
        _: Duration,
    ) -> Result<UserOutcome, ToolError> {
        let Some(reply) = &self.0 else { return Ok(UserOutcome::Unanswered(ApprovalId::new())) };
        question.takes(reply).map_err(ToolError::invalid)?;
        Ok(UserOutcome::Replied(reply.clone()))
    }

    fn conversation(&self, _: SessionId) -> Option<String> {
        None
    }

    fn conversations(&self) -> Vec<ConversationMode> {
        let mode = |name: &str| ConversationMode {
            name: name.to_owned(),
            tools: vec!["zaru.*".to_owned()],
            prompt: format!("this is {name}"),
        };
        vec![mode("architect"), mode("chat")]
    }

    async fn converse(&self, _: &CallCx, _: &str, _: &str) -> Result<(), ToolError> {
        Ok(())
    }
}

fn cx() -> CallCx {
    let limit = Duration::from_secs(60);
    hivekeep_testkit::context(SessionId::new(), "ask_user", limit, Default::default())
}

fn ask(options: Option<&[&str]>, free: bool) -> AskUser {
    AskUser {
        question: "Which?".to_owned(),
        options: options.map(|all| all.iter().map(|one| (*one).to_owned()).collect()),
        allow_free_text: free,
        free_text_placeholder: None,
        multi_select: false,
        fields: Vec::new(),
        timeout_secs: 1,
    }
}

#[tokio::test]
async fn what_a_person_replies_is_told_in_words_and_fields() {
    let reply = |selected: &[usize], text: Option<&str>| {
        Some(UserReply {
            selected: selected.to_vec(),
            text: text.map(str::to_owned),
            ..UserReply::default()
        })
    };
    for (reply, input, expected) in [
        (
            reply(&[1], None),
            ask(Some(&["a", "b"]), false),
            Ok(("answered", "The user selected: b")),
        ),
        (
            reply(&[0], Some("x")),
            ask(Some(&["a", "b"]), true),
            Ok(("answered", "The user selected: a. The user responded: x")),
        ),
        (reply(&[], Some("x")), ask(None, false), Ok(("answered", "The user responded: x"))),
        (reply(&[], None), ask(None, false), Ok(("skipped", "The user skipped the question"))),
        (reply(&[2], None), ask(Some(&["a", "b"]), false), Err("invalid_input")),
        (reply(&[0, 1], None), ask(Some(&["a", "b"]), false), Err("invalid_input")),
        (reply(&[], Some("x")), ask(Some(&["a", "b"]), false), Err("invalid_input")),
    ] {
        let service = Arc::new(Conversation::new(Arc::new(Scripted(reply))));
        let asked = service.ask_user(cx(), input).await;
        let told = asked.map(|it| (it.status, it.message)).map_err(|error| error.code);
        assert_eq!(told, expected.map(|(s, m)| (s, m.to_owned())).map_err(Into::into));
    }
    let nobody = Arc::new(Conversation::new(Arc::new(Scripted(None))));
    let asked = nobody.ask_user(cx(), ask(None, false)).await.expect("asked");
    assert!(asked.status == "no_answer" && asked.prompt_id.is_some());
}

#[tokio::test]
async fn an_unknown_mode_names_those_there_are() {
    let service = Arc::new(Conversation::new(Arc::new(Scripted(None))));
    let init = |mode: &str| service.clone().init(cx(), ZaruInit { mode: mode.to_owned() });
    assert_eq!(init("workflow").await.expect("its earlier name").mode, "architect");
    let unknown = init("none").await.expect_err("refused");
    assert_eq!(unknown.details["modes"], serde_json::json!(["architect", "chat"]));
}

#[test]
fn documents_answer() {
    for (query, source) in [
        ("approval_timed_out", "docs/errors.md"),
        ("mount a volume into a workspace", "docs/guides/volumes.md"),
        ("approve a call from the command line", "docs/guides/approvals.md"),
    ] {
        let (found, total) = pages::search(query);
        assert!(found.iter().any(|one| one.source == source), "{query}: {found:?}");
        assert!(total >= found.len() && found[0].score > 0.0);
    }
    assert_eq!(pages::search("a of"), (Vec::new(), 0));
}

#[test]
fn every_guide_is_among_the_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for entry in std::fs::read_dir(root.join("docs/guides")).expect("guides") {
        let name = entry.expect("one").file_name().into_string().expect("a name");
        let path = format!("docs/guides/{name}");
        assert!(pages::PAGES.iter().any(|(known, _)| *known == path), "{path} is missing");
    }
}
