//! Redaction of inputs that people approve: nothing is hidden but the credential itself, each with its
//! length, and nothing that a shell or a program could run in its place.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{NAMES, Redactor};

/// Characters that may be of a credential where nothing but its surroundings says that it is one: none that
/// is a shell's.
const SECRET: &str = r#"[^\s"',;&|<>()$\x60\\{}]"#;
/// Shortest line of a private key that is taken for one. What is left of a key behind its last such line
/// is of no use alone.
const KEY_LINE: usize = 40;
/// Different capitals in such a line, which no path of a program has.
const KEY_CAPITALS: usize = 8;

/// Shapes beside those that are one word. None goes on over a line's end, and none begins where a shell
/// would look for a program: behind an assignment and a blank.
pub(super) fn shapes() -> Vec<String> {
    vec![
        // A private key whose lines are joined by `\n`.
        format!(r"(?P<keep>-----BEGIN [A-Z ]*PRIVATE KEY-----)(?:\\n|[0-9A-Za-z+/=]){{{KEY_LINE},}}"),
        r#"(?i)(?P<keep>\bauthorization["']?[\x20\t]*:[\x20\t]*["']?(?:bearer|basic)[\x20\t]+)[0-9a-z._~+/=-]{16,}"#
            .to_owned(),
        format!(r#"(?P<keep>\b[a-z][a-z0-9+.-]*://[^\s/:@"'$\x60]*:)(?:[{SECRET}&&[^/@]]+)@"#),
        format!(
            r#"(?ix) (?P<keep> {NAMES} ["']?
                (?: = | [\x20\t]* : [\x20\t]* | [\x20\t]* = [\x20\t]* ["'] ) ["']? ) {SECRET}{{4,}}"#
        ),
    ]
}

fn hidden(secret: &str) -> String {
    format!("[{} characters hidden]", secret.chars().count())
}

impl Redactor {
    /// An input as the person who approves it is shown it.
    pub fn input(&self, args: &Map<String, Value>) -> Map<String, Value> {
        let member = |(name, value): (&String, &Value)| match (self.hides(name, value), value) {
            (true, Value::String(text)) => (name.clone(), hidden(text).into()),
            (true, other) => (name.clone(), hidden(&other.to_string()).into()),
            (false, value) => (name.clone(), self.shown(value)),
        };
        args.iter().map(member).collect()
    }

    fn shown(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.lines(text).into(),
            Value::Array(items) => items.iter().map(|item| self.shown(item)).collect(),
            Value::Object(map) => self.input(map).into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A text, line by line. The lines of a private key are hidden each for itself.
    fn lines(&self, text: &str) -> String {
        if self.inputs.each.is_empty() {
            return text.to_owned();
        }
        let (mut shown, mut of_key) = (String::with_capacity(text.len()), false);
        for line in text.split_inclusive('\n') {
            if of_key && is_key_line(line.trim()) {
                shown.push_str(&line.replace(line.trim(), &hidden(line.trim())));
                continue;
            }
            of_key |= line.contains("PRIVATE KEY-----");
            of_key &= !line.contains("-----END ");
            shown.push_str(&self.inputs.replace(line, hidden));
        }
        shown
    }
}

fn is_key_line(line: &str) -> bool {
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let capitals: BTreeSet<_> = line.chars().filter(char::is_ascii_uppercase).collect();
    line.len() >= KEY_LINE && line.chars().all(base64) && capitals.len() >= KEY_CAPITALS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::RedactionOptions;

    fn shown(input: Value) -> Value {
        let redactor = Redactor::new(&RedactionOptions::default()).expect("patterns");
        redactor.input(input.as_object().expect("an object")).into()
    }

    #[test]
    fn what_runs_is_shown_whatever_stands_around_it() {
        for line in [
            "echo -----BEGIN PRIVATE KEY----- ; git push --force origin main",
            "echo -----BEGIN PRIVATE KEY-----\nreboot\necho -----END PRIVATE KEY-----",
            "true --password=$(git${IFS}push)",
            "true --password=`reboot`",
            "password= reboot",
            "echo password:\nreboot",
            "x=basic /usr/sbin/poweroff",
            "x=bearer\n/usr/bin/systemctl-poweroff",
            "curl http://me:$(reboot)@example.org",
            "curl http://me:x;reboot@example.org",
        ] {
            assert_eq!(shown(json!({ "command": line })), json!({ "command": line }), "{line}");
        }
    }

    // Put together here, so that scanners of source text find nothing.
    #[test]
    fn a_credential_is_hidden_with_its_length_and_nothing_else() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let key: String = ('A'..='Z').chain('a'..='z').chain('0'..='9').collect();
        let pem = |body: &str| format!("-----BEGIN PRIVATE KEY-----{body}");
        for (text, is) in [
            (format!("x {token}; reboot"), "x [40 characters hidden]; reboot".to_owned()),
            (
                format!("cat <<E\n{}\n{key}\nrest\n", pem("")),
                format!("cat <<E\n{}\n[62 characters hidden]\nrest\n", pem("")),
            ),
            (pem(&format!("\\n{key} x")), pem("[64 characters hidden] x")),
            ("PASSWORD=hunter22 ok".into(), "PASSWORD=[8 characters hidden] ok".into()),
            (
                r#"{"password": "hunter22"}"#.into(),
                r#"{"password": "[8 characters hidden]"}"#.into(),
            ),
            (
                "https://me:hunter2@example.org/x".into(),
                "https://me:[8 characters hidden]example.org/x".into(),
            ),
            (
                format!("curl -H 'Authorization: Bearer {}'", "a1b2".repeat(5)),
                "curl -H 'Authorization: Bearer [20 characters hidden]'".into(),
            ),
        ] {
            assert_eq!(shown(json!({ "command": text.clone() }))["command"], is, "{text}");
        }
        let named = json!({ "env": { "API_KEY": "abc", "PASSWORD_COMMAND": "reboot" } });
        let is = json!({ "API_KEY": "[3 characters hidden]", "PASSWORD_COMMAND": "reboot" });
        assert_eq!(shown(named)["env"], is);
    }

    proptest::proptest! {
        /// Hidden is a part of one word of a line, which has no operator of a shell.
        #[test]
        fn no_operator_and_no_end_of_a_line_is_hidden(
            pieces in proptest::collection::vec(proptest::sample::select(vec![
                "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "password=", "secret: ",
                "Authorization: Bearer ", "https://me:", "@x", "sk-", "abcdefghijklmnopqrstuvwxyz", "\n",
                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdef", " ", ";", "&&", "|", "$(", "`", ")", "\"", "'",
                "\\n", "=", "git",
            ]), 0..24),
        ) {
            let text = pieces.concat();
            let left = shown(json!({ "command": text.clone() }))["command"].as_str().expect("a text").to_owned();
            let count = |text: &str| text.chars().filter(|c| ";&|$`()\n".contains(*c)).count();
            proptest::prop_assert_eq!(count(&text), count(&left), "{} -> {}", text, left);
        }
    }
}
