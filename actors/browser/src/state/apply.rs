//! Application of Chrome's events. Unknown events are ignored: Chrome's protocol grows.

use serde_json::Value;

use super::{BrowserEffect, BrowserState, HandledDialog, MAX_REQUESTS, MAX_TABS};

/// Longest URL or title that is remembered.
const URL_CHARS: usize = 2_048;

/// Why the host of a URL was refused, if it was.
pub(crate) type RefusalOf<'a> = &'a dyn Fn(&str) -> Option<String>;

pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// A URL or title, cut to the length that is remembered: a page's may have any length.
fn short(text: &str) -> String {
    text.chars().take(URL_CHARS).collect()
}

impl BrowserState {
    /// Applies an event.
    pub(crate) fn apply(
        &mut self,
        method: &str,
        session: Option<&str>,
        params: &Value,
        refused: RefusalOf<'_>,
    ) -> Option<BrowserEffect> {
        match method.split_once('.')?.0 {
            "Target" | "Inspector" => self.target(method, session, params),
            "Page" => self.page(method, session?, params),
            "Network" => self.network(method, session, params, refused),
            "Runtime" | "Log" => {
                self.said(method, params);
                None
            }
            "Browser" => self.download(method, params),
            _ => None,
        }
    }

    fn target(
        &mut self,
        method: &str,
        session: Option<&str>,
        params: &Value,
    ) -> Option<BrowserEffect> {
        let info = &params["targetInfo"];
        match method {
            "Target.targetCreated" => return self.opened(info),
            "Target.targetInfoChanged" => {
                let target = text(info, "targetId");
                let tab = self.tabs.iter_mut().find(|tab| tab.target == target)?;
                tab.url = short(text(info, "url"));
                tab.title = short(text(info, "title"));
            }
            "Target.targetDestroyed" => {
                let target = text(params, "targetId");
                let at = self.tabs.iter().position(|tab| tab.target == target)?;
                return Some(self.tabs.remove(at).end());
            }
            "Target.targetCrashed" => {
                let target = text(params, "targetId");
                let tab = self.tabs.iter_mut().find(|tab| tab.target == target)?;
                return tab.crash(text(params, "status"));
            }
            "Inspector.targetCrashed" => {
                return self.of_session(session)?.crash("crashed");
            }
            _ => {}
        }
        None
    }

    /// Attaches to a page that a page of this browser opened, or closes it where there are too many.
    fn opened(&mut self, info: &Value) -> Option<BrowserEffect> {
        let target = text(info, "targetId");
        let opened = text(info, "type") == "page" && info["openerId"].is_string();
        let ours = opened && text(info, "browserContextId") == self.context;
        if !ours || self.of_target(target).is_some() {
            return None;
        }
        if self.tabs.len() < MAX_TABS {
            return Some(BrowserEffect::Attach(target.to_owned()));
        }
        let why = format!("a page was closed: {MAX_TABS} are open");
        self.console.push("error", &why, text(info, "url"), None);
        Some(BrowserEffect::CloseTarget(target.to_owned()))
    }

    fn page(&mut self, method: &str, session: &str, params: &Value) -> Option<BrowserEffect> {
        if method == "Page.javascriptDialogOpening" {
            return Some(self.dialog(session, params));
        }
        let tab = self.of_session(Some(session))?;
        match method {
            "Page.frameNavigated" if params["frame"]["parentId"].is_null() => {
                let frame = &params["frame"];
                tab.frame = text(frame, "id").to_owned();
                let fragment = short(text(frame, "urlFragment"));
                tab.url = short(&format!("{}{fragment}", short(text(frame, "url"))));
                (tab.crashed, tab.reviving) = (None, false);
                tab.document(text(frame, "loaderId"));
            }
            "Page.frameStartedLoading" | "Page.frameStartedNavigating"
                if tab.frame == text(params, "frameId") =>
            {
                tab.loading = true;
            }
            "Page.frameStoppedLoading" if tab.frame == text(params, "frameId") => {
                tab.loading = false;
            }
            "Page.navigatedWithinDocument" if tab.frame == text(params, "frameId") => {
                tab.url = short(text(params, "url"));
            }
            "Page.lifecycleEvent" if tab.frame == text(params, "frameId") => {
                tab.document(text(params, "loaderId"));
                let name = text(params, "name");
                let known = tab.loaded.iter().any(|it| it == name);
                if matches!(name, "DOMContentLoaded" | "load") && !known {
                    tab.loaded.push(name.to_owned());
                }
            }
            _ => {}
        }
        None
    }

    fn dialog(&mut self, session: &str, params: &Value) -> BrowserEffect {
        let kind = text(params, "type").to_owned();
        // A `beforeunload` dialog cannot keep a page from being left.
        let accept = self.dialogs.accept || kind == "beforeunload";
        let message: String = text(params, "message").chars().take(1_000).collect();
        let done = if accept { "accepted" } else { "dismissed" };
        let told = format!("{kind} {done}: {message}");
        self.console.push("dialog", &told, text(params, "url"), None);
        self.happened.dialog(HandledDialog { kind, message, accepted: accept });
        let text = self.dialogs.prompt_text.clone();
        BrowserEffect::Dialog { session: session.to_owned(), accept, text }
    }

    fn network(
        &mut self,
        method: &str,
        session: Option<&str>,
        params: &Value,
        refused: RefusalOf<'_>,
    ) -> Option<BrowserEffect> {
        let id = text(params, "requestId");
        let tab = self.of_session(session)?;
        match method {
            // Event streams never end, so they do not count.
            "Network.requestWillBeSent" if text(params, "type") != "EventSource" => {
                let request = &params["request"];
                let url = text(request, "url");
                if tab.requests.len() < MAX_REQUESTS && !url.starts_with("data:") {
                    let line = format!("{} {url:.500}", text(request, "method"));
                    tab.requests.insert(id.to_owned(), line);
                    tab.traffic += 1;
                }
            }
            "Network.responseReceived" => {
                let response = &params["response"];
                let status = response["status"].as_u64().unwrap_or_default();
                if id == text(params, "loaderId") && tab.frame == text(params, "frameId") {
                    tab.status = Some((id.to_owned(), status));
                }
                let line = tab.requests.get(id).filter(|_| status >= 400)?;
                let told = format!("{line}: status {status}");
                self.console.push("network", &told, text(response, "url"), None);
            }
            "Network.loadingFinished" => {
                tab.traffic += u64::from(tab.requests.remove(id).is_some());
            }
            "Network.loadingFailed" => {
                let line = tab.requests.remove(id)?;
                tab.traffic += 1;
                if params["canceled"] != true {
                    let url = line.split_once(' ').map_or("", |(_, url)| url).to_owned();
                    let why = refused(&url);
                    let why = why.unwrap_or_else(|| text(params, "errorText").to_owned());
                    self.console.push("network", &format!("{line}: {why}"), &url, None);
                }
            }
            _ => {}
        }
        None
    }

    fn said(&mut self, method: &str, params: &Value) {
        let from_one = |line: &Value| line.as_u64().map(|line| line + 1);
        match method {
            "Runtime.consoleAPICalled" => {
                let args = params["args"].as_array().map(Vec::as_slice).unwrap_or_default();
                let words: Vec<_> = args.iter().take(50).map(shown).collect();
                let frame = &params["stackTrace"]["callFrames"][0];
                let (kind, line) = (text(params, "type"), from_one(&frame["lineNumber"]));
                self.console.push(kind, &words.join(" "), text(frame, "url"), line);
            }
            "Runtime.exceptionThrown" => {
                let details = &params["exceptionDetails"];
                let (about, line) = (exception(details), from_one(&details["lineNumber"]));
                self.console.push("exception", &about, text(details, "url"), line);
            }
            "Log.entryAdded" => {
                let entry = &params["entry"];
                // Failed requests are reported by the events of `Network`.
                if text(entry, "source") != "network" {
                    let (level, url) = (text(entry, "level"), text(entry, "url"));
                    let line = from_one(&entry["lineNumber"]);
                    self.console.push(level, text(entry, "text"), url, line);
                }
            }
            _ => {}
        }
    }
}

/// A value as a console shows it.
fn shown(value: &Value) -> String {
    match &value["value"] {
        Value::Null => {}
        Value::String(text) => return text.chars().take(2_000).collect(),
        other => return other.to_string(),
    }
    let error = value["subtype"] == "error" || value["className"] == "DOMException";
    if let Some(text) = value["description"].as_str().filter(|_| error) {
        return text.chars().take(2_000).collect();
    }
    let properties = value["preview"]["properties"].as_array();
    if let Some(properties) = properties.filter(|all| !all.is_empty()) {
        let pair = |it: &Value| format!("{}: {}", text(it, "name"), text(it, "value"));
        let pairs: Vec<_> = properties.iter().take(20).map(pair).collect();
        return format!("{{{}}}", pairs.join(", "));
    }
    match value["description"].as_str().or(value["unserializableValue"].as_str()) {
        Some(text) => text.chars().take(2_000).collect(),
        None => text(value, "type").to_owned(),
    }
}

/// Text of an exception, for people: the error with its stack, or the value that was thrown.
pub(crate) fn exception(details: &Value) -> String {
    let thrown = &details["exception"];
    match thrown.is_object() {
        true => format!("{} {}", text(details, "text"), shown(thrown)),
        false => text(details, "text").to_owned(),
    }
}
