//! Input of a call as people are shown it: without credentials, and with what is left out.

use serde_json::{Map, Value};

use super::Approval;

/// Characters of an input that lists and forms show, and that are kept of a finished approval.
const SHOWN: usize = 2_000;
/// Characters of an input that are kept while an approval waits, for whoever looks at all of it.
const KEPT: usize = 40_000;

/// Text of an input from which credentials were taken out, as far as it is kept, and the characters of all
/// of it. The shortest members stand first, so that what is cut is the longest one.
pub fn input_text(input: &Map<String, Value>) -> (String, usize) {
    let member =
        |(name, value): (&String, &Value)| format!("{}:{value}", Value::from(name.as_str()));
    let mut members: Vec<_> = input.iter().map(member).collect();
    members.sort_by_key(String::len);
    let whole = format!("{{{}}}", members.join(","));
    (beginning(&whole, KEPT).to_owned(), whole.chars().count())
}

fn beginning(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(end, _)| &text[..end])
}

impl Approval {
    /// Beginning of the input. What is left out is told in a line of its own.
    pub fn input_beginning(&self) -> String {
        let Self { id, call, .. } = self;
        let shown = beginning(&call.input, SHOWN);
        let left = call.input_chars.saturating_sub(shown.chars().count());
        match shown.len() < call.input.len() {
            true => {
                format!("{shown}\n... {left} more characters: `hivekeep approvals show {id}`")
            }
            false => self.whole_input(),
        }
    }

    /// Forgets what is kept of the input for a decision alone.
    pub(super) fn shorten(&mut self) {
        let shown = beginning(&self.call.input, SHOWN).len();
        self.call.input.truncate(shown);
    }

    /// All of the input that is kept. What is not is told in a line of its own.
    pub fn whole_input(&self) -> String {
        let input = &self.call.input;
        match self.call.input_chars.saturating_sub(input.chars().count()) {
            0 => input.clone(),
            left => format!("{input}\n... {left} more characters, which are not kept"),
        }
    }
}
