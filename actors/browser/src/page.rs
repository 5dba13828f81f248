//! A page as calls see it: injected scripts in an isolated world, elements by selector or reference.

pub(crate) mod outline;

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ToolError};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cdp::CdpError,
    chrome::Chrome,
    codes,
    state::{Happened, apply::exception},
};

/// Longest selector.
pub(crate) const MAX_SELECTOR: usize = 2_000;
const WORLD: &str = include_str!("page/world.js");
/// Name of the isolated world; a document has at most one world of a name.
const WORLD_NAME: &str = "hivekeep";
/// Pause before the next attempt after the document was replaced.
const MOVED_PAUSE: Duration = Duration::from_millis(20);

/// A page. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LivePage {
    pub(crate) chrome: Arc<Chrome>,
    pub(crate) target: String,
    pub(crate) session: String,
}

/// Element that a call is about: by selector, or by a reference of a snapshot or query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Located {
    Selector(String),
    /// Id of the node in its page's process.
    Reference(u64),
}

impl Located {
    /// Reads `e12` or `ref=e12` as a reference, anything else as a selector.
    pub(crate) fn parse(text: &str) -> Self {
        let plain = text.trim();
        let number = plain.strip_prefix("ref=e");
        // No element of HTML is named like that.
        let number = number.or_else(|| plain.strip_prefix('e'));
        match number.and_then(|digits| digits.parse().ok()) {
            Some(node) => Self::Reference(node),
            None => Self::Selector(text.to_owned()),
        }
    }
}

/// Failure that an injected script reports: the element is missing or not ready.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ElementFailure {
    pub(crate) failed: String,
    #[serde(default)]
    pub(crate) about: String,
}

/// Answer of an injected script about an element.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ScriptAnswer<T> {
    Failed(ElementFailure),
    Good(T),
}

impl LivePage {
    /// Sends a DevTools call about the page.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, ToolError> {
        self.chrome.cdp.call(Some(&self.session), method, params).await.map_err(refused)
    }

    /// The isolated world in the page's current document.
    async fn world(&self) -> Result<Value, CdpError> {
        let frame = self.chrome.state().of_target(&self.target).map(|tab| tab.frame.clone());
        let params = json!({ "frameId": frame.unwrap_or_default(), "worldName": WORLD_NAME });
        let cdp = &self.chrome.cdp;
        let made: Value = cdp.call(Some(&self.session), "Page.createIsolatedWorld", params).await?;
        Ok(made["executionContextId"].clone())
    }

    /// Calls a function of the isolated world, by value.
    ///
    /// # Errors
    /// When the function fails, as for an invalid selector. `None` if the document went away meanwhile.
    pub(crate) async fn script<T: DeserializeOwned>(
        &self,
        function: &str,
        args: Value,
    ) -> Result<Option<T>, ToolError> {
        let answer = self.run(function, args, None, true).await?;
        answer.map(|result| decoded(result["value"].clone())).transpose()
    }

    /// Like [`Self::script`], about an element; repeated until the document stays.
    ///
    /// # Errors
    /// `browser_element_not_found`, `browser_element_not_ready`.
    pub(crate) async fn on_element<T: DeserializeOwned>(
        &self,
        function: &str,
        located: &Located,
        mut args: Value,
    ) -> Result<T, ToolError> {
        loop {
            let answer = match located {
                Located::Selector(selector) => {
                    args["selector"] = selector.as_str().into();
                    self.run(function, args.clone(), None, true).await?
                }
                Located::Reference(node) => {
                    let Some(object) = self.resolve(*node).await? else { return Err(gone()) };
                    self.run(function, args.clone(), Some(&object), true).await?
                }
            };
            // The document went away: the next one is tried.
            let Some(result) = answer else {
                sleep(MOVED_PAUSE).await;
                continue;
            };
            return match decoded(result["value"].clone())? {
                ScriptAnswer::Good(good) => Ok(good),
                ScriptAnswer::Failed(failure) => Err(unready(&failure, located)),
            };
        }
    }

    /// Handle of an element, for calls that take one.
    ///
    /// # Errors
    /// `browser_element_not_found`.
    pub(crate) async fn handle(&self, located: &Located) -> Result<String, ToolError> {
        let selector = match located {
            Located::Reference(node) => return self.resolve(*node).await?.ok_or_else(gone),
            Located::Selector(selector) => selector,
        };
        let args = json!({ "selector": selector });
        let found = self.run("element", args, None, false).await?.unwrap_or_default();
        let missing = ElementFailure { failed: "missing".to_owned(), about: String::new() };
        let handle = found["objectId"].as_str().map(str::to_owned);
        handle.ok_or_else(|| unready(&missing, located))
    }

    async fn resolve(&self, node: u64) -> Result<Option<String>, ToolError> {
        let world = self.world().await.map_err(refused)?;
        let params = json!({ "backendNodeId": node, "executionContextId": world });
        let cdp = &self.chrome.cdp;
        match cdp.call::<Value>(Some(&self.session), "DOM.resolveNode", params).await {
            Ok(found) => Ok(found["object"]["objectId"].as_str().map(str::to_owned)),
            // The node is of a document that went away, or of a frame that the isolated world does not reach.
            Err(CdpError::Refused(_)) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Calls a function of the isolated world. `None` if the document went away meanwhile.
    pub(crate) async fn run(
        &self,
        function: &str,
        args: Value,
        element: Option<&str>,
        by_value: bool,
    ) -> Result<Option<Value>, ToolError> {
        let world = match self.world().await {
            Ok(world) => world,
            Err(CdpError::Refused(_)) => return Ok(None),
            Err(error) => return Err(refused(error)),
        };
        let mut arguments = vec![json!({ "value": args })];
        arguments.extend(element.map(|object| json!({ "objectId": object })));
        let params = json!({
            "functionDeclaration": format!("function (args, el) {{{WORLD}\nreturn {function}(args, el); }}"),
            "executionContextId": world,
            "arguments": arguments,
            "awaitPromise": true,
            "returnByValue": by_value,
        });
        let cdp = &self.chrome.cdp;
        let answer: Value =
            match cdp.call(Some(&self.session), "Runtime.callFunctionOn", params).await {
                Ok(answer) => answer,
                Err(CdpError::Refused(_)) => return Ok(None),
                Err(error) => return Err(refused(error)),
            };
        let details = &answer["exceptionDetails"];
        if details.is_object() {
            let about = exception(details);
            let first = about.lines().next().unwrap_or_default();
            return Err(match first.contains("is not a valid selector") {
                true => ToolError::invalid(format!("the selector is not valid: {first:.300}")),
                false => ToolError::new(Layer::Actor, codes::BROWSER_ELEMENT_NOT_READY, first),
            });
        }
        Ok(Some(answer["result"].clone()))
    }

    /// Events that the answer of a call begun at `mark` reports.
    pub(crate) fn since(&self, mark: u64) -> Happened {
        self.chrome.state().tell(mark)
    }

    /// URL that the page has.
    pub(crate) fn url(&self) -> String {
        let state = self.chrome.state();
        state.of_target(&self.target).map(|tab| tab.url.clone()).unwrap_or_default()
    }
}

fn decoded<T: DeserializeOwned>(value: Value) -> Result<T, ToolError> {
    serde_json::from_value(value)
        .map_err(|error| ToolError::internal(format!("a script's answer is not valid: {error}")))
}

/// Typed error of a failed DevTools call.
pub(crate) fn refused(error: CdpError) -> ToolError {
    match error {
        // Callers replace this error by one with the reason.
        CdpError::Ended => ToolError::new(Layer::Actor, codes::BROWSER_CRASHED, "Chrome ended")
            .detail("outcome", "unknown"),
        CdpError::Refused(why) if why.contains("Session with given id not found") => {
            ToolError::new(Layer::Actor, codes::BROWSER_PAGE_CLOSED, "the page is gone")
        }
        CdpError::Refused(why) => {
            let message = format!("Chrome refuses it: {why:.300}");
            ToolError::new(Layer::Actor, codes::BROWSER_UNAVAILABLE, message)
        }
        CdpError::Malformed(why) => ToolError::internal(format!("Chrome: {why:.300}")),
    }
}

fn gone() -> ToolError {
    let message = "the element that the reference names is gone, or in a frame of another origin";
    ToolError::new(Layer::Actor, codes::BROWSER_ELEMENT_NOT_FOUND, message)
        .next("take a new webview_snapshot")
}

fn unready(failure: &ElementFailure, located: &Located) -> ToolError {
    let about = &failure.about;
    let message = match failure.failed.as_str() {
        "gone" => return gone(),
        "missing" => {
            let selector = match located {
                Located::Selector(selector) => selector.chars().take(200).collect(),
                Located::Reference(node) => format!("e{node}"),
            };
            let message = format!("nothing matches `{selector}`");
            return ToolError::new(Layer::Actor, codes::BROWSER_ELEMENT_NOT_FOUND, message)
                .next("look at the page with webview_snapshot");
        }
        "hidden" => format!("the element is not visible: {about}"),
        "disabled" => format!("the element is disabled: {about}"),
        "readonly" => format!("the element is read-only: {about}"),
        "moving" => format!("the element does not stand still: {about}"),
        "outside" => format!("the element cannot be scrolled into view: {about}"),
        "covered" => format!("another element covers it: {about}"),
        "text" => format!("the element takes no text: {about}"),
        "focus" => format!("the element takes no focus: {about}"),
        "option" => format!("the list has no such option; it has: {about}"),
        other => format!("the element is not ready ({other}): {about}"),
    };
    let error = ToolError::new(Layer::Actor, codes::BROWSER_ELEMENT_NOT_READY, message);
    error.detail("why", failure.failed.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_told_from_selectors() {
        for (text, node) in [("e12", 12), ("ref=e7", 7), (" e3 ", 3)] {
            assert_eq!(Located::parse(text), Located::Reference(node), "{text}");
        }
        for text in ["em", "e12 a", "#e12", "ref=x", "e", "e-1"] {
            assert_eq!(Located::parse(text), Located::Selector(text.to_owned()), "{text}");
        }
    }
}
