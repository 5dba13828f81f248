//! Shell line as a flat list of tokens: what is judged is what is run.
//!
//! The grammar of tree-sitter finds words, operators and redirections; everything else, from
//! substitutions and here-documents to functions, is refused by its name. The line that a shell gets is
//! then written anew from the tokens, each word in quotes, so that it means to every shell what it meant
//! here: no difference between this grammar and a shell's can make another command of it. The order of
//! the tokens is checked for the same reason, whatever tree they came from.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

use tree_sitter::{Node, Parser};

/// Longest line that is taken apart.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Words of a command, or what joins commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Program with its arguments; never empty.
    Command(Vec<Word>),
    /// `&&`, `||`, `;`, `|`, `&`, a line's end, `(`, `)` or `!`.
    Operator(&'static str),
    /// Redirection of a descriptor to a file or another descriptor.
    Redirect(String, Word),
}

/// Word: its text, with what a shell expands in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Word(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// A character that a shell expands: of a pattern for names, or the `~` of the user's folder.
    Special(char),
}

/// Why a line is not taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear(
    /// Name of what was met.
    pub String,
);

type Answer<T> = Result<T, Unclear>;

impl Word {
    /// Text of a word in which a shell expands nothing.
    pub fn literal(&self) -> Option<String> {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::Special(_) => None,
        };
        self.0.iter().map(text).collect()
    }

    /// The word as any shell reads it.
    fn quoted(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => format!("'{}'", text.replace('\'', r"'\''")),
            Piece::Special(special) => special.to_string(),
        };
        match self.0.is_empty() {
            true => "''".to_owned(),
            false => self.0.iter().map(piece).collect(),
        }
    }

    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }
}

/// Takes a line apart.
///
/// # Errors
/// What the line has that cannot be judged: a syntax error, a substitution, a function, an assignment.
pub fn parse(line: &str) -> Answer<Vec<Token>> {
    if line.len() > MAX_LINE_BYTES {
        return Err(unclear(&format!("a line of more than {MAX_LINE_BYTES} bytes")));
    }
    let strange = |c: char| {
        c.is_control() && c != '\n' && c != '\t' || c.is_whitespace() && !" \n\t".contains(c)
    };
    if line.chars().any(strange) {
        return Err(unclear("an unusual control or white space character"));
    }
    let mut parser = Parser::new();
    let language = tree_sitter_bash::LANGUAGE.into();
    parser.set_language(&language).map_err(|error| unclear(&error.to_string()))?;
    let tree = parser.parse(line, None).ok_or_else(|| unclear("a line"))?;
    if tree.root_node().has_error() {
        return Err(unclear("a syntax error, or something that this reads as one"));
    }
    check_gaps(tree.root_node(), line)?;
    let mut tokens = Vec::new();
    let mut open = vec![tree.root_node()];
    // Depth first, in the order of the text.
    while let Some(node) = open.pop() {
        match token(node, line)? {
            Some(token) => tokens.push(token),
            None => {
                let mut cursor = node.walk();
                let children: Vec<_> = node.children(&mut cursor).collect();
                open.extend(children.into_iter().rev());
            }
        }
    }
    let tokens = with_line_ends(tokens);
    check_order(&tokens)?;
    Ok(tokens)
}

/// Refuses a backslash between words. The grammar takes it for a gap, with the blank or the line's end behind
/// it; to a shell it is a word of its own or makes one of two, unless the two stand among blanks.
fn check_gaps(root: Node<'_>, line: &str) -> Answer<()> {
    let check = |at: usize, end: usize| {
        let gap = line.get(at..end).unwrap_or_default();
        let left = gap.replace("\\\n", "");
        let blank = !left.is_empty() && left.bytes().all(|byte| b" \t".contains(&byte));
        match gap.contains('\\') && !blank {
            true => Err(unclear("a backslash between words")),
            false => Ok(()),
        }
    };
    let (mut open, mut at) = (vec![root], 0);
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        if children.is_empty() {
            check(at, node.start_byte())?;
            at = at.max(node.end_byte());
        }
        open.extend(children.into_iter().rev());
    }
    check(at, line.len())
}

/// The grammar has no node for the end of a line: two commands without an operator between them are on
/// lines of their own.
fn with_line_ends(tokens: Vec<Token>) -> Vec<Token> {
    let (mut separated, mut ended) = (Vec::with_capacity(tokens.len()), false);
    for token in tokens {
        if ended && matches!(token, Token::Command(_) | Token::Operator("(" | "!")) {
            separated.push(Token::Operator("\n"));
        }
        ended = !matches!(token, Token::Operator(operator) if operator != ")");
        separated.push(token);
    }
    separated
}

/// Writes a line that means the same to every shell.
pub fn render(tokens: &[Token]) -> String {
    let mut line = String::new();
    for token in tokens {
        let text = match token {
            Token::Command(words) => words.iter().map(Word::quoted).collect::<Vec<_>>().join(" "),
            Token::Operator(operator) => (*operator).to_owned(),
            Token::Redirect(operator, target) => format!("{operator}{}", target.quoted()),
        };
        if !line.is_empty() && !line.ends_with('\n') {
            line.push(' ');
        }
        line.push_str(&text);
    }
    line
}

fn unclear(what: &str) -> Unclear {
    Unclear(what.to_owned())
}

/// The token that a node is; `None` for one whose children are tokens.
fn token(node: Node<'_>, line: &str) -> Answer<Option<Token>> {
    let operator = |operator| Ok(Some(Token::Operator(operator)));
    match node.kind() {
        "program"
        | "list"
        | "pipeline"
        | "redirected_statement"
        | "subshell"
        | "negated_command"
        | "comment" => Ok(None),
        "command" => Ok(Some(Token::Command(command(node, line)?))),
        "file_redirect" => redirect(node, line).map(Some),
        "&&" => operator("&&"),
        "||" => operator("||"),
        ";" => operator(";"),
        "|" => operator("|"),
        "&" => operator("&"),
        "(" => operator("("),
        ")" => operator(")"),
        "!" => operator("!"),
        other => Err(unclear(other)),
    }
}

fn command(node: Node<'_>, line: &str) -> Answer<Vec<Word>> {
    let mut cursor = node.walk();
    let mut at = None;
    let words = node.children(&mut cursor).map(|child| {
        // Two words without a gap are one to a shell.
        if at.replace(child.end_byte()) == Some(child.start_byte()) {
            return Err(unclear("a word in pieces"));
        }
        match child.kind() {
            "command_name" => word(child.child(0).ok_or_else(|| unclear("no program"))?, line),
            _ => word(child, line),
        }
    });
    let words: Vec<_> = words.collect::<Answer<_>>()?;
    if words.is_empty() { Err(unclear("no program")) } else { Ok(words) }
}

fn redirect(node: Node<'_>, line: &str) -> Answer<Token> {
    let mut cursor = node.walk();
    let children: Vec<_> = node.children(&mut cursor).collect();
    let (descriptor, rest) = match children.split_first() {
        Some((first, rest)) if first.kind() == "file_descriptor" => (text(*first, line), rest),
        _ => ("", &children[..]),
    };
    // More than one word behind it is a command, or more arguments, to a shell.
    let [operator, target] = rest else { return Err(unclear("a redirection")) };
    if !descriptor.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unclear("a redirection"));
    }
    let (how, target) = (operator.kind(), word(*target, line)?);
    let descriptors =
        |word: &Word| word.literal().is_some_and(|text| matches!(text.as_bytes(), [b'0'..=b'9']));
    match how {
        "<" | ">" | ">>" if target.literal().is_some() => {}
        ">&" | "<&" if descriptors(&target) => {}
        _ => return Err(unclear("a redirection")),
    }
    Ok(Token::Redirect(format!("{descriptor}{how}"), target))
}

fn text<'a>(node: Node<'_>, line: &'a str) -> &'a str {
    line.get(node.byte_range()).unwrap_or_default()
}

fn word(node: Node<'_>, line: &str) -> Answer<Word> {
    let mut word = Word::default();
    let whole = text(node, line);
    match node.kind() {
        "concatenation" => {
            let mut cursor = node.walk();
            let mut at = node.start_byte();
            for child in node.children(&mut cursor) {
                if child.start_byte() != at {
                    return Err(unclear("a word in pieces"));
                }
                at = child.end_byte();
                piece(child, line, whole, &mut word)?;
            }
        }
        _ => piece(node, line, whole, &mut word)?,
    }
    Ok(word)
}

fn piece(node: Node<'_>, line: &str, whole: &str, word: &mut Word) -> Answer<()> {
    let text = text(node, line);
    match node.kind() {
        "word" | "number" => unquoted(text, whole, word),
        "raw_string" => {
            let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            word.text(
                inner.filter(|inner| !inner.contains('\'')).ok_or_else(|| unclear("a quote"))?,
            );
            Ok(())
        }
        "string" => {
            let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
            double_quoted(inner.ok_or_else(|| unclear("a quote"))?, word)
        }
        other => Err(unclear(other)),
    }
}

/// `text` is a piece of the word `whole`.
fn unquoted(text: &str, whole: &str, word: &mut Word) -> Answer<()> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some((_, escaped)) if escaped != '\n' => word.text(&escaped.to_string()),
                _ => return Err(unclear("a line that is continued")),
            },
            '*' | '?' | '[' | ']' => word.0.push(Piece::Special(c)),
            '~' if at == 0 && word.0.is_empty() => match characters.peek() {
                None | Some((_, '/')) => word.0.push(Piece::Special('~')),
                Some(_) => return Err(unclear("the folder of another user")),
            },
            // Bash takes one behind these for a folder too.
            '~' if whole.contains("=~") || whole.contains(":~") => {
                return Err(unclear("a folder within a word"));
            }
            // Braces alone are text to a shell too.
            '{' | '}' if whole.contains(',') || whole.contains("..") => {
                return Err(unclear("a brace expansion"));
            }
            '$' | '`' | '"' | '\'' | '|' | '&' | ';' | '<' | '>' | '(' | ')' | ' ' | '\t'
            | '\n' => {
                return Err(unclear(&format!("`{}` in a word", c.escape_default())));
            }
            _ => word.text(c.encode_utf8(&mut [0; 4])),
        }
    }
    Ok(())
}

fn double_quoted(text: &str, word: &mut Word) -> Answer<()> {
    word.text("");
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next_if(|next| "$`\"\\\n".contains(*next)) {
                Some('\n') => return Err(unclear("a line that is continued")),
                Some(escaped) => word.text(&escaped.to_string()),
                None => word.text("\\"),
            },
            '$' | '`' => return Err(unclear("an expansion in quotes")),
            '"' => return Err(unclear("a quote")),
            _ => word.text(c.encode_utf8(&mut [0; 4])),
        }
    }
    Ok(())
}

/// A command stands where a shell expects one, and nowhere else; brackets match.
fn check_order(tokens: &[Token]) -> Answer<()> {
    let (mut wants_command, mut may_end, mut depth) = (true, false, 0_usize);
    for token in tokens {
        match token {
            Token::Command(_) if wants_command => (wants_command, may_end) = (false, true),
            Token::Redirect(..) if !wants_command => {}
            Token::Operator("(") if wants_command => depth += 1,
            Token::Operator("!") if wants_command => may_end = false,
            Token::Operator(")") if !wants_command && depth > 0 => depth -= 1,
            Token::Operator(operator @ ("&&" | "||" | "|" | ";" | "&" | "\n"))
                if !wants_command =>
            {
                (wants_command, may_end) = (true, matches!(*operator, ";" | "&" | "\n"));
            }
            _ => return Err(unclear("an order of words and operators")),
        }
    }
    if depth == 0 && may_end { Ok(()) } else { Err(unclear("a line without an end")) }
}
