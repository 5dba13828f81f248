//! Code in an interpreter that stands in for the real one.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use hivekeep_kernel::{CallCx, Layer, WorkspaceId};
use hivekeep_ports::{ByteStream, ProcessSpan, ProcessState, WorkspacePorts};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{Answer, ToolError, code, fake::Stage, restricted};
use crate::Options;

/// A port that is open, or opens the second time that it is asked; requests and answers in order.
#[derive(Default)]
pub(super) struct Port {
    opens_late: AtomicBool,
    is_closed: AtomicBool,
    answers: Mutex<Vec<(u16, String)>>,
    asked: std::sync::Arc<Mutex<Vec<String>>>,
}

impl Port {
    fn closed(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    fn opens_late(&self) {
        self.is_closed.store(false, Ordering::SeqCst);
        self.opens_late.store(true, Ordering::SeqCst);
    }

    fn answers(&self, answers: &[(u16, Value)]) {
        let lines = |value: &Value| match value {
            Value::Array(lines) => lines.iter().map(|line| format!("{line}\n")).collect(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let answers = answers.iter().rev().map(|(status, body)| (*status, lines(body)));
        *self.answers.lock().expect("lock") = answers.collect();
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("lock"))
    }
}

#[async_trait]
impl WorkspacePorts for Port {
    async fn dial(&self, _: &CallCx, _: WorkspaceId, port: u16) -> Answer<Box<dyn ByteStream>> {
        assert_eq!(port, 49_999);
        let is_late = self.opens_late.swap(false, Ordering::SeqCst);
        if is_late || self.is_closed.load(Ordering::SeqCst) {
            return Err(ToolError::foreign(Layer::Guest, "port_closed", "nothing listens"));
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let answer = self.answers.lock().expect("lock").pop();
        tokio::spawn(serve(theirs, answer, self.asked.clone()));
        Ok(Box::new(ours))
    }

    async fn dial_forward(
        &self,
        _: WorkspaceId,
        _: u16,
        _: Duration,
    ) -> Answer<Box<dyn ByteStream>> {
        panic!("code needs no forward")
    }

    async fn wake(&self, _: WorkspaceId, _: Duration) -> Answer<()> {
        panic!("code comes by no packet")
    }
}

/// Reads a request to its end and writes an answer; without one it is silent.
async fn serve(
    mut stream: DuplexStream,
    answer: Option<(u16, String)>,
    asked: std::sync::Arc<Mutex<Vec<String>>>,
) {
    let mut read = String::new();
    let mut piece = [0; 1024];
    while !read.contains("\r\n\r\n") || !read.trim_end().ends_with('}') {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.push_str(std::str::from_utf8(&piece[..count]).expect("text")),
        }
    }
    let (head, body) = read.split_once("\r\n\r\n").expect("a head");
    let line = head.lines().next().expect("a line").trim_end_matches(" HTTP/1.1");
    asked.lock().expect("lock").push(format!("{line} {body}"));
    let Some((status, body)) = answer else {
        return std::future::pending().await;
    };
    let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let _gone = stream.write_all(text.as_bytes()).await;
}

fn said(text: &str) -> ProcessSpan {
    let end = text.len() as u64;
    ProcessSpan { from: 0, bytes: text.into(), end, total_bytes: end }
}

#[tokio::test]
async fn code_is_run_and_what_it_shows_is_told() {
    let stage = Stage::new(Options::default()).await;
    stage.port.answers(&[
        (409, json!("there is one already")),
        (200, json!({})),
        (
            200,
            json!([
                { "type": "number_of_executions", "execution_count": 2 },
                { "type": "stdout", "text": "out", "timestamp": 1 },
                { "type": "result", "is_main_result": true, "text": "5" },
                { "type": "error", "name": "E", "value": "v", "traceback": "t" },
            ]),
        ),
    ]);
    let args = json!({ "code": "x", "context": "c", "restart": true, "env": { "A": "1" } });
    let run = stage.call("run_code", args).await.expect("an exception is a result");
    assert_eq!((&run["stdout"], &run["execution_count"]), (&json!("out"), &json!(2)));
    assert_eq!(run["results"], json!([{ "is_main_result": true, "text": "5" }]));
    assert_eq!((&run["error"]["name"], &run["place"]), (&json!("E"), &json!("own")));
    let asked = stage.port.asked();
    let made = asked[0].strip_prefix("POST /contexts ").expect("the context is made first");
    let made: Value = serde_json::from_str(made).expect("JSON");
    assert_eq!(made, json!({ "id": "c", "language": "python", "cwd": "/root-of-own" }));
    assert_eq!(asked[1], "POST /contexts/c/restart {}");
    assert!(asked[2].starts_with("POST /execute ") && asked[2].contains(r#""env_vars":{"A":"1"}"#));
    assert!(stage.fake.was_idle(), "the port was open");

    stage.port.answers(&[(400, json!("the language `r` is not there"))]);
    let refused = stage.call("run_code", json!({ "code": "x", "language": "r" })).await;
    assert_eq!(refused.expect_err("refused").code, "invalid_input");
    for answer in [(500, json!("broken")), (200, json!("no JSON"))] {
        stage.port.answers(&[answer]);
        assert_eq!(code(&stage, "run_code", json!({ "code": "x" })).await, "interpreter_failed");
    }
}

#[tokio::test]
async fn code_that_takes_too_long_is_left_alone() {
    let stage = Stage::new(Options::default()).await;
    assert_eq!(
        code(&stage, "run_code", json!({ "code": "x", "timeout_secs": 1 })).await,
        "command_timed_out"
    );
}

#[tokio::test]
async fn the_interpreter_is_started_where_nothing_listens() {
    let stage = Stage::new(Options::default()).await;
    stage.port.opens_late();
    stage.fake.wrote(said("listening\n"), ProcessSpan::default());
    stage.call("run_code", json!({ "code": "" })).await.expect("started");
    let started = stage.fake.started().command;
    assert_eq!((started.user.as_deref(), &*started.workdir), (Some("user"), "/root-of-own"));
    assert!(stage.port.asked().is_empty(), "there was no code");

    for (exit, expected) in [(127, "no_interpreter"), (1, "interpreter_failed")] {
        stage.port.closed();
        stage.fake.wrote(ProcessSpan::default(), said("why"));
        stage.fake.starts_as(ProcessState::Exited(exit));
        let error = stage.call("run_code", json!({ "code": "" })).await.expect_err("it ended");
        assert_eq!((&*error.code, error.message.contains("why")), (expected, true));
    }

    stage.port.opens_late();
    stage.fake.has_no("/usr/lib/code-interpreter");
    assert_eq!(code(&stage, "run_code", json!({ "code": "" })).await, "no_interpreter");
}

#[tokio::test]
async fn code_is_judged_as_a_command_line_of_python() {
    let stage = Stage::new(restricted(&["git"], true)).await;
    assert_eq!(code(&stage, "run_code", json!({ "code": "" })).await, "command_not_allowed");
    let stage = Stage::new(restricted(&["python3"], false)).await;
    stage.call("run_code", json!({ "code": "" })).await.expect("allowed");
}
