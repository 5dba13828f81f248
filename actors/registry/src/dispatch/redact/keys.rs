//! Judgment of key names: which ones name a credential.
//!
//! A key is read as words: `clientSecret`, `client-secret` and `CLIENT_SECRET` are `client secret`. It
//! names a credential when the words of one stand in it and no later word makes it the name of something
//! else: `client_secret` does, `secretary` and `secret_name` do not. A token is one of many things, so
//! the word before it counts, too: `access_token` and not `next_page_token`. Several tokens are a number
//! of them, unless they are for access.

use crate::RedactionOptions;

/// Words that are a credential by themselves, or together.
const CREDENTIALS: [&[&str]; 26] = [
    &["password"],
    &["passwords"],
    &["passwd"],
    &["pwd"],
    &["passphrase"],
    &["passcode"],
    &["secret"],
    &["secrets"],
    &["authorization"],
    &["bearer"],
    &["credential"],
    &["credentials"],
    &["cookie"],
    &["cookies"],
    &["pkce"],
    &["apikey"],
    &["privatekey"],
    &["accesskey"],
    &["api", "key"],
    &["api", "keys"],
    &["access", "key"],
    &["private", "key"],
    &["encryption", "key"],
    &["signing", "key"],
    &["oauth", "code"],
    &["code", "verifier"],
];

/// Words before `tokens` that make them credentials.
const ACCESS: [&str; 9] =
    ["access", "refresh", "auth", "oauth", "id", "api", "bearer", "session", "csrf"];

/// Words before `token` that make it another kind of token: of pages, of models, of counting.
const OTHER_TOKENS: [&str; 18] = [
    "page",
    "next",
    "previous",
    "prev",
    "continuation",
    "pagination",
    "cursor",
    "sync",
    "resume",
    "start",
    "end",
    "stop",
    "max",
    "min",
    "per",
    "eos",
    "bos",
    "pad",
];

/// Last words of keys that name something about a credential and not the credential.
const ABOUT: [&str; 57] = [
    "present", "exists", "set", "missing", "valid", "invalid", "required", "optional", "enabled",
    "disabled", "count", "counts", "total", "limit", "limits", "max", "min", "length", "size",
    "bytes", "used", "usage", "budget", "bucket", "rate", "cost", "left", "type", "types", "kind",
    "name", "names", "id", "ids", "arn", "version", "policy", "policies", "url", "uri", "endpoint",
    "file", "path", "env", "at", "in", "on", "secs", "seconds", "hours", "expiry", "ttl", "status",
    "scopes", "command", "helper", "program",
];

/// Which key names are sensitive, as configured.
#[derive(Debug)]
pub(super) struct Keys {
    enabled: bool,
    extra: Vec<Vec<String>>,
    exempt: Vec<Vec<String>>,
}

/// Kind of value that a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The value may be anything.
    Nothing,
    /// The value is a token, unless it is a number.
    Token,
    /// The value is a credential.
    Credential,
}

impl Keys {
    pub(super) fn new(options: &RedactionOptions) -> Self {
        let all = |keys: &[String]| keys.iter().map(|key| words(key)).collect();
        Self {
            enabled: options.enabled,
            extra: all(&options.extra_keys),
            exempt: all(&options.exempt_keys),
        }
    }

    pub(super) fn judge(&self, key: &str) -> Named {
        if !self.enabled {
            return Named::Nothing;
        }
        let words = words(key);
        if self.exempt.contains(&words) {
            return Named::Nothing;
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let has = |phrase: &[&str]| words.windows(phrase.len().max(1)).any(|part| part == phrase);
        let extra =
            |phrase: &Vec<String>| has(&phrase.iter().map(String::as_str).collect::<Vec<_>>());
        if self.extra.iter().any(extra) {
            return Named::Credential;
        }
        if words.last().is_some_and(|last| ABOUT.contains(last)) {
            return Named::Nothing;
        }
        if CREDENTIALS.iter().any(|phrase| has(phrase)) {
            return Named::Credential;
        }
        let token = |(at, word): (usize, &&str)| {
            let before = at.checked_sub(1).map_or("", |before| words[before]);
            match *word {
                "token" => !OTHER_TOKENS.contains(&before),
                "tokens" => ACCESS.contains(&before),
                _ => false,
            }
        };
        if words.iter().enumerate().any(token) { Named::Token } else { Named::Nothing }
    }
}

/// The words of a key in lower case. A word ends before a capital behind a small letter or a digit,
/// before the last capital of several (`APIKey`), and at everything that is no letter. Digits are none.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let all: Vec<char> = key.chars().collect();
    for (at, &c) in all.iter().enumerate() {
        if !c.is_alphabetic() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| all[before]);
        let after = all.get(at + 1);
        let begins = c.is_uppercase()
            && (before.is_some_and(char::is_lowercase)
                || before.is_some_and(char::is_uppercase)
                    && after.is_some_and(|c| c.is_lowercase()));
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(extra: &[&str], exempt: &[&str]) -> Keys {
        let own = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        Keys::new(&RedactionOptions {
            extra_keys: own(extra),
            exempt_keys: own(exempt),
            ..RedactionOptions::default()
        })
    }

    #[test]
    fn what_names_a_credential_in_any_spelling() {
        for key in [
            "password",
            "PASSWORD",
            "db_password",
            "dbPassword",
            "DB-PASSWORD",
            "password2",
            "passwordOld",
            "api_key",
            "apiKey",
            "APIKey",
            "api-key",
            "X-Api-Key",
            "apikey",
            "OPENAI_API_KEY",
            "api keys",
            "client_secret",
            "clientSecret",
            "secret",
            "secrets",
            "secret_access_key",
            "aws.secret",
            "authorization",
            "Authorization",
            "Proxy-Authorization",
            "private_key",
            "privateKeyPem",
            "credentials",
            "set-cookie",
            "oauth_code",
            "pkce_verifier",
            "code_verifier",
            "passphrase",
            "password_hash",
            "passwd",
            "bearer",
            "signing_key",
            "secretKey",
            "password_prod",
        ] {
            assert_eq!(keys(&[], &[]).judge(key), Named::Credential, "{key}");
        }
        for key in [
            "token",
            "Token",
            "access_token",
            "accessToken",
            "refresh_token",
            "id_token",
            "github_token",
            "GITHUB_TOKEN",
            "x-auth-token",
            "token_github",
            "csrfToken",
            "access_tokens",
            "npmToken",
        ] {
            assert_eq!(keys(&[], &[]).judge(key), Named::Token, "{key}");
        }
    }

    #[test]
    fn what_only_looks_like_one_is_left_alone() {
        for key in [
            "max_tokens",
            "total_tokens",
            "prompt_tokens",
            "maxTokens",
            "tokens",
            "token_count",
            "next_page_token",
            "nextPageToken",
            "page_token",
            "continuation_token",
            "nextToken",
            "secretary",
            "secretariat",
            "token_present",
            "tokenPresent",
            "tokenizer",
            "tokens_per_minute",
            "token_type",
            "token_endpoint",
            "token_url",
            "token_bucket",
            "token_budget",
            "eos_token",
            "secret_name",
            "secret_arn",
            "password_policy",
            "password_min",
            "password_length",
            "authorization_url",
            "author",
            "authors",
            "authored",
            "passwordless",
            "api_key_id",
            "api_key_name",
            "public_key",
            "key",
            "keys",
            "keyboard",
            "monkey",
            "primary_key",
            "access",
            "basic",
            "path",
            "compass",
            "bypass",
            "passed",
            "cookie_policy",
            "credential_type",
            "",
            "_",
            "9",
            "token_expires_at",
            "expires_in",
            "api",
            "code",
            "status_code",
            "oauth_scopes",
            "sync_token",
        ] {
            assert_eq!(keys(&[], &[]).judge(key), Named::Nothing, "{key}");
        }
    }

    #[test]
    fn the_operator_adds_and_exempts_keys_as_words() {
        let keys = keys(&["licence key", "pin"], &["session-token", "db_password"]);
        for key in ["licenceKey", "LICENCE_KEY", "my-licence-key-id", "pin", "card.pin"] {
            assert_eq!(keys.judge(key), Named::Credential, "{key}");
        }
        for key in ["sessionToken", "DB_PASSWORD", "pinned", "spin", "licence"] {
            assert_eq!(keys.judge(key), Named::Nothing, "{key}");
        }
        assert_eq!(
            keys.judge("my_session_token"),
            Named::Token,
            "the whole key is exempt, not a part"
        );
    }
}
