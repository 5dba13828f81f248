//! The address of a repository that a guest clones, with what must not be shown of it.

use std::fmt;

use hivekeep_kernel::ToolError;

/// Longest address, in bytes.
const MAX_BYTES: usize = 2048;
/// What git may be told to use. `ext::` and its like run programs that the address names.
const SCHEMES: [&str; 5] = ["https", "http", "git", "ssh", "file"];
/// Parts of an address shorter than this are not looked for in output: they are everywhere.
const LEAST_SECRET_BYTES: usize = 4;

/// A repository's address.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct GitUrl {
    whole: String,
    plain: String,
    secrets: Vec<String>,
}

impl GitUrl {
    /// Takes an address with one of the known schemes.
    ///
    /// # Errors
    /// `invalid_input`; the address is not repeated in it.
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let refused = |why: &str| {
            Err(ToolError::invalid(format!("git_url {why}"))
                .next("give https://, http://, git://, ssh://user@host/path or file:///path"))
        };
        if text.len() > MAX_BYTES {
            return refused("is longer than 2048 bytes");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refused("holds a space or a control character");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refused("has no scheme");
        };
        if !SCHEMES.contains(&scheme) {
            return refused("has a scheme that is not cloned from");
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if scheme == "file" {
            return match authority.is_empty() && path.starts_with('/') {
                true => Ok(Self { whole: text.into(), plain: text.into(), secrets: Vec::new() }),
                false => refused("of a file needs an absolute path, as in file:///srv/repository"),
            };
        }
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(user_info), host),
            None => (None, authority),
        };
        // Programs that git calls with them would take these for options.
        if host.is_empty() || host.starts_with('-') || user_info.is_some_and(|u| u.starts_with('-'))
        {
            return refused("names no host");
        }
        let (user, password) =
            match user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
                Some((user, password)) => (user, password),
                None => ("", ""),
            };
        // The user of ssh is no secret, and the address is another one without it.
        let (plain, secrets) = match (scheme, user_info) {
            ("ssh", Some(_)) => (format!("{scheme}://{user}@{host}{path}"), vec![password]),
            (_, Some(info)) => (format!("{scheme}://{host}{path}"), vec![info, password, user]),
            (_, None) => (text.to_owned(), Vec::new()),
        };
        let secrets = secrets.into_iter().filter(|secret| secret.len() >= LEAST_SECRET_BYTES);
        Ok(Self { whole: text.into(), plain, secrets: secrets.map(str::to_owned).collect() })
    }

    /// With credentials: for the guest's git alone.
    pub(crate) fn whole(&self) -> &str {
        &self.whole
    }

    /// Without credentials.
    pub(crate) fn plain(&self) -> &str {
        &self.plain
    }

    /// Takes the credentials out of a text.
    pub(crate) fn redact(&self, text: &str) -> String {
        let text = text.replace(&self.whole, &self.plain);
        self.secrets.iter().fold(text, |text, secret| text.replace(secret, "***"))
    }
}

impl fmt::Debug for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GitUrl").field(&self.plain).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_nowhere_but_in_the_whole() {
        for (text, plain) in [
            ("https://example.org/r.git", "https://example.org/r.git"),
            ("https://ghp_0123@example.org/r", "https://example.org/r"),
            ("http://me:s3cr3t@example.org:81/r?q", "http://example.org:81/r?q"),
            ("https://a@b:p@ss@example.org/r", "https://example.org/r"),
            ("ssh://git@example.org/r", "ssh://git@example.org/r"),
            ("ssh://git:s3cr3t@example.org/r", "ssh://git@example.org/r"),
            ("git://example.org", "git://example.org"),
            ("file:///srv/r.git", "file:///srv/r.git"),
        ] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!((url.whole(), url.plain()), (text, plain));
            assert!(!format!("{url:?}").contains("s3cr3t"));
        }
        let url = GitUrl::parse("https://me:s3cr3t@example.org/r").unwrap();
        let said = "https://me:s3cr3t@example.org/r, http://me:s3cr3t@other and s3cr3t alone";
        assert_eq!(url.redact(said), "https://example.org/r, http://***@other and *** alone");
    }

    #[test]
    fn what_runs_programs_or_is_no_address_is_refused() {
        for text in [
            "",
            "--upload-pack=/bin/sh",
            "-u",
            "ext::sh -c id",
            "ext::sh%20-c%20id",
            "fd::3",
            "ext://x",
            "/srv/r",
            "../r",
            "git@example.org:r",
            "file://host/r",
            "file://",
            "https://",
            "https:///r",
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
