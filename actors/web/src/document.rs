//! Content reader: from a body with its type to text of a known encoding, for HTML the readable part of
//! the page as Markdown.

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::charset::{self, DecodedText, Encoding, TextMarkup};
use mime::Mime;

use crate::{codes, markup};

/// Kind of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextKind {
    Html,
    /// Returned as it is.
    Plain,
}

/// Type of a body.
#[derive(Debug, Clone)]
pub(crate) struct TextType {
    pub(crate) kind: TextKind,
    /// Encoding that the type names.
    charset: Option<&'static Encoding>,
}

/// Text of a body.
#[derive(Debug, Default)]
pub(crate) struct PageText {
    pub(crate) format: &'static str,
    pub(crate) title: Option<String>,
    pub(crate) text: String,
    pub(crate) encoding: &'static str,
    /// Whether bytes were no characters of the encoding and were replaced.
    pub(crate) malformed: bool,
}

/// Reads a Content-Type. A body without one is taken for text, and refused if it is none.
///
/// # Errors
/// `web_type_refused` with the type, if it is not one of text.
pub(crate) fn text_type(content_type: Option<&str>) -> Result<TextType, ToolError> {
    let Some(sent) = content_type else {
        return Ok(TextType { kind: TextKind::Plain, charset: None });
    };
    let refused = || {
        let shown: String = sent.chars().take(100).collect();
        let message = format!("content of the type `{shown}` is not text");
        ToolError::new(Layer::Result, codes::WEB_TYPE_REFUSED, message)
            .next("download it in a workspace whose network policy allows that")
    };
    let parsed: Mime = sent.parse().map_err(|_| refused())?;
    let kind = match (parsed.type_().as_str(), parsed.subtype().as_str()) {
        ("text", "html") | ("application", "xhtml") => TextKind::Html,
        ("text", _) => TextKind::Plain,
        ("application", "json" | "xml" | "yaml" | "toml" | "javascript" | "x-ndjson" | "sql") => {
            TextKind::Plain
        }
        _ if matches!(
            parsed.suffix().map(|suffix| suffix.as_str()),
            Some("json" | "xml" | "yaml")
        ) =>
        {
            TextKind::Plain
        }
        _ => return Err(refused()),
    };
    let charset = parsed.get_param(mime::CHARSET);
    Ok(TextType { kind, charset: charset.and_then(|name| charset::named(name.as_str())) })
}

/// Reads a body. Takes time; for a thread that may block.
///
/// # Errors
/// `web_type_refused` for bytes that are not text, `web_page_refused` for a page that is too complex.
pub(crate) fn read(
    body: &[u8],
    content_type: &TextType,
    to_markdown: bool,
    url: &str,
) -> Result<PageText, ToolError> {
    let markup = match content_type.kind {
        TextKind::Html => TextMarkup::Html,
        TextKind::Plain => TextMarkup::Other,
    };
    let decoded = charset::decode_page(body, content_type.charset, markup);
    let DecodedText { text, encoding, malformed } = decoded;
    if text.contains('\0') {
        let message = "the body is not text: it has NUL characters";
        return Err(ToolError::new(Layer::Result, codes::WEB_TYPE_REFUSED, message));
    }
    let (format, title, text) = match content_type.kind {
        TextKind::Html if to_markdown => {
            let article = markup::readable(&text, url)?;
            ("markdown", Some(article.title).filter(|title| !title.is_empty()), article.markdown)
        }
        TextKind::Html => ("html", None, text.into_owned()),
        TextKind::Plain => ("text", None, text.into_owned()),
    };
    Ok(PageText { format, title, text, encoding, malformed })
}
