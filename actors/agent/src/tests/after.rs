//! Jobs behind an output, over a real journal: handlers of each kind and receivers, their failures, and
//! daemons that die at each record.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{AgentId, ExecutionId, Layer, ToolError, lock};
use hivekeep_manifest::parse_agent;
use hivekeep_ports::{OutboundAnswer, OutboundRequest, OutboundRequests, TaskOutcome};
use hivekeep_runtime::log;
use hivekeep_testkit::eventually;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

use super::{
    Stage,
    fakes::says,
    tasks::{TOOLS, opened, types, write},
};
use crate::{
    Options, SmtpOptions, SmtpSecurity,
    execution::{
        after::AfterStage,
        plan::{ExecutionPlan, ExecutionRequest},
        state::{ExecutionState, Record},
    },
};

type Plays = dyn Fn(&OutboundRequest, usize) -> Result<(), ToolError> + Send + Sync;

/// Receiver of requests that remembers them. It outlives a daemon.
#[derive(Clone, Default)]
pub(super) struct FakeOutbound(Arc<Mutex<OutboundState>>);

#[derive(Default)]
struct OutboundState {
    plays: Option<Arc<Plays>>,
    sent: Vec<OutboundRequest>,
}

impl FakeOutbound {
    /// Has the receiver answer by the request and its number, from 0.
    fn play(
        &self,
        plays: impl Fn(&OutboundRequest, usize) -> Result<(), ToolError> + Send + Sync + 'static,
    ) {
        lock(&self.0).plays = Some(Arc::new(plays));
    }

    fn sent(&self) -> Vec<OutboundRequest> {
        lock(&self.0).sent.clone()
    }

    /// Keys of the requests: a receiver takes each once.
    fn keys(&self) -> BTreeSet<String> {
        self.sent().into_iter().map(|request| request.key).collect()
    }
}

#[async_trait]
impl OutboundRequests for FakeOutbound {
    async fn send(&self, request: OutboundRequest) -> Result<OutboundAnswer, ToolError> {
        let mut state = lock(&self.0);
        let nth = state.sent.len();
        state.sent.push(request.clone());
        let plays = state.plays.clone();
        drop(state);
        plays.map_or(Ok(()), |plays| plays(&request, nth))?;
        Ok(OutboundAnswer { status: 200, headers: BTreeMap::new(), body: "taken".to_owned() })
    }
}

fn refused() -> ToolError {
    ToolError::foreign(Layer::Result, "web_status_failed", "the server answered with 410")
}

/// Handlers, each with the field's rest.
const WEBHOOK: &str = "{ type: webhook, url: 'https://a.example/hook', headers: { x-team: core }, \
    body_template: '{\"said\": {{output_json}}}', required: true }";
const AGENT: &str =
    "{ type: agent, agent_id: next, input_template: 'Go on from {{output}}', required: true }";
const TOOL: &str = "{ type: mcp_tool, tool_name: fs_write, arguments: { path: a, lines: ['{{output}}'] }, required: true }";
const CONTAINER: &str =
    "{ type: container, image: acme/post, command: [post, \"it's\"], required: true }";

impl Stage {
    async fn handing(handler: &str) -> Self {
        let stage = Self::with_worker(&format!("  output_handler: {handler}\n")).await;
        stage.models.answer(|_| says("\"Done\"", &[]));
        let next = super::manifest("next", "1.0.0", "Go on.");
        stage.good("create", json!({ "manifest_yaml": next })).await;
        stage
    }

    /// Ends the command of a container, if the handler is one.
    async fn runs(&self, handler: &str) {
        if handler == CONTAINER {
            self.machine.finish(TaskOutcome::Exited { exit_code: 0 }, "posted", "").await;
        }
    }

    /// Number of effects that a handler had, as its receiver counts them.
    async fn effects(&self, handler: &str) -> usize {
        match handler {
            WEBHOOK => self.outbound.keys().len(),
            TOOL => self.children.calls("fs.write"),
            CONTAINER => self.machine.assigned().len(),
            _ => {
                let all = self.as_operator("aegis.task.list", json!({})).await.expect("listed");
                let all = all["executions"].as_array().expect("rows").clone();
                all.iter().filter(|row| row["agent"] == "next").count()
            }
        }
    }
}

/// A webhook passes no policy of its own when it is sent.
#[tokio::test]
async fn nobody_hands_on_more_than_the_session_may_not_by_a_fork_nor_by_another_agent() {
    let stage = Stage::handing(WEBHOOK).await;
    let id = stage.begun("work").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    let through = super::manifest("through", "1.0.0", "Hand it on.")
        + "\n  output_handler: { type: agent, agent_id: worker }\n";
    stage.good("create", json!({ "manifest_yaml": through })).await;
    stage.machines.deny("web.fetch");
    for (tool, args) in [
        ("aegis.task.execute", json!({ "agent_id": "worker", "intent": "work" })),
        ("aegis.task.execute", json!({ "agent_id": "through", "intent": "work" })),
        ("agent_fork", json!({ "execution_id": id, "at": { "iteration": 1 } })),
    ] {
        let refused = stage.refused(tool, args.clone()).await;
        assert_eq!(refused.code, "handler_denied", "{tool} {args}: {refused}");
    }
    assert_eq!(stage.outbound.sent().len(), 1);
}

#[tokio::test]
async fn an_output_is_handed_on_before_the_end_by_each_kind_of_handler() {
    for handler in [WEBHOOK, AGENT, TOOL, CONTAINER] {
        let stage = Stage::handing(handler).await;
        let id = stage.begun("work").await;
        stage.runs(handler).await;
        let end = stage.end(&id).await;
        assert_eq!(
            (&end["status"], &end["last_output"]),
            (&json!("completed"), &json!("\"Done\"")),
            "{handler}: {end}"
        );
        let events = stage.closed(&id).await;
        // An end of the handler's agent may be told before or behind the end of its parent.
        let is_own = |it: &&str| !it.starts_with("child_") && *it != "relatives_informed";
        let told: Vec<_> = types(&events)[4..].iter().copied().filter(is_own).collect();
        let expected =
            ["handler_started", "handler_completed", "execution_completed", "session_closed"];
        assert_eq!(told, expected, "{handler}");
        assert_eq!(stage.effects(handler).await, 1, "{handler}");
        match handler {
            WEBHOOK => {
                let request = stage.outbound.sent().remove(0);
                let body = (request.method.as_str(), request.body.as_str());
                assert_eq!(body, ("POST", "{\"said\": \"\\\"Done\\\"\"}"));
                assert_eq!(
                    (request.key, &*request.headers["x-team"]),
                    (format!("{id}-1-1-0"), "core")
                );
                assert!(!json!(events).to_string().contains("a.example"), "it may have a token");
            }
            AGENT => {
                let asked = stage.models.asked().remove(1);
                let text = format!("{:?}", asked.messages[0]);
                assert!(text.contains("User: Go on from"), "{text}");
                assert!(types(&events).contains(&"child_started"), "{events:?}");
            }
            TOOL => {
                let asked = stage.models.asked().remove(0);
                assert!(asked.tools.iter().any(|tool| tool.name == "fs_write"), "it has the tool");
            }
            _ => {
                let task = stage.machine.assigned().remove(0);
                let command = "printf %s '\"Done\"' | 'post' 'it'\\''s'";
                assert_eq!(task.command, command);
            }
        }
    }
}

/// Wherever the daemon dies the handler has its effect once; one without a key at most once, and that is told.
#[tokio::test]
async fn a_daemon_that_dies_at_any_record_of_a_handler_does_nothing_twice() {
    for handler in [WEBHOOK, AGENT, TOOL, CONTAINER] {
        let stage = Stage::handing(handler).await;
        let id = stage.begun("work").await;
        stage.runs(handler).await;
        stage.closed(&id).await;
        let parsed: ExecutionId = id.parse().expect("an id");
        let stream = log::stream::<ExecutionState>(parsed).expect("a name");
        let records = log::read_records::<ExecutionState>(&stage.rig.daemon.journal, &stream).await;
        let records = records.expect("read");
        let is_first = |record: &Record| matches!(record, Record::After { .. });
        let first = records.iter().position(is_first).expect("it is handed on");
        for kept in first..=records.len() {
            let stage_of = |record: &Record| match record {
                Record::After { about, .. } => Some(about.stage.clone()),
                _ => None,
            };
            let stages: Vec<_> = records[..kept].iter().filter_map(stage_of).collect();
            let done = matches!(stages.last(), Some(AfterStage::Done { .. }));
            let cut = matches!(stages.last(), Some(AfterStage::Begun { .. }));
            let mut again = Stage::handing(handler).await;
            write(&again, parsed, &records[..kept]).await;
            let session = opened(&records[..kept]);
            again.children.adopt(again.rig.session, &id, session, &TOOLS);
            again.rig = again.rig.crashed().await;
            if !done {
                again.runs(handler).await;
            }
            let status = if cut && handler == TOOL { "failed" } else { "completed" };
            eventually("it is over", async || {
                let asked = json!({ "execution_id": id });
                let state = again.as_operator("aegis.task.status", asked).await;
                state.is_ok_and(|state| state["status"] == status)
            })
            .await;
            let lost = cut && handler == TOOL;
            let most = usize::from(!done && !lost);
            assert_eq!(again.effects(handler).await, most, "{handler} at {kept}");
        }
    }
}

#[tokio::test]
async fn a_failure_is_tried_again_with_bounds_and_fails_only_what_requires_it() {
    let handler = |required: bool| {
        format!(
            "{{ type: webhook, url: 'http://a', retry: {{ max_attempts: 3, backoff: 1ms }}, required: {required} }}"
        )
    };
    for (failures, passing, required, status, sent) in [
        (2, true, true, "completed", 3),
        (9, true, true, "failed", 3),
        (9, true, false, "completed", 3),
        (9, false, true, "failed", 1),
    ] {
        let stage = Stage::handing(&handler(required)).await;
        stage.outbound.play(move |_, nth| match nth < failures {
            true => Err(if passing { refused().retryable() } else { refused() }),
            false => Ok(()),
        });
        let id = stage.begun("work").await;
        let end = stage.end(&id).await;
        assert_eq!((&end["status"], stage.outbound.sent().len()), (&json!(status), sent));
        assert_eq!(stage.outbound.keys().len(), 1, "one key for all attempts");
        let events = stage.closed(&id).await;
        let count = |kind| types(&events).iter().filter(|it| **it == kind).count();
        let gave_up = usize::from(failures == 9);
        assert_eq!(count("handler_failed"), gave_up);
        assert_eq!(count("handler_retried"), sent - 1);
        if status == "failed" {
            assert_eq!(end["error_code"], "output_handler_failed");
            assert!(end["last_error"].as_str().expect("text").contains("410"), "{end}");
        }
    }
}

const RECEIVERS: &str = "  execution:\n    delivery:\n      destinations:\n      \
    - { name: good, condition: on_success, webhook: { url: 'https://good' } }\n      \
    - { name: bad, condition: on_failure, rest: { url: 'https://bad', method: PUT } }\n      \
    - { name: all, webhook: { url: 'https://all', body: '{{status}} {{agent}}: {{error}}' } }\n";

#[tokio::test]
async fn receivers_are_told_behind_the_end_by_its_kind_and_change_nothing() {
    let stage = Stage::with_worker(RECEIVERS).await;
    stage.models.answer(|_| says("Done.", &[]));
    stage.outbound.play(|request, _| match request.url.ends_with("all") {
        true => Err(refused()),
        false => Ok(()),
    });
    let urls = |stage: &Stage| {
        stage.outbound.sent().into_iter().map(|it| (it.method, it.url)).collect::<Vec<_>>()
    };
    let of = |method: &str, url: &str| (method.to_owned(), format!("https://{url}"));
    let id = stage.begun("work").await;
    assert_eq!(stage.end(&id).await["status"], "completed");
    let events = stage.closed(&id).await;
    let told = ["delivery_started", "delivery_completed", "delivery_started", "delivery_failed"];
    assert_eq!(
        types(&events)[4..],
        [&["execution_completed"][..], &told, &["session_closed"]].concat()
    );
    assert_eq!(urls(&stage), [of("POST", "good"), of("POST", "all")]);
    let [good, all] = &stage.outbound.sent()[..] else { panic!("two") };
    let body: Value = serde_json::from_str(&good.body).expect("JSON");
    assert_eq!((&body["output"], &body["execution_id"]), (&json!("Done."), &json!(id)));
    assert_eq!(all.body, "completed worker: ");

    stage.models.answer(|_| Err(ToolError::internal("the wire is cut")));
    let id = stage.begun("fail").await;
    stage.closed(&id).await;
    assert_eq!(urls(&stage)[2..], [of("PUT", "bad"), of("POST", "all")]);
    assert!(stage.outbound.sent()[3].body.contains("the wire is cut"));
    stage.models.be_silent(true);
    let id = stage.begun("cancel").await;
    stage.good("aegis.task.cancel", json!({ "execution_id": id })).await;
    stage.closed(&id).await;
    assert_eq!(urls(&stage).len(), 4, "whoever cancels it knows");

    let chat = json!({ "agent_id": "worker", "chat": true });
    let refused = stage.refused("aegis.task.execute", chat).await;
    assert_eq!(refused.code, "agent_field_unsupported");
}

#[tokio::test]
async fn what_cannot_be_obeyed_is_told_by_its_field_before_anything_is_begun() {
    for (spec, field) in [
        ("  output_handler: { type: agent, agent_id: nobody }\n", "spec.output_handler"),
        ("  output_handler: { type: agent, agent_id: worker }\n", "spec.output_handler"),
        ("  output_handler: { type: mcp_tool, tool_name: fs.raed }\n", "spec.output_handler"),
        (
            "  output_handler: { type: webhook, url: 'http://a', body_template: '{{outptu}}' }\n",
            "spec.output_handler.body_template",
        ),
        (
            "  output_handler: { type: webhook, url: 'http://a', headers: { a: 'secret:b' } }\n",
            "spec.output_handler.headers.a",
        ),
        (
            "  output_handler: { type: webhook, url: 'http://a', retry: { max_attempts: 50 } }\n",
            "spec.output_handler.retry",
        ),
        (
            "  execution: { delivery: { destinations: [{ name: a, sms: { to: '1' } }] } }\n",
            "spec.execution.delivery.destinations[0].sms",
        ),
        (
            "  execution: { delivery: { destinations: [{ name: a, email: { to: a@b.c } }] } }\n",
            "spec.execution.delivery.destinations[0].email",
        ),
        (
            "  execution: { delivery: { destinations: [{ name: a, rest: { uri: 'http://a' } }] } }\n",
            "spec.execution.delivery.destinations[0].rest",
        ),
    ] {
        let stage = Stage::with_worker(spec).await;
        stage.models.answer(|_| says("Done.", &[]));
        let refused = stage.refused("aegis.task.execute", json!({ "agent_id": "worker" })).await;
        let told = format!("{} {}", refused.message, json!(refused.details));
        assert!(
            told.contains(&format!("{field}\"")) || told.contains(&format!("`{field}`")),
            "{spec}: {told}"
        );
        assert_eq!(stage.good("aegis.task.list", json!({})).await["total"], 0, "{spec}");
    }
}

#[test]
fn the_guides_receivers_are_planned() {
    let guide = include_str!("../../../../docs/guides/agents-after.md");
    let block = |from: &str, to: &str| {
        let rest = guide.split(from).nth(1).expect("the guide has one");
        rest.split(to).next().expect("it ends").to_owned()
    };
    let manifest = block("cat > reporter.yaml <<'END'\n", "END\n");
    let delivery = block("```yaml\n", "```").replace('\n', "\n  ");
    let manifest = parse_agent(&format!("{manifest}  {delivery}\n")).expect("valid");
    let options = Options {
        smtp: Some(SmtpOptions {
            host: "a".to_owned(),
            port: None,
            security: SmtpSecurity::Tls,
            from: "a@b.c".to_owned(),
            user: None,
            password_file: None,
            ca_file: None,
            receivers: None,
            receivers_per_hour: NonZeroU32::MIN,
        }),
        ..Options::default()
    };
    let plan = ExecutionPlan::of(AgentId::new(), manifest, ExecutionRequest::default(), &options);
    let jobs = plan.expect("planned").after.0;
    let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["mcp_tool", "team", "owner"]);
}

#[tokio::test]
async fn a_transform_makes_the_message_and_a_mail_goes_to_the_operators_server() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client");
        let (read, mut write) = stream.into_split();
        let (mut lines, mut said, mut in_data) = (BufReader::new(read).lines(), Vec::new(), false);
        write.write_all(b"220 test\r\n").await.expect("said");
        while let Ok(Some(line)) = lines.next_line().await {
            let answer = match line.split(' ').next().unwrap_or_default() {
                "." => {
                    in_data = false;
                    "250 taken\r\n"
                }
                _ if in_data => "",
                "EHLO" => "250 test\r\n",
                "DATA" => {
                    in_data = true;
                    "354 go on\r\n"
                }
                "QUIT" => break,
                _ => "250 ok\r\n",
            };
            said.push(line);
            write.write_all(answer.as_bytes()).await.expect("said");
        }
        said.join("\n")
    });
    let spec = "  execution: { delivery: { destinations: [{ name: me, transform: { script: ./short.sh, args: [-n] }, \
        email: { to: [a@example.org], subject: 'About {{agent}}' } }] } }\n";
    let mut stage = Stage::with_worker(spec).await;
    stage.rig.options.smtp = Some(SmtpOptions {
        host: "127.0.0.1".to_owned(),
        port: Some(port),
        security: SmtpSecurity::None,
        from: "hivekeep@example.com".to_owned(),
        user: None,
        password_file: None,
        ca_file: None,
        receivers_per_hour: NonZeroU32::MIN,
        receivers: Some(["*@example.org", "me@example.net"].map(str::to_owned).to_vec()),
    });
    stage.rig = stage.rig.crashed().await;
    stage.models.answer(|_| says("A long text.", &[]));
    let id = stage.begun("work").await;
    stage.machine.finish(TaskOutcome::Exited { exit_code: 0 }, "A text.", "").await;
    let events = stage.closed(&id).await;
    assert!(types(&events).contains(&"delivery_completed"), "{events:?}");
    let task = stage.machine.assigned().remove(0);
    assert_eq!(task.command, "printf %s 'A long text.' | './short.sh' '-n'");
    let said = server.await.expect("it ends");
    for line in [
        "MAIL FROM:<hivekeep@example.com>",
        "RCPT TO:<a@example.org>",
        "Subject: About worker",
        "A text.",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(said.contains(&format!("Message-ID: <{id}-1-1-0@example.com>")), "{said}");

    let smtp = stage.rig.options.smtp.as_ref().expect("set");
    let admits = |to: &str| smtp.admit(&[to.to_owned()]).is_ok();
    assert!(admits("A@Example.org") && admits("ME@example.net"));
    for to in ["you@example.net", "a@example.org.example.com", "a@b@example.com", "example.org", ""]
    {
        assert!(!admits(to), "{to}");
    }
    stage.rig.options.smtp.as_mut().expect("set").receivers = Some(Vec::new());
    stage.rig = stage.rig.crashed().await;
    let denied = stage.call("aegis.task.execute", json!({ "agent_id": "worker" })).await;
    assert_eq!(denied.expect_err("denied").code, "handler_denied");
}
