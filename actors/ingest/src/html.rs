//! Text of a web page, with its headings as Markdown has them. Tokens are read and no tree is built, so the
//! time is that of one pass, whatever the page does.

mod attributes;

use std::cell::RefCell;

use html5ever::{
    tendril::StrTendril,
    tokenizer::{
        BufferQueue, CharacterTokens, Tag, TagKind, TagToken, Token, TokenSink, TokenSinkResult,
        Tokenizer, TokenizerOpts, states::RawKind,
    },
};

/// Elements whose contents are no text for readers.
const UNSEEN: [&str; 8] =
    ["script", "style", "noscript", "template", "svg", "head", "nav", "iframe"];
/// Elements that begin a line.
const LINES: [&str; 10] =
    ["br", "li", "tr", "dt", "dd", "option", "figcaption", "summary", "hr", "label"];
/// Elements that begin a paragraph.
const PARAGRAPHS: [&str; 16] = [
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "aside",
    "ul",
    "ol",
    "table",
    "blockquote",
    "form",
    "figure",
    "dl",
    "body",
];

/// Reads a page as Markdown-like text.
pub(crate) fn text(page: &str) -> String {
    read(page).text
}

fn read(page: &str) -> Read {
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(attributes::removed(page)));
    let tokenizer = Tokenizer::new(Reader::default(), TokenizerOpts::default());
    // Scripts are skipped, so nothing interrupts the tokenizer.
    let _done = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

#[derive(Default)]
struct Reader(RefCell<Read>);

#[derive(Default)]
struct Read {
    text: String,
    unseen: Unseen,
    verbatim: bool,
}

/// Stack of the open elements of [`UNSEEN`], by their indices there.
#[derive(Default)]
struct Unseen {
    open: Vec<usize>,
    /// Number of open elements of each name: an end tag without a match is not searched for.
    of: [usize; UNSEEN.len()],
    /// Number of stack entries that were looked at for end tags.
    #[cfg(test)]
    looks: usize,
}

impl Unseen {
    fn begin(&mut self, element: usize) {
        self.open.push(element);
        self.of[element] += 1;
    }

    /// Ends the last open element of a name, and those within it.
    fn end(&mut self, element: usize) {
        while self.of[element] > 0 {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let Some(last) = self.open.pop() else { return };
            self.of[last] -= 1;
            if last == element {
                return;
            }
        }
    }
}

impl TokenSink for Reader {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut read = self.0.borrow_mut();
        match token {
            CharacterTokens(text) if read.unseen.open.is_empty() => read.characters(&text),
            TagToken(tag) => return read.tag(&tag),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl Read {
    fn characters(&mut self, text: &str) {
        if self.verbatim {
            self.text.push_str(text);
            return;
        }
        for letter in text.chars() {
            let space = letter.is_whitespace();
            if !space {
                self.text.push(letter);
            } else if !self.text.ends_with(char::is_whitespace) && !self.text.is_empty() {
                self.text.push(' ');
            }
        }
    }

    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let (name, start) = (&*tag.name, tag.kind == TagKind::StartTag);
        if let Some(element) = UNSEEN.iter().position(|unseen| *unseen == name) {
            match start {
                true if !tag.self_closing => self.unseen.begin(element),
                _ => self.unseen.end(element),
            }
        } else if name == "body" {
            // The tag `body` ends a head that was left open.
            self.unseen = Unseen::default();
        }
        if start && attributes::RAW.contains(&name) {
            let raw = if name == "script" { RawKind::ScriptData } else { RawKind::Rawtext };
            return TokenSinkResult::RawData(raw);
        }
        if !self.unseen.open.is_empty() {
            return TokenSinkResult::Continue;
        }
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.lines(2);
                if start {
                    let level = usize::from(name.as_bytes()[1] - b'0');
                    self.text.push_str(&format!("{} ", "#".repeat(level)));
                }
            }
            "pre" => {
                self.lines(2);
                self.text.push_str("```\n");
                if !start {
                    self.lines(2);
                }
                self.verbatim = start;
            }
            _ if LINES.contains(&name) => self.lines(1),
            _ if PARAGRAPHS.contains(&name) => self.lines(2),
            "td" | "th" => self.characters(" "),
            _ => {}
        }
        TokenSinkResult::Continue
    }

    /// Makes the text end with so many line ends.
    fn lines(&mut self, wanted: usize) {
        if self.verbatim {
            if !self.text.ends_with('\n') {
                self.text.push('\n');
            }
            return;
        }
        let trimmed = self.text.trim_end().len();
        let there = self.text[trimmed..].matches('\n').count();
        self.text.truncate(trimmed);
        if trimmed > 0 {
            self.text.push_str(&"\n".repeat(there.max(wanted)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_paragraphs_and_code_are_kept_and_scripts_are_not() {
        let page = "<!doctype html><html><head><title>T</title><style>p{}</style></head><body>\
            <nav><a>Menu</a></nav><h1>Top <i>one</i></h1><p>First &amp; <b>second</b>\n line.</p>\
            <script>if (a < b) { '<p>no</p>' }</script><ul><li>One</li><li>Two</li></ul>\
            <pre>a  b\n  c</pre><h2>Next</h2>Tail</body></html>";
        let wanted = "# Top one\n\nFirst & second line.\n\nOne\nTwo\n\n```\na  b\n  c\n```\n\n## Next\n\nTail";
        assert_eq!(text(page).trim_end(), wanted);
    }

    #[test]
    fn a_broken_page_is_read_as_far_as_it_goes() {
        assert_eq!(text("<head><body>Seen<script>x"), "Seen");
        assert_eq!(text("plain < text"), "plain < text");
        assert_eq!(text(&"<svg>".repeat(10_000)), "");
        assert_eq!(text("<nav><svg>a</nav>Seen</svg><svg/>"), "Seen");
    }

    #[test]
    fn no_page_costs_more_than_a_pass_over_it() {
        let ends = |page: String| {
            let read = read(&page);
            let looks = read.unseen.looks;
            assert!(looks <= page.matches('<').count(), "{looks} looks at {} bytes", page.len());
            assert!(read.text.len() <= page.len());
        };
        // Ends of what is not open, and ends that end much.
        ends(["<svg>".repeat(100_000), "</nav>".repeat(100_000)].concat());
        ends(["<svg>".repeat(1_000), "</svg>".repeat(2_000)].concat().repeat(50));
        ends(["<nav>", &"<svg>".repeat(1_000), "</nav></svg>"].concat().repeat(50));
        let attributes: String = (0..100_000).map(|nth| format!(" a{nth}=x")).collect();
        assert_eq!(attributes::removed(&format!("<p{attributes}>")), "<p>");
        assert_eq!(text(&format!("<p{attributes}>Seen</p{attributes}>")).trim_end(), "Seen");
    }
}
