//! Content reader: from a body with its type to text of a known encoding, for HTML the readable part of
//! the page as Markdown, behind a parse budget: what would take too long is refused before the work on it
//! begins.
//!
//! A hostile page grows while it is parsed: formatting elements that are not closed are repeated in each
//! paragraph, and every start tag looks through all open elements. So the page is parsed once into
//! nothing, piece by piece, with a count of elements and their depth.

use std::{borrow::Cow, cell::Cell, rc::Rc};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::charset::{self, DecodedText, Encoding, TextMarkup};
use html5ever::{
    Attribute, ParseOpts, QualName, parse_document,
    tendril::{StrTendril, TendrilSink},
    tree_builder::{ElementFlags, NodeOrText, QuirksMode, TreeSink},
};
use mime::Mime;
use rustix::time::{ClockId, clock_gettime};

use crate::codes;

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
            let article = readable(&text, url)?;
            ("markdown", Some(article.title).filter(|title| !title.is_empty()), article.markdown)
        }
        TextKind::Html => ("html", None, text.into_owned()),
        TextKind::Plain => ("text", None, text.into_owned()),
    };
    Ok(PageText { format, title, text, encoding, malformed })
}

/// Elements of a page.
const MAX_ELEMENTS: usize = 200_000;
/// Elements within each other. Browsers stop at 512.
const MAX_DEPTH: usize = 256;
/// Processor time for the parse.
const PARSE_LIMIT_SECS: i64 = 5;
/// Size of what is parsed between two looks at the budget.
const PIECE_BYTES: usize = 4096;
/// Size of the Markdown: each line begins with marks of the elements that it is in.
const MAX_MARKS_BYTES: usize = 128 * 1024 * 1024;

/// The main content of a page.
pub(crate) struct ReadableText {
    title: String,
    /// Empty where the page has no text without its scripts.
    pub(crate) markdown: String,
}

/// Extracts the main content as Markdown, with links resolved against `url`.
///
/// # Errors
/// `web_page_refused`.
pub(crate) fn readable(html: &str, url: &str) -> Result<ReadableText, ToolError> {
    check(html)?;
    match legible::Document::new(html).parse(Some(url), None) {
        Ok(article) => {
            Ok(ReadableText { title: article.title, markdown: article.markdown_content })
        }
        Err(legible::Error::NoContent | legible::Error::NoBody) => {
            Ok(ReadableText { title: String::new(), markdown: String::new() })
        }
        Err(error) => Err(too_complex(&error.to_string())),
    }
}

/// Parses within the budget.
///
/// # Errors
/// `web_page_refused`.
pub(crate) fn check(html: &str) -> Result<(), ToolError> {
    let counts = Rc::new(Counts::default());
    let mut parser = parse_document(Counter(counts.clone()), ParseOpts::default());
    let (end, mut rest) = (thread_time_secs() + PARSE_LIMIT_SECS, html);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(PIECE_BYTES.min(rest.len())));
        parser.process(StrTendril::from(piece));
        rest = after;
        counts.check()?;
        if thread_time_secs() > end {
            return Err(too_complex("it takes too long to parse"));
        }
    }
    parser.finish();
    counts.check()?;
    let lines = html.bytes().filter(|byte| *byte == b'\n').count() + counts.elements.get();
    if lines.saturating_mul(counts.depth.get() * 4) > MAX_MARKS_BYTES {
        return Err(too_complex("it has too many lines too deep within each other"));
    }
    Ok(())
}

/// Processor time that this thread has used, which a busy host does not make longer.
fn thread_time_secs() -> i64 {
    clock_gettime(ClockId::ThreadCPUTime).tv_sec
}

fn too_complex(why: &str) -> ToolError {
    ToolError::new(
        Layer::Result,
        codes::WEB_PAGE_REFUSED,
        format!("the page is too complex: {why}"),
    )
    .next("fetch it with `to_markdown` false")
}

#[derive(Default)]
struct Counts {
    elements: Cell<usize>,
    depth: Cell<usize>,
}

impl Counts {
    fn check(&self) -> Result<(), ToolError> {
        if self.elements.get() > MAX_ELEMENTS {
            return Err(too_complex(&format!("it has more than {MAX_ELEMENTS} elements")));
        }
        if self.depth.get() > MAX_DEPTH {
            return Err(too_complex(&format!(
                "more than {MAX_DEPTH} elements are within each other"
            )));
        }
        Ok(())
    }
}

/// A node that is only counted.
struct Counted {
    name: Option<QualName>,
    depth: Cell<usize>,
}

/// Tree that keeps nothing but counts.
struct Counter(Rc<Counts>);

impl Counter {
    fn node(name: Option<QualName>) -> Rc<Counted> {
        Rc::new(Counted { name, depth: Cell::new(0) })
    }

    fn put(&self, depth: usize, child: NodeOrText<Rc<Counted>>) {
        if let NodeOrText::AppendNode(child) = child {
            child.depth.set(depth);
            self.0.depth.set(self.0.depth.get().max(depth));
        }
    }
}

impl TreeSink for Counter {
    type Handle = Rc<Counted>;
    type Output = ();
    type ElemName<'a> = &'a QualName;

    fn finish(self) {}

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Rc<Counted> {
        Self::node(None)
    }

    fn elem_name<'a>(&'a self, target: &'a Rc<Counted>) -> &'a QualName {
        target.name.as_ref().expect("the parser asks for names of elements only")
    }

    fn create_element(&self, name: QualName, _: Vec<Attribute>, _: ElementFlags) -> Rc<Counted> {
        self.0.elements.set(self.0.elements.get() + 1);
        Self::node(Some(name))
    }

    fn create_comment(&self, _: StrTendril) -> Rc<Counted> {
        Self::node(None)
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> Rc<Counted> {
        Self::node(None)
    }

    fn append(&self, parent: &Rc<Counted>, child: NodeOrText<Rc<Counted>>) {
        self.put(parent.depth.get() + 1, child);
    }

    fn append_based_on_parent_node(
        &self,
        element: &Rc<Counted>,
        _: &Rc<Counted>,
        child: NodeOrText<Rc<Counted>>,
    ) {
        self.put(element.depth.get() + 1, child);
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &Rc<Counted>) -> Rc<Counted> {
        target.clone()
    }

    fn same_node(&self, one: &Rc<Counted>, other: &Rc<Counted>) -> bool {
        Rc::ptr_eq(one, other)
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Rc<Counted>, child: NodeOrText<Rc<Counted>>) {
        self.put(sibling.depth.get(), child);
    }

    fn add_attrs_if_missing(&self, _: &Rc<Counted>, _: Vec<Attribute>) {}

    fn remove_from_parent(&self, _: &Rc<Counted>) {}

    fn reparent_children(&self, _: &Rc<Counted>, _: &Rc<Counted>) {}
}
