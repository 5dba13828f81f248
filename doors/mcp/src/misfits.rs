//! Requests whose method there is, and whose parameters are not what it takes. To rmcp they are requests of a
//! method that it does not know.

use std::borrow::Cow;

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CancelTaskParams, CompleteRequestParams, GetPromptRequestParams,
        GetTaskParams, InitializeRequestParams, PaginatedRequestParams, ProtocolVersion,
        ReadResourceRequestParams, RequestMetaObject, SubscribeRequestParams,
        SubscriptionsListenRequestParams, UnsubscribeRequestParams, UpdateTaskParams,
    },
};
use serde::{Deserialize as _, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Members of which the one at fault is looked for.
const MOST_MEMBERS: usize = 8;
/// Characters of the reason, which may quote what was sent.
const MOST_CHARS: usize = 300;

/// Methods that revisions without sessions have no more.
const OF_SESSIONS: [&str; 3] = ["initialize", "resources/subscribe", "resources/unsubscribe"];

/// The error that such a request gets; none for a method that its revision does not have.
pub(super) fn error(
    method: &str,
    params: Option<&Value>,
    revision: Option<ProtocolVersion>,
) -> Option<ErrorData> {
    let params = params.unwrap_or(&Value::Null);
    let revision = revision.or_else(|| revision_of(params));
    let stateless = revision.is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
    if stateless && OF_SESSIONS.contains(&method) {
        return None;
    }
    let why = match method {
        "initialize" => misfit::<InitializeRequestParams>(params),
        "tools/call" => misfit::<CallToolRequestParams>(params),
        "prompts/get" => misfit::<GetPromptRequestParams>(params),
        "completion/complete" => misfit::<CompleteRequestParams>(params),
        "resources/read" => misfit::<ReadResourceRequestParams>(params),
        "resources/subscribe" => misfit::<SubscribeRequestParams>(params),
        "resources/unsubscribe" => misfit::<UnsubscribeRequestParams>(params),
        "subscriptions/listen" => misfit::<SubscriptionsListenRequestParams>(params),
        "tasks/get" => misfit::<GetTaskParams>(params),
        "tasks/update" => misfit::<UpdateTaskParams>(params),
        "tasks/cancel" => misfit::<CancelTaskParams>(params),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            misfit::<PaginatedRequestParams>(params)
        }
        "ping" | "server/discover" => "`params` do not fit".into(),
        _ => return None,
    };
    let why: String = why.chars().take(MOST_CHARS).collect();
    Some(ErrorData::invalid_params(format!("`{method}`: {why}"), None))
}

/// The revision that a request says it is of, as those without sessions do.
fn revision_of(params: &Value) -> Option<ProtocolVersion> {
    RequestMetaObject::deserialize(&params["_meta"]).ok()?.protocol_version()
}

/// Description of what is wrong with the parameters.
fn misfit<T: DeserializeOwned>(params: &Value) -> Cow<'static, str> {
    let Value::Object(members) = params else {
        return match params {
            Value::Null => "`params` are missing, and should be an object".into(),
            _ => "`params` should be an object".into(),
        };
    };
    match read::<T>(members.clone()) {
        Ok(()) => "`params` do not fit".into(),
        Err(why) => match at_fault::<T>(members, &why) {
            Some(name) => format!("`{name}`: {why}").into(),
            None => why.into(),
        },
    }
}

fn read<T: DeserializeOwned>(members: Map<String, Value>) -> Result<(), String> {
    serde_json::from_value::<T>(Value::Object(members)).map(drop).map_err(|error| error.to_string())
}

/// The member without which there is another complaint, or none: serde names those that are missing, and none of
/// the wrong type.
fn at_fault<'m, T: DeserializeOwned>(
    members: &'m Map<String, Value>,
    why: &str,
) -> Option<&'m str> {
    if why.starts_with("missing field") || members.len() > MOST_MEMBERS {
        return None;
    }
    let changes = |name: &&String| {
        let mut rest = members.clone();
        rest.remove(*name);
        read::<T>(rest).err().as_deref() != Some(why)
    };
    members.keys().find(changes).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorCode;
    use serde_json::json;

    use super::*;

    fn why(method: &str, params: Value) -> String {
        let error = error(method, Some(&params), None).expect("there is such a method");
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        error.message.into_owned()
    }

    #[test]
    fn what_is_wrong_is_named_and_quoted_in_part() {
        let told = why("tools/call", json!({ "name": "exec", "arguments": "{}" }));
        assert!(told.starts_with("`tools/call`: `arguments`: invalid type: string"), "{told}");
        let told = why("tools/call", json!({ "name": 1, "arguments": {} }));
        assert!(told.starts_with("`tools/call`: `name`: invalid type: integer"), "{told}");
        let told = why("tools/call", json!({ "arguments": {} }));
        assert_eq!(told, "`tools/call`: missing field `name`");
        for nothing in [Value::Null, json!([]), json!("x")] {
            assert!(why("resources/read", nothing).contains("should be an object"));
        }
        let long = why("tools/call", json!({ "name": "exec", "arguments": "x".repeat(10_000) }));
        assert!(long.len() < 400, "{}", long.len());
        assert_eq!(error("no/such", None, None), None);
        let meta = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } });
        assert_eq!(
            error("initialize", Some(&meta), None),
            None,
            "that revision has no such method"
        );
        assert!(error("tools/call", Some(&meta), None).is_some());
    }
}
