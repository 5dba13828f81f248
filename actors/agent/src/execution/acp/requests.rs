//! Requests of a program: a permission is a decision of the policy, or of a person; files are those of its machine, by the
//! daemon's own tools in the execution's session.

use std::path::Path;

use hivekeep_kernel::{ToolError, codes::NOT_FOUND};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::tools;
use crate::{
    acp::{
        frames::{AcpFrame, params},
        schema::{
            CLIENT_METHOD_NAMES, ClientCapabilities, Error, FileSystemCapabilities,
            PermissionOption, PermissionOptionKind, ReadTextFileRequest, ReadTextFileResponse,
            Request, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
            SelectedPermissionOutcome, ToolKind, WriteTextFileRequest, WriteTextFileResponse,
        },
    },
    execution::{ExecutionSaga, state::ExecutionState},
};

/// Folder of a machine that paths of the tools begin at.
pub(super) const ROOT: &str = "/workspace";
/// Most bytes of a file that is read whole.
const FILE_BYTES: u64 = 512 * 1024;
/// Most characters of what a person is shown of a request.
const SHOWN: usize = 2_000;

/// Answer of the tool that reads a file.
#[derive(Deserialize)]
struct ReadFile {
    content: String,
    next_offset: Option<u64>,
}

/// Answer to a request, and why it says no.
pub(super) struct AcpAnswer {
    pub(super) frame: AcpFrame,
    pub(super) error: Option<String>,
}

/// A few words about a request.
pub(super) fn about(request: &Request<Value>) -> String {
    let params = request.params.as_ref();
    let at = |place: &str| params.and_then(|it| it.pointer(place)).and_then(Value::as_str);
    let about = at("/toolCall/title").or(at("/path")).or(at("/command")).unwrap_or_default();
    about.chars().take(SHOWN).collect()
}

/// Requests that become tools which the session has.
pub(super) fn offered(state: &ExecutionState) -> ClientCapabilities {
    let has = |tool: &str| state.begun.plan.tools.contains(tool);
    let files = FileSystemCapabilities::new()
        .read_text_file(has(tools::READ))
        .write_text_file(has(tools::WRITE));
    ClientCapabilities::new().fs(files).terminal(tools::TERMINALS.into_iter().all(has))
}

impl ExecutionSaga {
    /// Answers a request of a program; one that a daemon before this one may have begun to answer, too.
    pub(super) async fn answer_program(
        &self,
        state: &ExecutionState,
        request: Request<Value>,
        was_begun: bool,
    ) -> AcpAnswer {
        let Request { id, method, params: given, .. } = request;
        let names = CLIENT_METHOD_NAMES;
        let answer = match &*method {
            it if it == names.session_request_permission => {
                let asked = params::<RequestPermissionRequest>(given);
                let (answer, error) = match asked {
                    Ok(asked) => self.permitted(state, &asked).await,
                    Err(error) => (Err(error), None),
                };
                let error = error.or_else(|| answer.as_ref().err().map(ToString::to_string));
                return AcpAnswer { frame: AcpFrame::answer(id, answer), error };
            }
            it if it == names.fs_read_text_file => self.read_file(state, given).await.map(json),
            it if it == names.fs_write_text_file => self.write_file(state, given).await.map(json),
            it if it == names.terminal_create => {
                self.open_terminal(state, given, was_begun).await.map(json)
            }
            it if it == names.terminal_output => self.terminal_output(state, given).await.map(json),
            it if it == names.terminal_wait_for_exit => {
                self.await_terminal(state, given).await.map(json)
            }
            it if it == names.terminal_kill => self.kill_terminal(state, given).await.map(json),
            it if it == names.terminal_release => {
                self.release_terminal(state, given).await.map(json)
            }
            other => Err(Error::method_not_found().data(other)),
        };
        let error = answer.as_ref().err().map(ToString::to_string);
        AcpAnswer { frame: AcpFrame::answer(id, answer), error }
    }

    /// Outcome of a request for permission, and why it is refused. What only reads is allowed.
    async fn permitted(
        &self,
        state: &ExecutionState,
        asked: &RequestPermissionRequest,
    ) -> (Result<RequestPermissionResponse, Error>, Option<String>) {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        let fields = &asked.tool_call.fields;
        let kind = fields.kind.unwrap_or_default();
        let refused = match kind {
            ToolKind::Read | ToolKind::Search | ToolKind::Think => None,
            _ => {
                let input = fields.raw_input.as_ref().map(ToString::to_string);
                let text = |text: Option<&str>| -> String {
                    text.unwrap_or_default().chars().take(SHOWN).collect()
                };
                let args = json!({
                    "kind": kind, "title": text(fields.title.as_deref()), "input": text(input.as_deref()),
                });
                self.child_call::<IgnoredAny>(state, tools::PERMIT, args).await.err()
            }
        };
        let kinds = match refused {
            None => [AllowOnce, AllowAlways],
            Some(_) => [RejectOnce, RejectAlways],
        };
        let of_kind = |kind: &PermissionOptionKind| {
            asked.options.iter().find(|option: &&PermissionOption| option.kind == *kind)
        };
        let option = kinds.iter().find_map(of_kind).map(|option| option.option_id.clone());
        let outcome = match option {
            Some(id) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id)),
            None => RequestPermissionOutcome::Cancelled,
        };
        let why = refused.map(|error| error.to_text());
        (Ok(RequestPermissionResponse::new(outcome)), why)
    }

    async fn read_file(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<ReadTextFileResponse, Error> {
        let ReadTextFileRequest { path, line, limit, .. } = params(given)?;
        let args = json!({ "path": below(&path)?, "limit": FILE_BYTES });
        let read = self.child_call(state, tools::READ, args).await.map_err(refusal)?;
        let ReadFile { content, next_offset } = read;
        if next_offset.is_some() {
            let why = format!(
                "the file has more than {FILE_BYTES} bytes: read a part of it by a command"
            );
            return Err(Error::invalid_params().data(why));
        }
        let from = line.unwrap_or(1).saturating_sub(1) as usize;
        let most = limit.map_or(usize::MAX, |limit| limit as usize);
        let whole = from == 0 && most == usize::MAX;
        let part = || content.split_inclusive('\n').skip(from).take(most).collect();
        let content = if whole { content } else { part() };
        Ok(ReadTextFileResponse::new(content))
    }

    async fn write_file(
        &self,
        state: &ExecutionState,
        given: Option<Value>,
    ) -> Result<WriteTextFileResponse, Error> {
        let WriteTextFileRequest { path, content, .. } = params(given)?;
        let args = json!({ "path": below(&path)?, "content": content });
        let _written: IgnoredAny =
            self.child_call(state, tools::WRITE, args).await.map_err(refusal)?;
        Ok(WriteTextFileResponse::new())
    }

    /// Calls a tool in the execution's session.
    pub(super) async fn child_call<T: DeserializeOwned>(
        &self,
        state: &ExecutionState,
        tool: &str,
        args: Value,
    ) -> Result<T, ToolError> {
        let never = CancellationToken::new();
        let answer = self.answer_of(state, (tool, args), None, &never).await;
        if answer.is_err() {
            self.unless_closing().await;
        }
        answer
    }
}

fn json(data: impl Serialize) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}

/// Path below the root of the machine's files.
pub(super) fn below(path: &Path) -> Result<String, Error> {
    let below = path.strip_prefix(ROOT).ok().and_then(Path::to_str);
    let below = below.filter(|path| !path.is_empty());
    let outside = || Error::invalid_params().data(format!("the path is not below {ROOT}"));
    below.map(str::to_owned).ok_or_else(outside)
}

pub(super) fn refusal(error: ToolError) -> Error {
    // Programs tell by the code what is not there from what cannot be read.
    let like = match error.is_any(&[NOT_FOUND]) {
        true => Error::resource_not_found(None),
        false => Error::internal_error(),
    };
    like.data(error.to_text())
}

#[cfg(test)]
mod tests {
    use hivekeep_kernel::{Layer, codes::PERMISSION_DENIED};

    use super::*;

    #[test]
    fn what_is_not_there_is_told_by_the_code_of_the_protocol() {
        let told = |code| json(refusal(ToolError::new(Layer::Actor, code, "x")))["code"].clone();
        assert_eq!((told(NOT_FOUND), told(PERMISSION_DENIED)), (json!(-32002), json!(-32603)));
    }
}
