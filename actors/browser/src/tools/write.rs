//! `webview_type`: keys for an element, an option for a list, files for a file input.

use std::time::Duration;

use futures::future::try_join_all;
use hivekeep_kernel::{CallCx, Layer, ToolError, serve::Reply, tools};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::click::{Acted, default_element_secs, trying_ms};
use crate::{
    act::{MAX_SECS, act},
    browser::Browser,
    codes,
    page::{LivePage, Located, MAX_SELECTOR},
};

/// Time for a page to show what was entered.
const SETTLING_MS: u64 = 400;
/// Keys that are on their way at a time.
const BURST: usize = 16;

/// Enter text into an element, by key events, and read back that it is there. Of a list (`select`) it chooses
/// the option of that label or value; to a file input it gives files, or the text as one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypeText {
    /// Reference of webview_snapshot (`e12`), or CSS selector.
    #[schemars(length(min = 1, max = MAX_SELECTOR))]
    pub(crate) selector: String,
    /// The text. Line breaks are the Enter key. For inputs of dates and times: `2026-11-27`, `2026-11`,
    /// `2026-W48`, `10:30`, `2026-11-27T10:30`.
    #[schemars(length(max = 65_536))]
    pub(crate) text: String,
    /// Whether what is there is removed first.
    #[serde(default)]
    pub(crate) clear: bool,
    /// Whether the Enter key follows.
    #[serde(default)]
    pub(crate) submit: bool,
    /// Paths of files in the browser's place for a file input, instead of the text, which is empty then. 10 at
    /// most, and 32 MiB together.
    #[schemars(length(max = 10), inner(length(min = 1, max = 4096)))]
    #[serde(default)]
    pub(crate) files: Vec<String>,
    /// Name of the file that a text is for a file input.
    #[schemars(length(min = 1, max = 100))]
    pub(crate) file_name: Option<String>,
    /// Time limit, 1 to 120: for the element to be there and ready, too.
    #[schemars(range(min = 1, max = MAX_SECS))]
    #[serde(default = "default_element_secs")]
    pub(crate) timeout_secs: u64,
}

tools! { pub(crate) FAMILY: "browser" for Browser, singleton browsers;
    webview_type: TypeText => Acted = Browser::type_text {
        title: "Type text", open_world: true,
    };
}

impl Browser {
    fn type_text(&mut self, cx: &CallCx, input: TypeText) -> Result<Reply<Acted>, ToolError> {
        let (limit_secs, cx_of_files) = (input.timeout_secs, cx.clone());
        Ok(act(self, cx, limit_secs, move |page, limit| async move {
            type_text(page, &cx_of_files, limit, input).await
        }))
    }
}

#[derive(Debug, Deserialize)]
struct Writable {
    kind: String,
    #[serde(default)]
    erase: bool,
    /// Only the End key leads behind what is there.
    #[serde(default)]
    end: bool,
}

/// Something else than what was entered.
#[derive(Debug, Deserialize)]
struct OtherText {
    /// Text that the element holds; `None` for a password.
    shown: Option<String>,
    /// Example of what the element takes.
    form: Option<String>,
}

async fn type_text(
    page: LivePage,
    cx: &CallCx,
    limit: Duration,
    input: TypeText,
) -> Result<Acted, ToolError> {
    if !input.files.is_empty() && !input.text.is_empty() {
        return Err(ToolError::invalid("`text` has to be empty where `files` are given"));
    }
    let mark = page.chrome.state().mark();
    let located = Located::parse(&input.selector);
    let text = input.text.replace('\r', "");
    // Enter at the end may send what is there away.
    let body = text.trim_end_matches('\n');
    let args = json!({ "limit_ms": trying_ms(limit), "clear": input.clear, "text": body });
    let writable: Writable = page.on_element("written", &located, args).await?;
    match writable.kind.as_str() {
        "file" => {
            let name = input.file_name.as_deref().unwrap_or("upload.txt");
            let request = UploadRequest { files: &input.files, name, text: &input.text };
            upload(&page, cx, &located, request).await?;
        }
        _ if !input.files.is_empty() => return Err(refused("the element takes no files")),
        "set" => read_back(&page).await?,
        _ => {
            let first = match (writable.erase, writable.end) {
                (true, _) => Some(Key::named("Backspace", 8)),
                (_, true) => Some(Key::named("End", 35)),
                _ => None,
            };
            let keys: Vec<_> = first.into_iter().chain(body.chars().map(Key::of)).collect();
            for burst in keys.chunks(BURST) {
                try_join_all(burst.iter().map(|key| press(&page, key))).await?;
            }
            read_back(&page).await?;
            for _ in body.len()..text.len() {
                press(&page, &Key::of('\n')).await?;
            }
        }
    }
    if input.submit {
        press(&page, &Key::of('\n')).await?;
    }
    Ok(Acted { success: true, url: page.url(), happened: page.since(mark) })
}

/// Compares what the element holds with what was entered.
async fn read_back(page: &LivePage) -> Result<(), ToolError> {
    let args = json!({ "limit_ms": SETTLING_MS });
    let other = page.script::<Option<OtherText>>("held", args).await?.flatten();
    let Some(OtherText { shown, form }) = other else { return Ok(()) };
    let is = match &shown {
        Some(text) => format!("holds `{text:.200}`"),
        None => "is a password with another text".to_owned(),
    };
    let next = match form {
        Some(form) => format!("give it as `{form}`"),
        None => "look at the page with webview_snapshot: it may have changed what was entered"
            .to_owned(),
    };
    let message = format!("the element does not hold what was entered: it {is}");
    let error = ToolError::new(Layer::Actor, codes::BROWSER_TEXT_DIFFERS, message).next(next);
    Err(error.detail("value", shown))
}

/// A key, or a character that no key has.
struct Key {
    key: String,
    code: String,
    number: u32,
    text: Option<String>,
    /// Put in as it is.
    inserted: bool,
}

impl Key {
    fn named(name: &str, number: u32) -> Self {
        let (key, code) = (name.to_owned(), name.to_owned());
        Self { key, code, number, text: None, inserted: false }
    }

    fn of(character: char) -> Self {
        let text = Some(character.to_string());
        let key = |code: String, number| Self {
            key: character.to_string(),
            code,
            number,
            text: text.clone(),
            inserted: false,
        };
        match character {
            '\n' => Self { text: Some("\r".to_owned()), ..Self::named("Enter", 13) },
            ' ' => key("Space".to_owned(), 32),
            letter @ ('a'..='z' | 'A'..='Z') => {
                let upper = letter.to_ascii_uppercase();
                key(format!("Key{upper}"), upper.into())
            }
            digit @ '0'..='9' => key(format!("Digit{digit}"), digit.into()),
            ' '..='~' => key(String::new(), 0),
            // The key of a tab would lead to the next element.
            _ => Self { inserted: true, ..key(String::new(), 0) },
        }
    }
}

async fn press(page: &LivePage, key: &Key) -> Result<(), ToolError> {
    if key.inserted {
        let params = json!({ "text": key.text });
        return page.call::<Value>("Input.insertText", params).await.map(drop);
    }
    let kind = if key.text.is_some() { "keyDown" } else { "rawKeyDown" };
    let mut down = json!({
        "type": kind, "key": key.key, "code": key.code, "windowsVirtualKeyCode": key.number,
    });
    let mut up = down.clone();
    up["type"] = "keyUp".into();
    if let Some(text) = &key.text {
        down["text"] = text.as_str().into();
        down["unmodifiedText"] = text.as_str().into();
    }
    let down = page.call::<Value>("Input.dispatchKeyEvent", down);
    let up = page.call::<Value>("Input.dispatchKeyEvent", up);
    futures::future::try_join(down, up).await.map(drop)
}

/// Content for a file input.
#[derive(Debug, Clone, Copy)]
struct UploadRequest<'a> {
    /// Paths in the place.
    files: &'a [String],
    /// Name of the file that `text` becomes where there are no paths.
    name: &'a str,
    /// Content of that file.
    text: &'a str,
}

/// Puts files of the place, or the text, where Chrome reads them, and gives them to the input.
async fn upload(
    page: &LivePage,
    cx: &CallCx,
    located: &Located,
    request: UploadRequest<'_>,
) -> Result<(), ToolError> {
    let Some(folder) = page.chrome.folder.clone() else {
        return Err(refused("a browser that runs elsewhere is given no files"));
    };
    let UploadRequest { files, name, text } = request;
    if name.contains(['/', '\0']) || name.starts_with('.') {
        return Err(ToolError::invalid(format!("`{name:.100}` is not a valid name of a file")));
    }
    let handle = page.handle(located).await?;
    let several = "((_, el) => el.multiple)";
    if files.len() > 1
        && page
            .run(several, json!({}), Some(&handle), true)
            .await?
            .is_some_and(|it| it["value"] != true)
    {
        return Err(refused("the input takes only one file"));
    }
    let contents = match files.is_empty() {
        true => vec![(name.to_owned(), text.as_bytes().to_vec())],
        false => page.chrome.place.get(cx, files).await?,
    };
    let put = tokio::task::spawn_blocking(move || {
        let each = contents.into_iter();
        each.map(|(name, content)| folder.put_upload(&name, &content)).collect()
    });
    let put: std::io::Result<Vec<String>> =
        put.await.map_err(|panic| ToolError::internal(format!("an upload: {panic}")))?;
    let files = put.map_err(|error| refused(&format!("the file is not given: {error}")))?;
    let files = json!({ "files": files, "objectId": handle });
    page.call::<Value>("DOM.setFileInputFiles", files).await.map(drop)
}

/// Error of a refused upload.
fn refused(why: &str) -> ToolError {
    ToolError::new(Layer::Actor, codes::BROWSER_UPLOAD_REFUSED, why)
}
