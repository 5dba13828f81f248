//! Chats, pages and tools that answer what a test says.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{CallCx, Layer, SessionId, ToolError, User, codes};
use hivekeep_ports::{
    ChatEvents, ChatMessage, ChatPlan, ChatRole, ChatSession, ChatStatus, ChatStep, ChatStepStatus,
    Chats, InternalCall, PersonPages, Tools,
};
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::{Value, json};

use crate::{AssistantFamily, Options};

/// User of all sessions.
pub(super) const USER: User = User::Uid(7);

/// What the tools and the pages answer, and what they were asked.
#[derive(Default)]
pub(super) struct Daemon {
    pub(super) processes: Vec<Value>,
    /// Both streams of the one process that has an output.
    pub(super) output: [String; 2],
    pub(super) events: Vec<Value>,
    pub(super) repositories: Option<u64>,
    pub(super) connected: bool,
    pub(super) pages: usize,
    pub(super) visited: Vec<String>,
    pub(super) sessions: Vec<SessionId>,
}

#[derive(Default)]
pub(super) struct Fake {
    pub(super) daemon: Mutex<Daemon>,
    chats: Mutex<Vec<(SessionId, ChatSession, Vec<ChatMessage>)>>,
}

impl Fake {
    /// A family over it, with chats and pages or without.
    pub(super) async fn rig(self: Arc<Self>, offered: bool) -> Rig<AssistantFamily> {
        let (fake, tools) = (self.clone(), self);
        let offer = move |ports: &hivekeep_runtime::Ports| {
            if offered {
                ports.offer::<dyn Chats>(fake.clone());
                ports.offer::<dyn PersonPages>(fake.clone());
            }
        };
        let services =
            RigServices { sessions: Arc::new(FakeUsers::all(USER)), tools, offer: Arc::new(offer) };
        Rig::new(Options::default(), services).await
    }

    /// A chat as its agent moves it on.
    pub(super) fn chat(
        &self,
        id: &str,
        change: impl FnOnce(&mut ChatSession, &mut Vec<ChatMessage>),
    ) {
        let mut chats = self.chats.lock().expect("no panic");
        let (_, chat, messages) =
            chats.iter_mut().find(|(_, chat, _)| chat.id == id).expect("a chat");
        change(chat, messages);
    }

    /// Does something with a chat of the caller's, which here is the session.
    fn own<T>(
        &self,
        cx: &CallCx,
        id: &str,
        work: impl FnOnce(&mut ChatSession, &mut Vec<ChatMessage>) -> T,
    ) -> Result<Option<T>, ToolError> {
        let mut chats = self.chats.lock().expect("no panic");
        let own = chats.iter_mut().find(|(owner, chat, _)| *owner == cx.session && chat.id == id);
        Ok(own.map(|(_, chat, messages)| work(chat, messages)))
    }
}

pub(super) fn message(role: ChatRole, content: &str, timestamp: DateTime<Utc>) -> ChatMessage {
    ChatMessage { role, content: content.to_owned(), timestamp }
}

#[async_trait]
impl Chats for Fake {
    async fn open(&self, cx: &CallCx, name: &str) -> Result<ChatSession, ToolError> {
        let mut chats = self.chats.lock().expect("no panic");
        let chat = ChatSession {
            id: format!("exec_{}", chats.len()),
            name: name.to_owned(),
            status: ChatStatus::Waiting,
            created_at: Utc::now(),
        };
        chats.push((cx.session, chat.clone(), Vec::new()));
        Ok(chat)
    }

    async fn list(&self, cx: &CallCx) -> Result<Vec<ChatSession>, ToolError> {
        let chats = self.chats.lock().expect("no panic");
        let own = chats.iter().filter(|(owner, ..)| *owner == cx.session);
        Ok(own.map(|(_, chat, _)| chat.clone()).collect())
    }

    async fn send(
        &self,
        cx: &CallCx,
        chat: &str,
        text: &str,
    ) -> Result<Option<DateTime<Utc>>, ToolError> {
        self.own(cx, chat, |chat, messages| {
            let at = Utc::now();
            chat.status = ChatStatus::Running;
            messages.push(message(ChatRole::User, text, at));
            at
        })
    }

    async fn messages(
        &self,
        cx: &CallCx,
        chat: &str,
        limit: usize,
    ) -> Result<Option<Vec<ChatMessage>>, ToolError> {
        self.own(cx, chat, |_, messages| messages[messages.len().saturating_sub(limit)..].to_vec())
    }

    fn events(&self, _: User, _: &str, _: u64) -> Option<Box<dyn ChatEvents>> {
        None
    }

    async fn plan(&self, cx: &CallCx, chat: &str) -> Result<Option<ChatPlan>, ToolError> {
        self.own(cx, chat, |chat, _| ChatPlan {
            status: chat.status,
            steps: vec![ChatStep { name: "fs.read".to_owned(), status: ChatStepStatus::Running }],
        })
    }
}

impl PersonPages for Fake {
    fn connected(&self, user: User) -> bool {
        user == USER && self.daemon.lock().expect("no panic").connected
    }

    fn navigate(&self, user: User, path: &str) -> usize {
        assert_eq!(user, USER);
        let mut daemon = self.daemon.lock().expect("no panic");
        daemon.visited.push(path.to_owned());
        daemon.pages
    }
}

/// Bytes of each stream that the fake tells at once, of those that are kept.
const PART: usize = 16;
/// First byte of stdout that is kept.
pub(super) const LOST: usize = 5;

#[async_trait]
impl Tools for Fake {
    async fn call(
        &self,
        call: InternalCall,
        tool: &'static str,
        args: Value,
    ) -> Result<Value, ToolError> {
        let mut daemon = self.daemon.lock().expect("no panic");
        daemon.sessions.push(call.session);
        match tool {
            "process_list" => {
                let (all, most) = (&daemon.processes, args["limit"].as_u64().expect("a limit"));
                let from = all.len().saturating_sub(usize::try_from(most).expect("small"));
                Ok(json!({ "processes": all[from..], "total": all.len() }))
            }
            "process_output" => {
                let at =
                    |key: &str| usize::try_from(args[key].as_u64().expect(key)).expect("small");
                let [stdout, stderr] = &daemon.output;
                let (from, of_stderr) = (at("stdout_from").max(LOST), at("stderr_from"));
                let next = [stdout.len().min(from + PART), stderr.len().min(of_stderr + PART)];
                let stderr_part = &stderr[of_stderr..next[1]];
                Ok(json!({
                    "id": args["id"], "output": format!("{}{stderr_part}", &stdout[from..next[0]]),
                    "stderr": stderr_part, "stdout_next": next[0], "stderr_next": next[1],
                    "stdout_lost": from - at("stdout_from"), "stderr_lost": 0,
                    "more": next[0] < stdout.len() || next[1] < stderr.len(), "status": "running",
                }))
            }
            "event_list" => Ok(json!({ "events": daemon.events })),
            "aegis.git.list" => match daemon.repositories {
                Some(total) => Ok(json!({ "bindings": [], "total": total })),
                None => Err(ToolError::new(Layer::Policy, codes::NOT_OWNER, "it may not")),
            },
            _ => panic!("nothing calls {tool}"),
        }
    }
}

/// A process as `process_list` tells it.
pub(super) fn process(id: &str, line: &str, started_at: DateTime<Utc>, end: &Value) -> Value {
    let mut words = line.split(' ');
    let mut row = json!({
        "id": id, "pid": 1, "command": words.next(), "args": words.collect::<Vec<_>>(),
        "startedAt": started_at, "place": "app", "workspace_id": "ws_1", "dir": "/srv/app",
        "status": "running", "pty": false, "duration": TimeDelta::seconds(90).num_nanoseconds(),
    });
    for (key, value) in end.as_object().expect("an object") {
        row[key] = value.clone();
    }
    row
}
