//! Values in a template of a shell command, which stay text whatever they hold.

/// Prefix of the variables that hold the values.
const VARIABLE: &str = "hivekeep_value_";

/// Quotes that a place of a command stands in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    None,
    Single,
    Double,
}

/// Values that a command has named so far.
#[derive(Debug, Default)]
pub(super) struct CommandValues {
    quotes: Quotes,
    /// Quotes around the parentheses that are open.
    around: Vec<Quotes>,
    count: usize,
    /// Assignments in front of the command.
    pub(super) assigned: String,
}

impl CommandValues {
    /// Follows the quotes of the command's own text.
    pub(super) fn read(&mut self, text: &str) {
        let (mut chars, mut before) = (text.chars(), ' ');
        while let Some(char) = chars.next() {
            self.quotes = match (self.quotes, char) {
                (Quotes::None | Quotes::Double, '\\') => {
                    chars.next();
                    self.quotes
                }
                (quotes @ (Quotes::None | Quotes::Double), '(')
                    if quotes == Quotes::None || before == '$' =>
                {
                    self.around.push(quotes);
                    Quotes::None
                }
                (Quotes::None, ')') => self.around.pop().unwrap_or_default(),
                (Quotes::None, '\'') => Quotes::Single,
                (Quotes::None, '"') => Quotes::Double,
                (Quotes::Single, '\'') | (Quotes::Double, '"') => Quotes::None,
                (quotes, _) => quotes,
            };
            before = char;
        }
    }

    /// Reference to a value as one word, or as a part of one. Where the quotes are others than they seem, as in a
    /// here-document, the text is another, and no command.
    pub(super) fn variable(&mut self, value: &str) -> String {
        self.count += 1;
        let name = format!("{VARIABLE}{}", self.count);
        let quoted = value.replace('\0', "").replace('\'', r"'\''");
        self.assigned += &format!("{name}='{quoted}'; ");
        match self.quotes {
            Quotes::None => format!("\"${{{name}}}\""),
            Quotes::Single => format!("'\"${{{name}}}\"'"),
            Quotes::Double => format!("${{{name}}}"),
        }
    }
}
