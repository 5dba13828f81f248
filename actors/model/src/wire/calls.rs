//! Tools that a model asks for, put together from their pieces.

use hivekeep_ports::{ModelDelta, ModelToolCall};
use hivekeep_runtime::json_text;
use serde_json::{Map, Value};

use crate::failure::WireFailure;

/// Most tools that one answer may ask for.
pub(super) const MAX_CALLS: usize = 128;

#[derive(Debug, Default)]
struct CallPieces {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// Calls of one answer. Their size is bounded by the answer's.
#[derive(Debug, Default)]
pub(super) struct CallAssembly(Vec<CallPieces>);

impl CallAssembly {
    /// Takes a piece of the call with this index, which is a name and no place: indices may be any.
    pub(super) fn piece(
        &mut self,
        index: u64,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Result<(), WireFailure> {
        let at = match self.0.iter().position(|call| call.index == index) {
            Some(at) => at,
            None if self.0.len() >= MAX_CALLS => {
                let why = format!("the model asks for more than {MAX_CALLS} tools");
                return Err(WireFailure::too_large(why));
            }
            None => {
                self.0.push(CallPieces { index, ..CallPieces::default() });
                self.0.len() - 1
            }
        };
        let call = &mut self.0[at];
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            id.clone_into(&mut call.id);
        }
        call.name.push_str(name.unwrap_or_default());
        call.arguments.push_str(arguments);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Hands the calls over. Of an answer that was cut short a call that is not whole is left out.
    pub(super) fn finish(
        &mut self,
        cut_short: bool,
        out: &mut Vec<ModelDelta>,
    ) -> Result<(), WireFailure> {
        for call in std::mem::take(&mut self.0) {
            match arguments(&call.arguments) {
                Some(arguments) if !call.name.is_empty() => {
                    out.push(ModelDelta::ToolCall(tool_call(call.id, call.name, arguments)));
                }
                _ if cut_short => {}
                _ => {
                    return Err(WireFailure::broken(format!(
                        "the model asks for the tool `{:.60}` with arguments that are not a JSON object",
                        call.name
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Arguments as an object; a model that has none may say nothing.
fn arguments(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(Value::Object(Map::new()));
    }
    json_text::from_str(text).ok().filter(Value::is_object)
}

/// A tool call, with a generated id where the provider has none.
pub(super) fn tool_call(id: String, name: String, arguments: Value) -> ModelToolCall {
    let id = match id.is_empty() {
        true => format!("call_{}", uuid::Uuid::now_v7().simple()),
        false => id,
    };
    ModelToolCall { id, name, arguments, signature: None }
}
