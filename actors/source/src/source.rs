//! Actor of one source: keeps the loop that connects it, and takes calls. Each is sent, watched, and
//! its answer checked against the declaration.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{
    CallCx, Context, Entity, Fault, Layer, Responder, ToolCall, ToolError, TraceContext,
};
use rmcp::{
    ServiceError,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ContentBlock,
        CustomResult, RequestMetaObject, ServerResult,
    },
    service::PeerRequestOptions,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::{
    codes, connect, http,
    link::{Published, SourceConnection, SourceLink, SourceShared},
    list::ListedTools,
};

/// Longest text of a failed tool in an error.
const ERROR_CHARS: usize = 4_000;
/// Time to tell a server that nobody waits for an answer any more.
const TELLING: Duration = Duration::from_secs(1);

/// Message to a source.
#[derive(Debug)]
pub(crate) enum Msg {
    Call(Box<ToolCall>),
    /// The loop ended, which it never does by itself.
    LoopEnded,
}

impl From<ToolCall> for Msg {
    fn from(call: ToolCall) -> Self {
        Self::Call(Box::new(call))
    }
}

/// The actor.
pub(crate) struct Source {
    me: Context<Msg>,
    shared: Arc<SourceShared>,
}

impl Entity for Source {
    type Msg = Msg;
    type Args = Arc<SourceShared>;

    async fn start(shared: Arc<SourceShared>, me: Context<Msg>) -> Result<Self, Fault> {
        // Tools that were listed last can be found and described before the server is there.
        let tools = shared.log.state().unwrap_or_default().0;
        shared.offer(ListedTools { tools, ..ListedTools::default() });
        let seen = shared.clone();
        me.address.probe().set_detail(move || Some(detail(&seen)));
        let (kept, address) = (tokio::spawn(connect::keep(shared.clone())), me.address.clone());
        let kept = AbortOnDrop(kept);
        let _detached = me.workers.spawn(async move {
            let mut kept = kept;
            let _panicked = (&mut kept.0).await;
            // Nobody there: the actor has ended already.
            let _ = address.send(Msg::LoopEnded);
        });
        Ok(Self { me, shared })
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Call(call) => {
                let _detached = self.me.workers.spawn(run(self.shared.clone(), *call));
                Ok(())
            }
            Msg::LoopEnded => Err(Fault::new("its loop panicked")),
        }
    }
}

/// Loop that ends with whoever watches it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn detail(shared: &SourceShared) -> String {
    let state = match &*shared.link.borrow() {
        SourceLink::Connecting => "connecting".to_owned(),
        SourceLink::Up(_) => "ready".to_owned(),
        SourceLink::Down(state) => state.to_string(),
    };
    format!("{} tools, {state}", shared.published().by_name.len())
}

/// Makes a call and answers it.
async fn run(shared: Arc<SourceShared>, call: ToolCall) {
    let ToolCall { tool, cx, args, mut reply } = call;
    let outcome = made(&shared, tool.name, &cx, args, &mut reply).await;
    reply.answer(outcome);
}

async fn made(
    shared: &SourceShared,
    tool: &str,
    cx: &CallCx,
    args: Value,
    reply: &mut Responder,
) -> Result<Value, ToolError> {
    let Value::Object(args) = args else { return Err(ToolError::invalid("must be an object")) };
    let published = shared.published().by_name.get(tool).cloned().ok_or_else(|| {
        let gone = "the server has it no more";
        ToolError::new(Layer::Actor, codes::SOURCE_REQUEST_REFUSED, gone)
    })?;
    let connection = cx.guard(shared.connection(cx)).await?;
    reply.begin();
    let answer = send(shared, &connection, cx, &published, args).await?;
    judge(shared, &published, answer)
}

/// Sends the request; a cancellation follows when nobody waits any more.
async fn send(
    shared: &SourceShared,
    connection: &SourceConnection,
    cx: &CallCx,
    published: &Published,
    args: Map<String, Value>,
) -> Result<CallToolResult, ToolError> {
    let params = CallToolRequestParams::new(published.raw_name.clone()).with_arguments(args);
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let mut meta = RequestMetaObject::new();
    for (name, value) in cx.trace.iter().flat_map(TraceContext::variables) {
        meta.0.0.insert(name.to_ascii_lowercase(), value.into());
    }
    let options = PeerRequestOptions::no_options().with_meta(meta);
    // A server that does not read keeps its pipe full.
    let sent = async {
        let sent = connection.peer.send_cancellable_request(request, options).await;
        sent.map_err(|error| failed(shared, &error))
    };
    // Has it asked now whether it is still there.
    let doubt = || connection.traffic.doubted.notify_one();
    let mut handle = cx.guard(sent).await.inspect_err(|_| doubt())?;
    let _counted = connection.traffic.begin(handle.progress_token.clone(), cx.progress.clone());
    let (answer, why) = tokio::select! {
        biased;
        answer = &mut handle.rx => (Some(answer), ToolError::cancelled()),
        () = cx.cancel.cancelled() => (None, ToolError::cancelled()),
        () = tokio::time::sleep_until(cx.deadline) => (None, ToolError::deadline(Layer::Actor, 0)),
    };
    let Some(answer) = answer else {
        doubt();
        // A server that is gone needs no cancellation.
        let told = handle.cancel(Some("nobody waits for it any more".to_owned()));
        let _told = tokio::time::timeout(TELLING, told).await;
        return Err(why);
    };
    match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
        Ok(ServerResult::CallToolResult(result)) => Ok(result),
        Ok(ServerResult::CustomResult(CustomResult(result))) => without_unknown(result)
            .ok_or_else(|| refused("it answers with something that is not a result of a tool")),
        Ok(_) => Err(refused("it answers with something that is not a result of a tool")),
        Err(error) => {
            if !matches!(error, ServiceError::McpError(_)) {
                doubt();
            }
            Err(failed(shared, &error))
        }
    }
}

/// Result whose parts of unknown kinds are replaced by texts that name the kind; other parts are kept.
fn without_unknown(mut result: Value) -> Option<CallToolResult> {
    for part in result.get_mut("content")?.as_array_mut()? {
        if let Err(error) = ContentBlock::deserialize(&*part) {
            let kind = part["type"].as_str().unwrap_or("unknown");
            let told = format!("[a part of the kind `{kind:.40}` is left out: {error:.200}]");
            *part = json!({ "type": "text", "text": told });
        }
    }
    serde_json::from_value(result).ok()
}

/// The result as the server gave it.
///
/// # Errors
/// `source_tool_failed` for what the server calls an error, `source_answer_refused` for a structured part
/// that is not what the tool declared.
fn judge(
    shared: &SourceShared,
    published: &Published,
    answer: CallToolResult,
) -> Result<Value, ToolError> {
    if answer.is_error == Some(true) {
        let text = text_of(&answer.content);
        let message =
            format!("`{}` of the source `{}` failed: {text}", published.raw_name, shared.name);
        return Err(ToolError::new(
            Layer::Actor,
            codes::SOURCE_TOOL_FAILED,
            (shared.redact)(&message),
        ));
    }
    if let Some(schema) = &published.output {
        let structured = answer.structured_content.as_ref();
        let structured = structured.ok_or_else(|| refused("it has no structured part"))?;
        if let Err(error) = schema.validate(structured) {
            return Err(refused(&format!("{error:.200}")));
        }
    }
    serde_json::to_value(answer).map_err(|error| ToolError::internal(error.to_string()))
}

/// Text of a failed tool's content, as far as an error carries it.
fn text_of(content: &[ContentBlock]) -> String {
    let texts = content.iter().filter_map(|block| block.as_text().map(|text| text.text.as_str()));
    let text: String = texts.collect::<Vec<_>>().join("\n").chars().take(ERROR_CHARS).collect();
    if text.is_empty() { "it gives no reason".to_owned() } else { text }
}

fn refused(why: &str) -> ToolError {
    let message = format!("the server's answer is not what the tool declares: {why}");
    ToolError::new(Layer::Actor, codes::SOURCE_ANSWER_REFUSED, message)
        .next("what the call was to do may be done; see before you repeat it")
        .detail("outcome", "unknown")
}

fn failed(shared: &SourceShared, error: &ServiceError) -> ToolError {
    let has_token = shared.options.token_file.is_some();
    if let Some(state) = http::refusal(error, has_token) {
        return shared.down(&state);
    }
    match error {
        ServiceError::McpError(data) => {
            let message =
                format!("the server refuses the request: {:.1000} ({})", data.message, data.code.0);
            ToolError::new(Layer::Actor, codes::SOURCE_REQUEST_REFUSED, message)
        }
        other => ToolError::new(
            Layer::Actor,
            codes::SOURCE_UNREACHABLE,
            format!("the connection to the server was lost during the call: {other:.300}"),
        )
        .next("see what was done before you repeat it")
        .detail("outcome", "unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_unknown_kind_costs_itself_alone() {
        let text = json!({ "type": "text", "text": "seen" });
        let odd = [json!({ "type": "hologram", "data": "x" }), json!(null), json!({ "text": 7 })];
        let mut result = json!({ "content": [text], "structuredContent": { "a": 1 } });
        result["content"].as_array_mut().expect("a list").extend(odd);
        for complete in [false, true] {
            if complete {
                result["resultType"] = json!("complete");
            }
            let answer: ServerResult = serde_json::from_value(result.clone()).expect("an answer");
            let ServerResult::CustomResult(CustomResult(raw)) = answer else {
                panic!("{answer:?}")
            };
            let read = without_unknown(raw).expect("a result");
            assert_eq!(read.structured_content, Some(json!({ "a": 1 })));
            let texts: Vec<_> = read.content.iter().filter_map(|part| part.as_text()).collect();
            assert_eq!((texts.len(), texts[0].text.as_str()), (4, "seen"));
            assert!(texts[1].text.contains("`hologram` is left out"), "{texts:?}");
        }
        assert!(without_unknown(json!({ "content": "x" })).is_none());
    }
}
