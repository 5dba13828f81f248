//! Fakes of the ports: a model that answers by the conversation, and sessions whose tools count their calls. Both
//! outlive a daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use hivekeep_kernel::{Effect, EffectKey, Layer, SessionId, ToolError, User, codes, lock};
use hivekeep_ports::{
    ChildAnswer, ChildCall, ChildSession, ChildSessions, ChildTool, ConfiguredModel, EmbedRequest,
    Embeddings, ModelAnswer, ModelMessage, ModelRequest, ModelSource, ModelStop, ModelStream,
    ModelToolCall, ModelUsage, ModelUse, Models,
};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};

type Script = dyn Fn(&ModelRequest) -> Result<ModelAnswer, ToolError> + Send + Sync;

/// Models that answer as a script says.
#[derive(Clone, Default)]
pub(super) struct FakeModels(Arc<Mutex<ModelsState>>);

#[derive(Default)]
struct ModelsState {
    script: Option<Arc<Script>>,
    asked: Vec<ModelRequest>,
    /// Never answers while it is set.
    silent: bool,
    /// Estimate of the cost of a request.
    price: Option<u64>,
}

impl FakeModels {
    /// Sets the script.
    pub(super) fn answer(
        &self,
        script: impl Fn(&ModelRequest) -> Result<ModelAnswer, ToolError> + Send + Sync + 'static,
    ) {
        lock(&self.0).script = Some(Arc::new(script));
    }

    /// Requests so far, whose answers were given.
    pub(super) fn asked(&self) -> Vec<ModelRequest> {
        lock(&self.0).asked.clone()
    }

    /// Number of those.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).asked.len()
    }

    pub(super) fn cost(&self, micro_usd: Option<u64>) {
        lock(&self.0).price = micro_usd;
    }

    pub(super) fn be_silent(&self, silent: bool) {
        lock(&self.0).silent = silent;
    }
}

/// An answer with a text, and calls by name and arguments.
pub(super) fn says(text: &str, calls: &[(&str, Value)]) -> Result<ModelAnswer, ToolError> {
    let call = |(nth, (name, arguments)): (usize, &(&str, Value))| ModelToolCall {
        id: format!("call_{nth}"),
        name: (*name).to_owned(),
        arguments: arguments.clone(),
        signature: None,
    };
    let source = ModelSource {
        provider: "fake".to_owned(),
        provider_kind: "scripted",
        model: "m".to_owned(),
    };
    Ok(ModelAnswer {
        source,
        text: text.to_owned(),
        calls: calls.iter().enumerate().map(call).collect(),
        structured: None,
        stop: if calls.is_empty() { ModelStop::End } else { ModelStop::ToolCalls },
        usage: ModelUsage { input_tokens: 10, output_tokens: 5, ..ModelUsage::default() },
        attempts: 1,
        failed: Vec::new(),
    })
}

/// Number of answers that a conversation has.
pub(super) fn turns(request: &ModelRequest) -> usize {
    let is_answer = |message: &&ModelMessage| matches!(message, ModelMessage::Assistant { .. });
    request.messages.iter().filter(is_answer).count()
}

#[async_trait]
impl Models for FakeModels {
    fn configured(&self) -> Vec<ConfiguredModel> {
        Vec::new()
    }

    fn resolve(&self, name: &str, _: ModelUse) -> Result<Vec<ModelSource>, ToolError> {
        match lock(&self.0).script.is_some() {
            true if name == "other" => {
                Ok(vec![ModelSource { model: name.to_owned(), ..says("", &[])?.source }])
            }
            true => Ok(vec![says("", &[])?.source]),
            false => Err(ToolError::foreign(Layer::Actor, "llm_not_configured", "no model is set")),
        }
    }

    /// Estimate of each request: the answers of a script are never larger.
    fn worst_case(&self, request: &ModelRequest) -> Result<ModelUsage, ToolError> {
        let input_tokens = 10 * request.messages.len() as u64;
        let usage = ModelUsage { input_tokens, output_tokens: 10, ..ModelUsage::default() };
        Ok(ModelUsage { estimated: true, cost_micro_usd: lock(&self.0).price, ..usage })
    }

    fn stream(&self, request: ModelRequest) -> Result<ModelStream, ToolError> {
        let mut state = lock(&self.0);
        let (_, deltas) = mpsc::channel(1);
        let (end, answer) = oneshot::channel();
        if state.silent {
            // Held open until whoever asks has gone, or the time is over.
            tokio::spawn(async move {
                let mut end = end;
                tokio::select! {
                    () = end.closed() => {}
                    () = tokio::time::sleep_until(request.deadline) => {
                        let _gone = end.send(Err(ToolError::deadline(Layer::Actor, 0)));
                    }
                }
            });
            return Ok(ModelStream::new(deltas, answer));
        }
        let script = state.script.clone().expect("a script");
        state.asked.push(request.clone());
        drop(state);
        let _the_asker_may_have_gone = end.send(script(&request));
        Ok(ModelStream::new(deltas, answer))
    }

    async fn embed(&self, _: EmbedRequest) -> Result<Embeddings, ToolError> {
        Err(ToolError::internal("nothing is embedded"))
    }
}

/// Child sessions with the tools `fs.read` (read), `fs.write` (write, alone), `hold` and `hold.read` (write and read,
/// which wait) and `deny` (denied).
#[derive(Clone, Default)]
pub(super) struct FakeChildren(Arc<ChildrenState>);

#[derive(Default)]
struct ChildrenState {
    sessions: Mutex<BTreeMap<(SessionId, String), (SessionId, ChildSession)>>,
    /// Sessions of users, by their names.
    owned: Mutex<BTreeMap<(User, String), SessionId>>,
    ended: Mutex<Vec<SessionId>>,
    /// Sessions with a call that waits for an approval.
    asking: Mutex<BTreeSet<SessionId>>,
    /// Ends of sessions fail.
    keeps: AtomicBool,
    /// Tools that were called, with their arguments.
    calls: Mutex<Vec<(String, Value)>>,
    /// Keys under which `cmd.run` began, each with how often: what a guest knows.
    effects: Mutex<BTreeMap<String, usize>>,
    /// Error of a call that is made again and that no guest knows.
    refusal: Mutex<Option<ToolError>>,
    /// Pages and files to read, by address or path.
    material: Mutex<BTreeMap<String, String>>,
    /// Waits of `hold` end when it is told.
    release: Notify,
}

impl FakeChildren {
    pub(super) fn calls(&self, tool: &str) -> usize {
        lock(&self.0.calls).iter().filter(|(name, _)| name == tool).count()
    }

    /// Calls that were made, with their arguments.
    pub(super) fn made(&self) -> Vec<(String, Value)> {
        lock(&self.0.calls).clone()
    }

    pub(super) fn opened(&self) -> Vec<(SessionId, ChildSession)> {
        lock(&self.0.sessions).values().cloned().collect()
    }

    /// Sessions that were opened for users.
    pub(super) fn owned(&self) -> Vec<(User, SessionId)> {
        lock(&self.0.owned).iter().map(|((user, _), session)| (*user, *session)).collect()
    }

    pub(super) fn ended(&self) -> Vec<SessionId> {
        lock(&self.0.ended).clone()
    }

    /// Has a session that an earlier daemon opened.
    pub(super) fn adopt(
        &self,
        parent: SessionId,
        name: &str,
        session: Option<SessionId>,
        tools: &[&str],
    ) {
        let Some(session) = session else { return };
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let name = name.to_owned();
        let child = ChildSession { parent, name: name.clone(), agent: None, context: None, tools };
        lock(&self.0.sessions).insert((parent, name), (session, child));
    }

    pub(super) fn write(&self, name: &str, content: impl Into<String>) {
        lock(&self.0.material).insert(name.to_owned(), content.into());
    }

    /// Answer of a tool that reads pages or files; `None` for another call.
    fn read(&self, tool: &str, args: &Map<String, Value>) -> Option<Result<Value, ToolError>> {
        let material = lock(&self.0.material);
        if tool == "fs.glob" {
            let below = args["path"].as_str()?;
            let paths: Vec<_> = material.keys().filter(|it| it.starts_with(below)).collect();
            return Some(Ok(json!({ "paths": paths, "left": 0 })));
        }
        let (name, room) = match tool {
            "web.fetch" => (args.get("url")?, args.get("max_bytes")?),
            _ => (args.get("path")?, args.get("limit")?),
        };
        let file = material.get(name.as_str()?);
        if file.is_none() && tool == "fs.read" {
            let gone = ToolError::new(Layer::Actor, codes::NOT_FOUND, "there is no such file");
            return Some(Err(gone));
        }
        let (ok, text) = (file.is_some(), file.cloned().unwrap_or_default());
        let end = text.floor_char_boundary(usize::try_from(room.as_u64()?).ok()?);
        let next = (end < text.len()).then_some(end);
        Some(Ok(json!({ "content": text[..end], "size_bytes": text.len(), "next_offset": next,
            "ok": ok, "status": if ok { 200 } else { 404 } })))
    }

    /// Keys under which `cmd.run` began, each with how often.
    /// Sets the error of calls that are made again and that no guest knows.
    pub(super) fn refuse_again(&self, refusal: ToolError) {
        *lock(&self.0.refusal) = Some(refusal);
    }

    pub(super) fn effects(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        lock(&self.0.effects)
    }

    /// Has a call of a session wait for an approval.
    pub(super) fn asks(&self, session: SessionId) {
        lock(&self.0.asking).insert(session);
    }

    pub(super) fn end_none(&self) {
        self.0.keeps.store(true, SeqCst);
    }

    pub(super) fn release(&self) {
        self.0.release.notify_waiters();
    }
}

const TOOLS: [(&str, &str, Effect, bool); 8] = [
    ("web_fetch", "web.fetch", Effect::Read, true),
    ("fs_glob", "fs.glob", Effect::Read, true),
    ("cmd_run", "cmd.run", Effect::Write, false),
    ("fs_read", "fs.read", Effect::Read, true),
    ("fs_write", "fs.write", Effect::Write, false),
    ("hold", "hold", Effect::Write, true),
    ("hold_read", "hold.read", Effect::Read, true),
    ("deny", "deny", Effect::Write, true),
];

#[async_trait]
impl ChildSessions for FakeChildren {
    async fn open(&self, child: ChildSession) -> Result<SessionId, ToolError> {
        let mut sessions = lock(&self.0.sessions);
        let key = (child.parent, child.name.clone());
        Ok(sessions.entry(key).or_insert_with(|| (SessionId::new(), child)).0)
    }

    async fn open_for(&self, user: User, name: &str) -> Result<SessionId, ToolError> {
        let mut owned = lock(&self.0.owned);
        Ok(owned.entry((user, name.to_owned())).or_insert_with(SessionId::new).to_owned())
    }

    fn tools(&self, child: SessionId) -> Result<Vec<ChildTool>, ToolError> {
        let sessions = lock(&self.0.sessions);
        let (_, asked) = sessions.values().find(|(id, _)| *id == child).expect("it is open");
        let has = |(name, declared, effect, safe): (&str, &'static str, Effect, bool)| {
            asked.tools.contains(declared).then(|| ChildTool {
                name: name.to_owned(),
                declared,
                description: format!("Does {name}."),
                input_schema: json!({ "type": "object" }),
                effect,
                concurrency_safe: safe,
            })
        };
        Ok(TOOLS.into_iter().filter_map(has).collect())
    }

    async fn call(&self, call: ChildCall) -> Result<ChildAnswer, ToolError> {
        let ChildCall { tool, args, cancel, effect, .. } = call;
        if let Some(EffectKey { key, again }) = effect {
            let mut effects = lock(&self.0.effects);
            let began = effects.contains_key(&key);
            match tool.as_str() {
                "cmd.run" if again && began => {
                    let value = json!({ "exit_code": 0, "stdout": "from the guest", "stderr": "" });
                    return Ok(ChildAnswer { value, from_source: false });
                }
                _ if again => {
                    let refusal = lock(&self.0.refusal).clone();
                    return Err(refusal.unwrap_or_else(|| ToolError::effect_unknown(Layer::Guest)));
                }
                "cmd.run" => *effects.entry(key).or_default() += 1,
                _ => {}
            }
        }
        lock(&self.0.calls).push((tool.clone(), Value::Object(args.clone())));
        let released = self.0.release.notified();
        let held = args.get("title").is_some_and(|title| title == "hold");
        match tool.as_str() {
            tool if held || ["hold", "hold.read"].contains(&tool) => tokio::select! {
                () = released => {}
                () = cancel.cancelled() => return Err(ToolError::cancelled()),
            },
            "deny" => {
                return Err(ToolError::foreign(Layer::Policy, "denied", "it is denied"));
            }
            _ => {}
        }
        if let Some(read) = self.read(&tool, &args) {
            return read.map(|value| ChildAnswer { value, from_source: false });
        }
        if args.contains_key("fail") {
            return Err(ToolError::new(Layer::Actor, codes::NOT_FOUND, "there is no such file")
                .next("look first"));
        }
        if let Some(exit) = args.get("exit") {
            let value = json!({ "exit_code": exit, "stdout": "", "stderr": args.get("stderr") });
            return Ok(ChildAnswer { value, from_source: false });
        }
        let bytes = args.get("bytes").and_then(Value::as_u64).unwrap_or(0);
        let value =
            json!({ "did": tool, "text": "ä".repeat(usize::try_from(bytes).expect("small")) });
        Ok(ChildAnswer { value, from_source: false })
    }

    fn agents_above(&self, session: SessionId) -> Vec<SessionId> {
        let sessions = lock(&self.0.sessions);
        let parent = |id: &SessionId| {
            sessions.values().find(|(child, _)| child == id).map(|(_, child)| child.parent)
        };
        let all: Vec<_> = std::iter::successors(Some(session), parent).collect();
        // The last is a person's.
        all[..all.len() - 1].to_vec()
    }

    fn awaiting_approval(&self) -> BTreeSet<SessionId> {
        lock(&self.0.asking).clone()
    }

    async fn end(&self, child: SessionId) -> Result<(), ToolError> {
        if self.0.keeps.load(SeqCst) {
            return Err(ToolError::new(Layer::Session, codes::JOURNAL_FAILED, "not written"));
        }
        lock(&self.0.ended).push(child);
        Ok(())
    }
}
