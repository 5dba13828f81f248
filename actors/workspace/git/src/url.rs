//! Parser of repository addresses: separates the address that git gets from the login.

use std::fmt;

use hivekeep_kernel::ToolError;
use hivekeep_protocol::Secret;

use super::Login;

/// Maximum length of an address, in bytes.
const MAX_BYTES: usize = 2048;
/// Schemes that git may use. `ext::` and similar run programs that the address names.
const SCHEMES: [&str; 5] = ["https", "http", "git", "ssh", "file"];

/// Repository address without a password, which became a [`Login`].
#[derive(Clone, PartialEq, Eq)]
pub struct GitUrl {
    plain: String,
    origin: Option<String>,
    username: Option<String>,
    password: Option<Secret>,
}

impl GitUrl {
    /// Parses an address with one of the known schemes, or `user@host:path`.
    ///
    /// # Errors
    /// `invalid_input`, without repeating the address.
    pub fn parse(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            Err(ToolError::invalid(format!("the repository's address {why}")).next(
                "give https://, http://, git://, ssh://user@host/path, user@host:path or file:///path",
            ))
        };
        if text.len() > MAX_BYTES {
            return refused("is longer than 2048 bytes");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refused("contains a space or a control character");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return match is_scp(text) {
                true => Ok(Self::without_login(text)),
                false => refused("has no scheme"),
            };
        };
        if !SCHEMES.contains(&scheme) {
            return refused("has an unsupported scheme");
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if scheme == "file" {
            return match authority.is_empty() && path.starts_with('/') {
                true => Ok(Self::without_login(text)),
                false => refused("of a file needs an absolute path, as in file:///srv/repository"),
            };
        }
        let (info, host) = match authority.rsplit_once('@') {
            Some((info, host)) => (Some(info), host),
            None => (None, authority),
        };
        // Programs that git calls with these would take them for options.
        if host.is_empty() || host.starts_with('-') || info.is_some_and(|u| u.starts_with('-')) {
            return refused("names no host");
        }
        let (user, password) = match info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
            Some((user, password)) => (decoded(user), decoded(password)),
            None => (Some(String::new()), Some(String::new())),
        };
        let (Some(user), Some(password)) = (user, password) else {
            return refused("has a user or password with a broken % escape");
        };
        let some = |text: String| (!text.is_empty()).then_some(text);
        if scheme == "ssh" {
            // An ssh user is no secret, and the address is another one without it. ssh would not
            // take a password from here.
            let plain = match some(user) {
                Some(user) => format!("{scheme}://{user}@{host}{path}"),
                None => format!("{scheme}://{host}{path}"),
            };
            return Ok(Self::without_login(&plain));
        }
        let plain = format!("{scheme}://{host}{path}");
        Ok(Self {
            origin: origin_of(&plain),
            plain,
            username: some(user),
            password: some(password).map(Secret::new),
        })
    }

    fn without_login(plain: &str) -> Self {
        Self { plain: plain.to_owned(), origin: None, username: None, password: None }
    }

    /// Address without credentials.
    pub fn plain(&self) -> &str {
        &self.plain
    }

    /// Server that may ask for a password; `None` where git asks for none.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// User name in the address.
    pub fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    /// True if the address had a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Login in the address. A single word is tried as name and token at once, as tokens are often
    /// written that way.
    ///
    /// # Errors
    /// `invalid_input` for an invalid credential.
    pub fn login(&self) -> Result<Option<Login>, ToolError> {
        let Some(origin) = &self.origin else { return Ok(None) };
        match (&self.username, &self.password) {
            (username, Some(password)) => {
                Login::given(origin, username.as_deref(), password).map(Some)
            }
            (Some(word), None) => {
                Ok(Login::given(origin, Some(word), &Secret::new(word.clone())).ok())
            }
            (None, None) => Ok(None),
        }
    }

    /// Secret part of the address: the password, or the single word that may be a token.
    pub fn secret(&self) -> Option<Secret> {
        self.password.clone().or_else(|| self.username.clone().map(Secret::new))
    }
}

/// Origin of an http address: scheme, host and port in lower case, without user and default port.
pub(super) fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.to_ascii_lowercase();
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    (!host.is_empty()).then(|| format!("{scheme}://{host}"))
}

/// True for `user@host:path`.
fn is_scp(text: &str) -> bool {
    let Some((user, rest)) = text.split_once('@') else { return false };
    let Some((host, path)) = rest.split_once(':') else { return false };
    let plain = |text: &str| {
        let sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !text.is_empty() && !text.starts_with('-') && text.chars().all(sound)
    };
    plain(user) && plain(host) && !path.is_empty() && !path.starts_with([':', '-'])
}

/// Decodes percent escapes; `%40` is `@`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GitUrl").field(&self.plain).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_taken_apart() {
        for (text, plain, login) in [
            ("https://example.org/r.git", "https://example.org/r.git", None),
            (
                "https://ghp_0123@example.org/r",
                "https://example.org/r",
                Some(("https://example.org", "ghp_0123", "ghp_0123")),
            ),
            (
                "http://me:s3cr3t@Example.org:81/r?q",
                "http://Example.org:81/r?q",
                Some(("http://example.org:81", "me", "s3cr3t")),
            ),
            (
                "https://a%40b:p%2fss@example.org:443/r",
                "https://example.org:443/r",
                Some(("https://example.org", "a@b", "p/ss")),
            ),
            ("ssh://git@example.org/r", "ssh://git@example.org/r", None),
            ("ssh://git:s3cr3t@example.org/r", "ssh://git@example.org/r", None),
            ("git@example.org:team/r.git", "git@example.org:team/r.git", None),
            ("git://example.org", "git://example.org", None),
            ("file:///srv/r.git", "file:///srv/r.git", None),
        ] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!(url.plain(), plain);
            let found = match url.login().unwrap() {
                Some(login) => Some(login.credential().await.unwrap()),
                None => None,
            };
            let found = found
                .as_ref()
                .map(|it| (it.origin.as_str(), it.username.as_str(), it.secret.expose()));
            assert_eq!(found, login, "{text}");
            assert!(!format!("{url:?}").contains("s3cr3t"));
        }
    }

    #[test]
    fn what_runs_programs_or_is_no_address_is_refused() {
        for text in [
            "",
            "--upload-pack=/bin/sh",
            "-u",
            "-u@example.org:r",
            "ext::sh -c id",
            "ext::sh%20-c%20id",
            "a@ext::sh",
            "fd::3",
            "ext://x",
            "/srv/r",
            "../r",
            "example.org:r",
            "git@-oProxyCommand=id:r",
            "git@example.org:-r",
            "file://host/r",
            "file://",
            "https://",
            "https:///r",
            "https://a%4@example.org/r",
            "ssh://-oProxyCommand=id/r",
            "ssh://-l@example.org/r",
            "https://example.org/a b",
            "https://example.org/\u{7}",
            "HTTPS://example.org",
        ] {
            let refused = GitUrl::parse(text).expect_err(text);
            assert_eq!(refused.code, "invalid_input", "{text}");
        }
        let long = format!("https://example.org/{}", "x".repeat(MAX_BYTES));
        assert!(GitUrl::parse(&long).is_err());
        let refused = GitUrl::parse("gopher://me:s3cr3t@example.org").unwrap_err();
        assert!(!refused.to_text().contains("s3cr3t"));
    }
}
