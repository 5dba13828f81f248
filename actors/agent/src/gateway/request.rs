//! Requests of programs as the gateway understands them, and refusals in the shape of their API. Pure: what a program
//! sends is not trusted, and is passed on as it is or not at all.

use hivekeep_kernel::{Layer, ToolError, codes::INVALID_INPUT};
use hivekeep_ports::{GuestHttpAnswer, GuestHttpRequest, ModelApi};
use serde::Deserialize;
use serde_json::{Value, json};

/// Longest name of a model.
const MAX_MODEL_BYTES: usize = 128;
/// Longest value of a header that is passed on.
const MAX_HEADER_BYTES: usize = 2_048;
/// Headers that belong to an API and change what the body means.
const PASSED_ON: [&str; 1] = ["anthropic-beta"];

/// Request for an answer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramRequest {
    pub(crate) api: ModelApi,
    pub(crate) model: String,
    /// Whether the answer is a stream of events.
    pub(crate) stream: bool,
    /// Most tokens of the answer, where the body bounds it.
    pub(crate) max_tokens: Option<u64>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// Refusal of a request, before a provider is asked or in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GatewayRefusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retry_after: Option<u64>,
}

impl GatewayRefusal {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), retry_after: None }
    }

    /// Refusal that an error is. What a program would ask for again in vain is not told as passing.
    pub(crate) fn of(error: &ToolError) -> Self {
        let status = match error.layer {
            // Programs ask again after 429, and not after this.
            Layer::Quota => 402,
            _ if error.is(INVALID_INPUT) => 400,
            _ if error.retryable => 503,
            _ => 502,
        };
        let retry_after = error.retry_after_ms.map(|pause| pause.div_ceil(1_000));
        let message = error.message.chars().take(500).collect::<String>();
        Self { retry_after, ..Self::new(status, &error.code, message) }
    }

    /// Answer in the shape of an API's errors.
    pub(crate) fn answer(&self, api: ModelApi) -> GuestHttpAnswer {
        let Self { status, code, message, .. } = self;
        let passing = matches!(status, 429 | 500..);
        let kind = match (status, passing) {
            (404, _) => "not_found_error",
            (429, _) => "rate_limit_error",
            (_, true) => "api_error",
            (_, false) => "invalid_request_error",
        };
        let body = match api {
            ModelApi::Chat | ModelApi::Responses => {
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
            ModelApi::Messages => {
                let error = json!({ "type": kind, "message": format!("{code}: {message}") });
                json!({ "type": "error", "error": error })
            }
            ModelApi::Gemini => {
                let word = match status {
                    404 => "NOT_FOUND",
                    429 => "RESOURCE_EXHAUSTED",
                    _ if passing => "UNAVAILABLE",
                    _ => "FAILED_PRECONDITION",
                };
                let message = format!("{code}: {message}");
                json!({ "error": { "code": status, "message": message, "status": word } })
            }
        };
        let answer = GuestHttpAnswer::whole(*status, "application/json", body.to_string());
        GuestHttpAnswer { retry_after: self.retry_after, ..answer }
    }
}

/// API whose paths look like this one; OpenAI's where none does.
pub(crate) fn api_like(target: &str) -> ModelApi {
    match target {
        _ if target.starts_with("/v1/messages") => ModelApi::Messages,
        _ if target.starts_with("/v1/responses") => ModelApi::Responses,
        _ if target.starts_with("/v1beta/") || target.starts_with("/v1/models/") => {
            ModelApi::Gemini
        }
        _ => ModelApi::Chat,
    }
}

/// Fields of all APIs that decide on a request. A field that stands there twice is an error, since which of them
/// counts would be the provider's to say.
#[derive(Deserialize)]
struct DecidingFields {
    model: Option<String>,
    stream: Option<bool>,
    background: Option<bool>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    #[serde(rename = "generationConfig")]
    generation_config: Option<GenerationConfig>,
}

#[derive(Deserialize)]
struct GenerationConfig {
    #[serde(rename = "maxOutputTokens")]
    max_output_tokens: Option<u64>,
}

/// Reads a request.
///
/// # Errors
/// The refusal of one that asks for something else than an answer of a model, or is not readable.
pub(crate) fn parse(request: &GuestHttpRequest) -> Result<ProgramRequest, GatewayRefusal> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let host = request.header("host").unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if !["", "127.0.0.1", "localhost"].contains(&host) {
        return Err(unknown(format!("the host `{host:.80}` is not reached by this gateway")));
    }
    let (api, in_path) = route(path).ok_or_else(|| {
        unknown(format!("`{path:.200}` is not a path of this gateway: it passes requests for answers of models on"))
    })?;
    if request.method != "POST" {
        let message = format!("`{path:.200}` takes POST, not {:.20}", request.method);
        return Err(GatewayRefusal::new(405, "method_not_allowed", message));
    }
    let fields: DecidingFields = serde_json::from_slice(&request.body).map_err(|error| {
        GatewayRefusal::new(
            400,
            INVALID_INPUT.name,
            format!("the body is not readable: {error:.200}"),
        )
    })?;
    if fields.background == Some(true) {
        let message = "an answer in the background is nobody's: ask without `background`";
        return Err(GatewayRefusal::new(400, INVALID_INPUT.name, message));
    }
    let (model, stream) = match in_path {
        None => (fields.model.unwrap_or_default(), fields.stream.unwrap_or(false)),
        Some((model, false)) => (model.to_owned(), false),
        Some((model, true)) if query.split('&').any(|one| one == "alt=sse") => {
            (model.to_owned(), true)
        }
        Some((_, true)) => {
            let message = "a stream is asked for with `alt=sse`";
            return Err(GatewayRefusal::new(400, INVALID_INPUT.name, message));
        }
    };
    if model.is_empty() || model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
        return Err(GatewayRefusal::new(400, INVALID_INPUT.name, "the model is not named"));
    }
    let config = fields.generation_config.and_then(|it| it.max_output_tokens);
    // Only one of them is the API's own; the greatest bounds whichever that is.
    let bounds =
        [fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens, config];
    let headers = PASSED_ON.iter().filter_map(|name| {
        let value = request.header(name).filter(|value| value.len() <= MAX_HEADER_BYTES)?;
        (api == ModelApi::Messages).then(|| (*name, value.to_owned()))
    });
    Ok(ProgramRequest {
        api,
        model,
        stream,
        max_tokens: bounds.into_iter().flatten().max(),
        headers: headers.collect(),
    })
}

fn unknown(message: String) -> GatewayRefusal {
    GatewayRefusal::new(404, "path_not_allowed", message)
}

/// API of a path; with the model, and whether the answer is a stream, where the path says so.
fn route(path: &str) -> Option<(ModelApi, Option<(&str, bool)>)> {
    match path {
        "/v1/chat/completions" => return Some((ModelApi::Chat, None)),
        "/v1/responses" => return Some((ModelApi::Responses, None)),
        "/v1/messages" => return Some((ModelApi::Messages, None)),
        _ => {}
    }
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    let (model, verb) = rest.split_once(':')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let stream = match verb {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return None,
    };
    model.bytes().all(plain).then_some((ModelApi::Gemini, Some((model, stream))))
}

/// Key of a request: the same for one that is repeated, whatever its headers. Programs write the members of an object
/// in another order when they repeat it.
pub(crate) fn key(request: &GuestHttpRequest) -> String {
    use sha2::{Digest, Sha256};
    let sorted = serde_json::from_slice::<Value>(&request.body).map(|mut body| {
        body.sort_all_objects();
        body.to_string().into()
    });
    let body = sorted.unwrap_or_else(|_| request.body.clone());
    let mut hash = Sha256::new();
    for part in [request.method.as_bytes(), request.target.as_bytes(), &body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, body: &str) -> GuestHttpRequest {
        GuestHttpRequest {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("host".to_owned(), "127.0.0.1:8790".to_owned())],
            body: body.to_owned().into(),
        }
    }

    #[test]
    fn each_api_is_read_and_nothing_else() {
        let chat = r#"{"model":"m","stream":true,"max_tokens":5,"x":[{"model":"n"}]}"#;
        let gemini = r#"{"generationConfig":{"maxOutputTokens":7}}"#;
        for (target, body, api, stream, most) in [
            ("/v1/chat/completions", chat, ModelApi::Chat, true, Some(5)),
            ("/v1/responses", r#"{"model":"m"}"#, ModelApi::Responses, false, None),
            ("/v1/messages?beta=true", chat, ModelApi::Messages, true, Some(5)),
            ("/v1beta/models/m:generateContent", gemini, ModelApi::Gemini, false, Some(7)),
            ("/v1beta/models/m:streamGenerateContent?alt=sse", "{}", ModelApi::Gemini, true, None),
        ] {
            let read = parse(&request("POST", target, body)).expect(target);
            assert_eq!((read.api, read.stream, read.max_tokens), (api, stream, most), "{target}");
            assert_eq!(read.model, "m");
        }
        for (method, target, body, status) in [
            ("GET", "/v1/models", "", 404),
            ("GET", "/v1/chat/completions", "", 405),
            ("CONNECT", "/", "", 404),
            ("POST", "/v1/embeddings", chat, 404),
            ("POST", "/v1/chat/completions/../files", chat, 404),
            ("POST", "/v1beta/models/a%2fb:generateContent", "{}", 404),
            ("POST", "/v1beta/models/m:countTokens", "{}", 404),
            ("POST", "/v1beta/models/m:streamGenerateContent", "{}", 400),
            ("POST", "/v1/chat/completions", r#"{"model":"m","model":"n"}"#, 400),
            ("POST", "/v1/chat/completions", r#"{"model":["m"]}"#, 400),
            ("POST", "/v1/chat/completions", r"{}", 400),
            ("POST", "/v1/responses", r#"{"model":"m","background":true}"#, 400),
        ] {
            let refused = parse(&request(method, target, body)).expect_err(target);
            assert_eq!(refused.status, status, "{method} {target}");
        }
        let mut elsewhere = request("POST", "/v1/responses", chat);
        elsewhere.headers[0].1 = "api.openai.com".to_owned();
        assert_eq!(parse(&elsewhere).expect_err("another host").status, 404);
    }

    #[tokio::test]
    async fn refusals_have_the_shape_of_their_api() {
        let refusal = GatewayRefusal::new(404, "llm_unknown_model", "no such model");
        for (api, path) in [
            (ModelApi::Chat, "/error/code"),
            (ModelApi::Messages, "/error/message"),
            (ModelApi::Gemini, "/error/message"),
        ] {
            let mut answer = refusal.answer(api);
            let body = answer.body.recv().await.expect("a body").expect("whole");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let told = body.pointer(path).and_then(Value::as_str).expect(path);
            assert!(told.contains("llm_unknown_model"), "{body}");
            assert_eq!(answer.status, 404);
        }
    }

    #[test]
    fn a_key_is_of_method_target_and_body_alone() {
        let body = r#"{"a":{"x":1,"y":2},"b":[1,2]}"#;
        let one = request("POST", "/v1/responses", body);
        let mut other = request("POST", "/v1/responses", r#"{"b":[1,2], "a":{"y":2,"x":1}}"#);
        other.headers.push(("x-request-id".to_owned(), "7".to_owned()));
        assert_eq!(key(&one), key(&other));
        for differs in [
            request("POST", "/v1/responses", r#"{"a":{"x":1,"y":2},"b":[2,1]}"#),
            request("POST", "/v1/responses", r#"{"a":{"x":1.0,"y":2},"b":[1,2]}"#),
            request("POST", "/v1/responses", "{"),
            request("POST", "/v1/response", body),
            request("PUT", "/v1/responses", body),
        ] {
            assert_ne!(key(&one), key(&differs));
        }
    }
}
