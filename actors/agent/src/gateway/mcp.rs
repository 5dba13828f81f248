//! MCP server of a program: the tools of its execution, and nothing else. A call is a record of the execution, which
//! makes it as a model's: in its session, counted, judged, and once. The guest's shim repeats a request that was cut, by
//! the same number.

use hivekeep_kernel::{Layer, SessionId, ToolError};
use hivekeep_ports::{ChildTool, GuestHttpAnswer, GuestHttpRequest};
use hivekeep_runtime::{json_text, log::Decision};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Gateway, Utc};
use crate::{
    codes,
    execution::{
        state::{AskedCall, CallKey, ExecutionState, Record},
        turn::called_tool,
    },
};

/// Path of the gateway where it answers.
pub(super) const PATH: &str = "/mcp";
/// Header with the number of a request, which no other request of the execution has.
const NUMBER: &str = "x-hivekeep-request";
const MAX_NUMBER_BYTES: usize = 128;
/// Revisions whose `initialize` and tools are these; the last is told to a client of another.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-11-25", "2025-06-18"];

/// Errors of JSON-RPC.
const NOT_JSON: i32 = -32_700;
const NO_METHOD: i32 = -32_601;
const BAD_PARAMS: i32 = -32_602;

/// Request, or a notification.
#[derive(Deserialize)]
struct McpMessage {
    id: Option<Value>,
    method: String,
    #[serde(default)]
    params: Value,
}

/// Call of a tool.
#[derive(Deserialize)]
struct McpCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl Gateway {
    /// Answers a message. One that needs no answer has none.
    pub(super) async fn mcp(&self, request: &GuestHttpRequest) -> GuestHttpAnswer {
        let answer =
            |status, body: String| GuestHttpAnswer::whole(status, "application/json", body);
        let (id, answered) = match json_text::from_slice::<McpMessage>(&request.body) {
            Ok(McpMessage { id: None, .. }) => return answer(202, String::new()),
            Ok(McpMessage { id: Some(id), method, params }) => {
                (id, self.method(request, &method, params).await)
            }
            Err(error) => (Value::Null, Err((NOT_JSON, format!("not a message: {error:.200}")))),
        };
        let mut body = json!({ "jsonrpc": "2.0", "id": id });
        match answered {
            Ok(result) => body["result"] = result,
            Err((code, message)) => body["error"] = json!({ "code": code, "message": message }),
        }
        answer(200, body.to_string())
    }

    async fn method(
        &self,
        request: &GuestHttpRequest,
        method: &str,
        params: Value,
    ) -> Result<Value, (i32, String)> {
        match method {
            "initialize" => {
                let asked = params["protocolVersion"].as_str();
                let known = REVISIONS.iter().find(|known| asked == Some(known));
                let name = json!({ "name": "hivekeep", "version": env!("CARGO_PKG_VERSION") });
                Ok(json!({
                    "protocolVersion": known.unwrap_or(&REVISIONS[3]),
                    "capabilities": { "tools": {} }, "serverInfo": name,
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools = self.tools().map_err(|error| (BAD_PARAMS, error.to_text()))?;
                let listed = tools.iter().map(|tool| {
                    json!({ "name": tool.name, "description": tool.description,
                        "inputSchema": tool.input_schema })
                });
                Ok(json!({ "tools": listed.collect::<Value>() }))
            }
            "tools/call" => {
                let call = serde_json::from_value::<McpCall>(params)
                    .map_err(|error| (BAD_PARAMS, format!("not a call: {error:.200}")))?;
                let (text, is_error) = match self.called(request, call).await {
                    Ok(shown) => shown,
                    Err(error) => (error.to_text(), true),
                };
                let content = json!([{ "type": "text", "text": text }]);
                Ok(json!({ "content": content, "isError": is_error }))
            }
            other => Err((NO_METHOD, format!("`{other:.100}` is not a method of this server"))),
        }
    }

    /// Tools that its agent is offered.
    fn tools(&self) -> Result<Vec<ChildTool>, ToolError> {
        let mut tools = self.shared.children.tools(self.terms.child)?;
        self.records.view(|view| tools.retain(|tool| view.state.begun.plan.offers(tool)));
        Ok(tools)
    }

    /// Records a call, and waits for its end, which the execution records. One that is recorded is waited for.
    async fn called(
        &self,
        request: &GuestHttpRequest,
        McpCall { name, arguments }: McpCall,
    ) -> Result<(String, bool), ToolError> {
        let id = match request.header(NUMBER) {
            Some(number) if number.len() <= MAX_NUMBER_BYTES => number.to_owned(),
            Some(_) => return Err(ToolError::invalid("the request's number is too long")),
            None => SessionId::new().to_string(),
        };
        // Nothing holds it but this; the semaphore is never closed.
        let _one_at_a_time = self.calls.acquire().await;
        let mut news = self.records.watch();
        if self.records.view(|view| find(&view.state, &id).is_none()) {
            // A call before it that its program did not wait for.
            let _always: bool = news.wait_for(|view| !is_calling(&view.state)).await.is_ok();
            let tool = called_tool(&name, &self.tools()?);
            let arguments = if arguments.is_null() { json!({}) } else { arguments };
            let call = AskedCall { id: id.clone(), name, arguments, signature: None, tool };
            let decide = |state: &ExecutionState| {
                let (iteration, turn) = may_call(state)?;
                let call = Box::new(call);
                let record = Record::ProgramCalls { iteration, turn, call, at: Utc::now() };
                Ok(Decision::record(record))
            };
            self.records.decide::<ToolError>(decide).await?;
        }
        let gone = || ToolError::cancelled();
        let key = self.records.view(|view| find(&view.state, &id)).ok_or_else(gone)?;
        let ended = |state: &ExecutionState| {
            state.end.is_some() || state.call(key).is_none_or(|(_, end)| end.is_some())
        };
        // The handle keeps it open.
        let _always: bool = news.wait_for(|view| ended(&view.state)).await.is_ok();
        let state = self.records.state();
        let end = state.call(key).and_then(|(_, end)| end).ok_or_else(gone)?;
        Ok(end.shown())
    }
}

/// Place of the call of a number in the iteration that goes on.
fn find(state: &ExecutionState, id: &str) -> Option<CallKey> {
    let mut turns = state.iteration()?.turns.iter();
    let turn = turns.position(|turn| turn.answer.calls.iter().any(|call| call.id == id))?;
    Some((state.iterations.len() - 1, turn, 0))
}

/// Whether a call of a program has no end yet.
pub(super) fn is_calling(state: &ExecutionState) -> bool {
    let last = state.iteration().and_then(|iteration| iteration.turns.last());
    state.end.is_none() && last.is_some_and(|turn| turn.results.iter().any(Option::is_none))
}

/// Iteration and turn of the next call of a program.
///
/// # Errors
/// `turns_exhausted`; `cancelled` when its program has ended.
fn may_call(state: &ExecutionState) -> Result<(usize, usize), ToolError> {
    let running = state.iteration().filter(|it| it.program.is_none() && state.end.is_none());
    let turns = running.ok_or_else(ToolError::cancelled)?.turns.len();
    let most = state.begun.plan.limits.turns;
    if turns < most {
        return Ok((state.iterations.len() - 1, turns));
    }
    let message = format!("{most} calls were not enough");
    Err(ToolError::new(Layer::Quota, codes::TURNS_EXHAUSTED, message)
        .next("ask for less, or have the operator raise `agent.max_turns`"))
}
