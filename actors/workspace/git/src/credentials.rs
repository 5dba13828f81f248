//! Credential lookup: selects the login for a server from the call, the address or the host's
//! configuration.

use std::path::{Path, PathBuf};

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::GitCredentials;
use hivekeep_protocol::{Credential, Secret};
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GitUrl;
use crate::codes;

/// User name for servers where only the token counts.
const ANY_NAME: &str = "x-access-token";
/// Maximum length of a token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Minimum length of a token; a shorter one could not be recognised in output.
const LEAST_TOKEN_BYTES: usize = 4;

/// Section `[git]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GitOptions {
    /// Credentials that the git tools give to servers that ask for some, none by default. Each is a
    /// table: `[[git.credentials]]` with `host` and either `token_file` or `token_env`, and
    /// `username` where the server wants one. The first whose `host` fits is taken. The token
    /// itself is never part of the configuration; a workspace's git is told it for one command.
    pub credentials: Vec<HostCredential>,
    /// A file of the host with certificates (PEM) of authorities that the git tools trust beside
    /// those of the image, for servers of one's own. Read anew for each command. A workspace
    /// whose environment has GIT_SSL_CAINFO chooses for itself.
    pub ca_file: Option<PathBuf>,
}

/// A token for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostCredential {
    /// The server: `example.org`, `example.org:8443`, or `*.example.org` for all below it. https
    /// is meant; `http://` in front allows what is not encrypted, and only that.
    pub host: String,
    /// The user's name; left out for servers that only look at the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// A file of the host that holds the token, read anew for each command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// A variable of the daemon's environment that holds the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
}

/// A credential that a call brings along.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallCredential {
    /// The user's name; left out for servers that only look at the token.
    pub username: Option<String>,
    /// Token or password. It reaches git for this one command and is kept nowhere.
    #[schemars(with = "String")]
    pub token: Secret,
    /// The only server that may be told, as `example.org` or `example.org:8443`; https is meant,
    /// unless it begins with `http://`. Default: the one that the address or the remote names.
    /// Give it where the repository's own configuration is not to be trusted with the choice.
    pub host: Option<String>,
}

impl CallCredential {
    /// Makes a login for the server that would receive the credential.
    ///
    /// # Errors
    /// `credential_for_another_server`; `invalid_input`.
    pub fn login(&self, origin: &str, username: Option<&str>) -> Result<Login, ToolError> {
        if let Some(host) = &self.host {
            if !is_pattern(host) {
                return Err(ToolError::invalid("credential: host is not a valid server name")
                    .next("give it as example.org, example.org:8443 or http://example.org"));
            }
            if !fits(host, origin) {
                let shown: String = origin.chars().take(300).collect();
                let message = format!("the server is {shown}, and the credential is not for it");
                let code = codes::CREDENTIAL_FOR_ANOTHER_SERVER;
                return Err(ToolError::new(Layer::Actor, code, message).next(
                    "look at the address with `git remote -v` by exec before anything else",
                ));
            }
        }
        Login::given(origin, self.username.as_deref().or(username), &self.token)
    }
}

/// Login whose token is not read yet.
#[derive(Debug, Clone)]
pub struct Login {
    origin: String,
    username: String,
    token: Token,
}

#[derive(Debug, Clone)]
enum Token {
    Given(Secret),
    File(PathBuf),
    Env(String),
}

impl Login {
    /// True if the token is the operator's, which the caller does not know.
    pub fn is_configured(&self) -> bool {
        !matches!(self.token, Token::Given(_))
    }

    /// Makes a login from a call's or an address's credential.
    ///
    /// # Errors
    /// `invalid_input`, without the token.
    pub fn given(origin: &str, username: Option<&str>, token: &Secret) -> Result<Self, ToolError> {
        checked(token.expose())
            .map_err(|why| ToolError::invalid(format!("credential: the token {why}")))?;
        let username = username.unwrap_or(ANY_NAME);
        if username.is_empty() || username.contains(|c: char| c.is_control()) {
            return Err(ToolError::invalid(
                "credential: username is empty or contains a control character",
            ));
        }
        let (origin, username) = (origin.to_owned(), username.to_owned());
        Ok(Self { origin, username, token: Token::Given(token.clone()) })
    }

    /// Reads the token.
    ///
    /// # Errors
    /// `credential_unavailable`, with what the operator has to fix.
    pub async fn credential(&self) -> Result<Credential, ToolError> {
        let (text, place) = match &self.token {
            Token::Given(secret) => return Ok(self.with(secret.clone())),
            Token::File(path) => (read(path).await, format!("file {}", path.display())),
            Token::Env(name) => {
                let value = std::env::var(name).map_err(|error| error.to_string());
                (value, format!("variable {name}"))
            }
        };
        let token = text.and_then(|text| {
            let token = text.trim_end_matches(['\r', '\n']);
            checked(token).map_err(str::to_owned)?;
            Ok(Secret::new(token.to_owned()))
        });
        token.map(|token| self.with(token)).map_err(|why| {
            let message = format!("the configured token for {} in {place}: {why}", self.origin);
            ToolError::new(Layer::Machine, codes::CREDENTIAL_UNAVAILABLE, message)
                .next("mend git.credentials on the host, or give `credential` with the call")
        })
    }

    fn with(&self, secret: Secret) -> Credential {
        Credential { origin: self.origin.clone(), username: self.username.clone(), secret }
    }
}

async fn read(path: &Path) -> Result<String, String> {
    let bytes = tokio::fs::read(path).await.map_err(|error| error.to_string())?;
    let secret = String::from_utf8(bytes).map_err(|_| "is not UTF-8 text".to_owned())?;
    Ok(secret)
}

/// Checks that a token can answer a prompt and be hidden in output.
fn checked(token: &str) -> Result<(), &'static str> {
    match token.len() {
        0..LEAST_TOKEN_BYTES => Err("is shorter than 4 bytes"),
        LEAST_TOKEN_BYTES..=MAX_TOKEN_BYTES => match token.contains(|c: char| c.is_control()) {
            true => Err("contains a control character"),
            false => Ok(()),
        },
        _ => Err("is longer than 16384 bytes"),
    }
}

impl GitCredentials for GitOptions {
    fn used_for(&self, url: &str) -> Option<String> {
        let origin = GitUrl::parse(url).ok()?.origin()?.to_owned();
        self.credentials.iter().find(|it| fits(&it.host, &origin)).map(|it| it.host.clone())
    }
}

impl GitOptions {
    /// Configured login for an origin.
    pub fn login(&self, origin: &str, username: Option<&str>) -> Option<Login> {
        let found = self.credentials.iter().find(|it| fits(&it.host, origin))?;
        let token = match (&found.token_file, &found.token_env) {
            (Some(path), _) => Token::File(path.clone()),
            (None, Some(name)) => Token::Env(name.clone()),
            (None, None) => return None,
        };
        let username = found.username.as_deref().or(username).unwrap_or(ANY_NAME).to_owned();
        Some(Login { origin: origin.to_owned(), username, token })
    }

    /// Login for an address: from the call, else from the address, else from the configuration.
    ///
    /// # Errors
    /// `invalid_input` for an invalid credential, or one that no server would ask for.
    pub fn login_for(
        &self,
        url: &GitUrl,
        given: Option<&CallCredential>,
    ) -> Result<Option<Login>, ToolError> {
        match (given, url.origin()) {
            (Some(given), Some(origin)) => given.login(origin, url.username()).map(Some),
            (Some(_), None) => {
                Err(ToolError::invalid("a credential is asked for by http and https servers alone")
                    .next("leave `credential` out"))
            }
            (None, Some(origin)) if !url.has_password() => {
                match self.login(origin, url.username()) {
                    Some(login) => Ok(Some(login)),
                    None => url.login(),
                }
            }
            (None, _) => url.login(),
        }
    }
}

impl FamilyOptions for GitOptions {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if self.ca_file.as_ref().is_some_and(|path| !path.is_absolute()) {
            wrong.push(("ca_file", "must be an absolute path".to_owned()));
        }
        for (nth, it) in (1..).zip(&self.credentials) {
            let mut add = |why: &str| wrong.push(("credentials", format!("entry {nth}: {why}")));
            if !is_pattern(&it.host) {
                add("host must be a name such as example.org, *.example.org or example.org:8443");
            }
            if it.token_file.is_some() == it.token_env.is_some() {
                add("give either token_file or token_env");
            }
            if it.token_file.as_ref().is_some_and(|path| !path.is_absolute()) {
                add("token_file must be an absolute path");
            }
            if it.username.as_ref().is_some_and(|name| name.is_empty()) {
                add("username is empty");
            }
        }
        wrong
    }
}

/// Splits a pattern into scheme and server, without the default port, which no origin has.
fn split_scheme(pattern: &str) -> (&str, &str) {
    let (scheme, host) = pattern.split_once("://").unwrap_or(("https", pattern));
    let port = if scheme == "http" { ":80" } else { ":443" };
    (scheme, host.strip_suffix(port).unwrap_or(host))
}

fn is_pattern(pattern: &str) -> bool {
    let (scheme, host) = split_scheme(pattern);
    let name = host.strip_prefix("*.").unwrap_or(host);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-:[]_".contains(c);
    matches!(scheme, "https" | "http")
        && !name.is_empty()
        && !name.starts_with(['.', '-', ':'])
        && name.chars().all(plain)
}

fn fits(pattern: &str, origin: &str) -> bool {
    let (scheme, wanted) = split_scheme(pattern);
    let Some((origin_scheme, host)) = origin.split_once("://") else { return false };
    let named = match wanted.strip_prefix('*') {
        Some(below) => host.len() > below.len() && host.ends_with(below),
        None => host == wanted,
    };
    scheme == origin_scheme && named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str) -> HostCredential {
        HostCredential {
            host: host.into(),
            username: None,
            token_file: None,
            token_env: Some("T".into()),
        }
    }

    fn options(credentials: Vec<HostCredential>) -> GitOptions {
        GitOptions { credentials, ca_file: None }
    }

    #[test]
    fn only_the_server_that_is_meant_gets_a_configured_token() {
        for (pattern, origin, expected) in [
            ("example.org", "https://example.org", true),
            ("example.org", "http://example.org", false),
            ("example.org", "https://example.org:8443", false),
            ("example.org:8443", "https://example.org:8443", true),
            ("example.org", "https://a.example.org", false),
            ("example.org:443", "https://example.org", true),
            ("http://example.org:80", "http://example.org", true),
            ("example.org:80", "https://example.org", false),
            ("*.example.org:443", "https://a.example.org", true),
            ("[::1]:443", "https://[::1]", true),
            ("*.example.org", "https://a.b.example.org", true),
            ("*.example.org", "https://example.org", false),
            ("*.example.org", "https://evilexample.org", false),
            ("http://127.0.0.1:81", "http://127.0.0.1:81", true),
            ("http://127.0.0.1:81", "https://127.0.0.1:81", false),
        ] {
            let options = options(vec![of(pattern)]);
            assert!(options.problems().is_empty(), "{pattern}");
            assert_eq!(options.login(origin, None).is_some(), expected, "{pattern} {origin}");
        }
    }

    #[test]
    fn what_cannot_work_is_said() {
        for host in
            ["", ":443", "*", "*.", "https://", "ssh://h", "Example.org", "h/x", "a b", "*.*.org"]
        {
            assert!(!options(vec![of(host)]).problems().is_empty(), "{host}");
        }
        let relative = HostCredential {
            token_env: None,
            token_file: Some("token".into()),
            ..of("example.org")
        };
        let both = HostCredential { token_env: Some("T".into()), ..relative.clone() };
        let neither = HostCredential { token_env: None, ..of("example.org") };
        let mut options = options(vec![relative, both, neither]);
        options.ca_file = Some("ca.pem".into());
        assert_eq!(options.problems().len(), 5, "{:?}", options.problems());
    }

    #[tokio::test]
    async fn a_token_is_read_when_it_is_needed_and_an_absent_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let entry = HostCredential { token_env: None, token_file: Some(file.clone()), ..of("h") };
        let options = options(vec![entry]);
        let login = options.login("https://h", None).unwrap();
        let missing = login.credential().await.unwrap_err();
        assert_eq!(missing.code, "credential_unavailable");
        std::fs::write(&file, "s3cr3t-t0ken\n").unwrap();
        let credential = login.credential().await.unwrap();
        assert_eq!(credential.secret.expose(), "s3cr3t-t0ken");
        assert_eq!(credential.username, ANY_NAME);
        let shown = format!("{credential:?} {login:?} {options:?}");
        assert!(!shown.contains("s3cr3t"), "{shown}");
        std::fs::write(&file, "two\nlines").unwrap();
        assert_eq!(login.credential().await.unwrap_err().code, "credential_unavailable");
        let given = Login::given("https://h", None, &Secret::new("a\nb-s3cr3t".into()));
        let refused = given.unwrap_err();
        assert!(refused.code == "invalid_input" && !refused.to_text().contains("s3cr3t"));
    }
}
