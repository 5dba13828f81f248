use hivekeep_kernel::Layer;
use serde_json::json;

use super::*;
use crate::RedactionOptions;

fn redactor() -> Redactor {
    let extra_patterns = vec!["ACME-[0-9]+".to_owned()];
    let options = RedactionOptions { extra_patterns, ..RedactionOptions::default() };
    Redactor::new(&options).expect("patterns")
}

// Put together here, so that scanners of source text find nothing.
fn samples() -> Vec<(String, &'static str)> {
    let run = |prefix: &str, length: usize| format!("{prefix}{}", "a1B2".repeat(length / 4));
    vec![
        (format!("key AKIA{} used", "A1B2".repeat(4)), "key [redacted] used"),
        (format!("hivekeep_{}", "a1b2".repeat(16)), HIDDEN),
        (run("ghp_", 36), HIDDEN),
        (run("glpat-", 20), HIDDEN),
        (run("xoxb-", 20), HIDDEN),
        (run("sk-", 40), HIDDEN),
        (run("sk_live_", 24), HIDDEN),
        (format!("eyJ{0}.eyJ{0}.{0}", "a1B2".repeat(3)), HIDDEN),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----!".into(),
            "[redacted]!",
        ),
        ("-----BEGIN PRIVATE KEY-----\ncut of".into(), HIDDEN),
        (run("Authorization: Bearer ", 24), "Authorization: Bearer [redacted]"),
        ("https://me:hunter2@example.org/x".into(), "https://me:[redacted]example.org/x"),
        ("PASSWORD=hunter22 ok".into(), "PASSWORD=[redacted] ok"),
        (r#"{"db_password": "hunter22"}"#.into(), r#"{"db_password": "[redacted]"}"#),
        ("api-key? api_key: abcdef".into(), "api-key? api_key: [redacted]"),
        ("ACME-123".into(), HIDDEN),
    ]
}

#[test]
fn credentials_are_hidden() {
    for (text, hidden) in samples() {
        assert_eq!(redactor().text(&text), hidden, "{text}");
    }
}

#[test]
fn other_texts_are_left_alone() {
    for text in [
        "ws_0195f3a27c1e7b1a8f21b5b0a4c3d2e1 is not running",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "the password was wrong",
        "password: ",
        "task-12345678901234567890 and disk-full-on-the-first-volume",
        "http://127.0.0.1:7717/mcp",
        "git@example.org:project/repo.git",
        "the secretary: Ms Miller",
        "tokens: 5000, max_tokens=4096",
        "/usr/lib/x86_64-linux-gnu/libssl.so.3",
        "basic understanding of bearer bonds",
    ] {
        let redactor = redactor();
        let left = redactor.text(text);
        assert!(matches!(left, Cow::Borrowed(_)), "{text} -> {left}");
    }
}

#[test]
fn all_texts_of_an_error_are_searched() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let error =
        ToolError::foreign(Layer::Guest, "clone_failed", format!("no access with {secret}"))
            .next(format!("renew {secret}"))
            .detail("argv", serde_json::json!(["git", { "note": secret }]))
            .detail("request", serde_json::json!({ "client_secret": "of no shape" }));
    let text = serde_json::to_string(&redactor().error(error)).expect("serialises");
    assert!(!text.contains(&secret) && text.matches(HIDDEN).count() == 4, "{text}");
}

#[test]
fn the_switch_turns_it_off() {
    let options = RedactionOptions { enabled: false, ..RedactionOptions::default() };
    let redactor = Redactor::new(&options).expect("patterns");
    assert_eq!(redactor.text("password=hunter22"), "password=hunter22");
}

fn redacted(value: Value) -> (Value, Vec<(String, RedactionReason)>) {
    let redactor = Redactor::new(&RedactionOptions::default()).expect("patterns");
    let (value, found) = redactor.json(value);
    (value, found.into_iter().map(|path| (path.pointer, path.reason)).collect())
}

#[test]
fn what_a_key_names_and_what_has_a_shape_is_hidden_and_its_place_is_told() {
    use RedactionReason::{Key, Shape};
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let (value, found) = redacted(json!({
        "env": [{ "API_KEY": "x" }, { "PATH": "/bin" }],
        "a/b~c": { "password": 1234, "token": 5, "max_tokens": 4096, "token_present": true },
        "command": format!("curl -H 'x: {token}'"),
        "credentials": { "user": "me", "any": ["x"] },
        "secret": null, "client_secret": "", "passwords": false,
    }));
    assert_eq!(
        value,
        json!({
            "env": [{ "API_KEY": HIDDEN }, { "PATH": "/bin" }],
            "a/b~c": { "password": HIDDEN, "token": 5, "max_tokens": 4096, "token_present": true },
            "command": format!("curl -H 'x: {HIDDEN}'"),
            "credentials": HIDDEN,
            "secret": null, "client_secret": "", "passwords": false,
        })
    );
    let place = |pointer: &str, reason| (pointer.to_owned(), reason);
    let places = [
        place("/env/0/API_KEY", Key),
        place("/a~1b~0c/password", Key),
        place("/command", Shape),
        place("/credentials", Key),
    ];
    assert_eq!(found, places);
}

/// A name in one of the spellings that programs use.
fn spelled(words: &[&str], how: usize) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    match how {
        0 => words.join("_"),
        1 => words.join("-"),
        2 => words.join("_").to_uppercase(),
        3 => words[0].to_owned() + &words[1..].iter().map(|word| capital(word)).collect::<String>(),
        _ => words.iter().map(|word| capital(word)).collect::<Vec<_>>().join("-"),
    }
}

proptest::proptest! {
    /// Whatever stands around it, wherever it is: it is gone, and everything else is there.
    #[test]
    fn a_named_secret_is_hidden_in_any_spelling_at_any_depth(
        around in "[a-z]{3,8}",
        name in proptest::sample::select(vec!["password", "client secret", "api key", "access token"]),
        how in 0_usize..5,
        secret in "[!-~]{8,40}",
        depth in 0_usize..6,
    ) {
        let words: Vec<_> = std::iter::once(around.as_str()).chain(name.split(' ')).collect();
        let mut value = json!({ spelled(&words, how): secret.clone(), "plain": "stays" });
        for level in 0..depth {
            value = if level % 2 == 0 { json!([1, value]) } else { json!({ "inner": value }) };
        }
        let (hidden, found) = redacted(value);
        let text = hidden.to_string();
        let quoted = serde_json::to_string(&secret).expect("a text");
        proptest::prop_assert!(!text.contains(&quoted), "{text}");
        proptest::prop_assert!(text.contains("stays") && found.len() == 1, "{text} {found:?}");
    }
}

#[test]
fn the_places_are_pointers_into_the_value() {
    let before = json!({ "~/": [{ "x/~0": { "password": "p" } }], "": { "token": "t" } });
    let (after, found) = redacted(before.clone());
    assert_eq!(found.len(), 2);
    for (pointer, _) in found {
        assert!(before.pointer(&pointer).is_some_and(|value| value != HIDDEN), "{pointer}");
        assert_eq!(after.pointer(&pointer), Some(&json!(HIDDEN)), "{pointer}");
    }
}

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
        (r#"{"password": "hunter22"}"#.into(), r#"{"password": "[8 characters hidden]"}"#.into()),
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
