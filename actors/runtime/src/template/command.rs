//! Values in a template of a shell command, which stay text whatever they hold.

/// Prefix of the variables that hold the values.
const VARIABLE: &str = "hivekeep_value_";

/// Context of a place in a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ShellContext {
    #[default]
    Plain,
    SingleQuotes,
    DoubleQuotes,
    Comment,
}

/// Values that a command has named so far.
#[derive(Debug)]
pub(super) struct CommandValues {
    context: ShellContext,
    /// Contexts of the parentheses that are open.
    around: Vec<ShellContext>,
    /// Character before the next one.
    before: char,
    /// True behind the beginning of a here-document, whose quotes are its own.
    has_document: bool,
    count: usize,
    /// Assignments in front of the command.
    pub(super) assigned: String,
}

impl Default for CommandValues {
    fn default() -> Self {
        let (around, assigned) = (Vec::new(), String::new());
        let context = ShellContext::Plain;
        Self { context, around, before: '\n', has_document: false, count: 0, assigned }
    }
}

impl CommandValues {
    /// Follows the quotes of the command's own text.
    pub(super) fn read(&mut self, text: &str) {
        use ShellContext::{Comment, DoubleQuotes, Plain, SingleQuotes};
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            self.context = match (self.context, char) {
                (Plain | DoubleQuotes, '\\') => {
                    chars.next();
                    self.context
                }
                (around @ (Plain | DoubleQuotes), '(') if around == Plain || self.before == '$' => {
                    self.around.push(around);
                    Plain
                }
                (Plain, ')') => self.around.pop().unwrap_or_default(),
                (Plain, '#') if self.before.is_whitespace() => Comment,
                (Plain, '<') => {
                    self.has_document |= self.before != '<' && begins_document(chars.as_str());
                    Plain
                }
                (Plain, '\'') => SingleQuotes,
                (Plain, '"') => DoubleQuotes,
                (SingleQuotes, '\'') | (DoubleQuotes, '"') | (Comment, '\n') => Plain,
                (context, _) => context,
            };
            self.before = char;
        }
    }

    /// Reference to a value as one word, or as a part of one.
    ///
    /// # Errors
    /// In words, in and behind a here-document.
    pub(super) fn variable(&mut self, value: &str) -> Result<String, String> {
        if self.has_document {
            let why =
                "a value stands in or behind a here-document: give it by `env`, and name that";
            return Err(why.to_owned());
        }
        self.count += 1;
        self.before = '}';
        let name = format!("{VARIABLE}{}", self.count);
        let quoted = value.replace('\0', "").replace('\'', r"'\''");
        self.assigned += &format!("{name}='{quoted}'; ");
        Ok(match self.context {
            ShellContext::Plain => format!("\"${{{name}}}\""),
            ShellContext::SingleQuotes => format!("'\"${{{name}}}\"'"),
            ShellContext::DoubleQuotes | ShellContext::Comment => format!("${{{name}}}"),
        })
    }
}

/// True for what follows the first `<` of a here-document; a here-string and a shift of a number are none.
fn begins_document(rest: &str) -> bool {
    let word = rest.strip_prefix('<').map(|rest| rest.trim_start_matches(['-', ' ', '\t']));
    word.is_some_and(|word| {
        word.starts_with(|it: char| it.is_alphabetic() || "_'\"\\".contains(it))
    })
}
