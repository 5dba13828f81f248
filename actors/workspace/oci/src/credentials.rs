//! Credentials of registries: read from a file in the format of Docker's `config.json`, and given where a 401
//! asks for them, for a token or themselves.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_auth::{ChallengeParser, ChallengeRef};
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{Error, OciResult};

const FILE_BYTES: u64 = 1 << 20;
/// Key that Docker uses for its own registry.
const DOCKER_KEY: &str = "https://index.docker.io/v1/";

/// User and password for one registry; its text forms do not show them.
#[derive(Clone)]
pub(crate) struct RegistryLogin {
    pub(crate) user: Zeroizing<String>,
    pub(crate) password: Zeroizing<String>,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryLogin(..)")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthFile {
    #[serde(default)]
    auths: HashMap<String, AuthEntry>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize)]
struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// Finds the login for a registry, if the file has one. Blocks.
///
/// # Errors
/// `Credentials` when the file cannot be read, and when it leaves the registry to a helper
/// program: none is run.
pub(crate) fn login_for(file: &Path, registry: &str) -> OciResult<Option<RegistryLogin>> {
    if file.as_os_str().is_empty() {
        return Ok(None);
    }
    let no = |why: &str| Error::Credentials(format!("{}: {why}", file.display()));
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(file)
        .and_then(|file| file.take(FILE_BYTES).read_to_end(&mut bytes))
        .map_err(|error| no(&error.to_string()))?;
    // The parser's own message could quote the file.
    let parsed: AuthFile =
        serde_json::from_slice(&bytes).map_err(|_| no("it is not in the format of config.json"))?;
    let keys = [registry, &format!("https://{registry}"), &format!("https://{registry}/v1/")]
        .map(str::to_owned);
    let docker = (registry == "docker.io").then(|| DOCKER_KEY.to_owned());
    let entry = keys.iter().chain(&docker).find_map(|key| parsed.auths.get(key));
    let helper = parsed.cred_helpers.contains_key(registry) || parsed.creds_store.is_some();
    match entry {
        Some(AuthEntry { auth: Some(auth), .. }) if !auth.is_empty() => {
            decode(auth).map(Some).ok_or_else(|| no("an `auth` is not USER:PASSWORD in base64"))
        }
        Some(AuthEntry { username: Some(user), password: Some(password), .. }) => {
            let (user, password) = (user.clone().into(), password.clone().into());
            Ok(Some(RegistryLogin { user, password }))
        }
        Some(_) if helper => Err(no("it leaves the registry to a helper program; none is run")),
        Some(_) | None => Ok(None),
    }
}

fn decode(auth: &str) -> Option<RegistryLogin> {
    let bytes = Zeroizing::new(STANDARD.decode(auth.trim()).ok()?);
    let (user, password) = std::str::from_utf8(&bytes).ok()?.split_once(':')?;
    let (user, password) = (user.to_owned().into(), password.trim_end_matches('\0').to_owned());
    Some(RegistryLogin { user, password: password.into() })
}

/// Authentication that a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token of this server.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads the headers of an answer; a token is preferred.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let texts: Vec<_> =
            headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok()).collect();
        let all: Vec<_> = texts
            .iter()
            .flat_map(|text| ChallengeParser::new(text).filter_map(Result::ok))
            .collect();
        let basic = || all.iter().any(|it| it.scheme.eq_ignore_ascii_case("basic"));
        all.iter().find_map(bearer).or_else(|| basic().then_some(Self::Basic))
    }
}

fn bearer(challenge: &ChallengeRef<'_>) -> Option<Challenge> {
    if !challenge.scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let param = |name: &str| {
        let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_unescaped())
    };
    Some(Challenge::Bearer {
        realm: param("realm")?,
        service: param("service"),
        scope: param("scope"),
    })
}

/// Answer of a server of tokens.
#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

/// Header with the token of an answer.
pub(super) fn bearer_header(answer: &[u8]) -> Option<HeaderValue> {
    let answer: TokenAnswer = serde_json::from_slice(answer).ok()?;
    let token = Zeroizing::new(answer.token.or(answer.access_token)?);
    secret(&Zeroizing::new(format!("Bearer {}", token.as_str())))
}

/// Header with user and password.
pub(super) fn basic_header(login: &RegistryLogin) -> Option<HeaderValue> {
    let pair = Zeroizing::new(format!("{}:{}", login.user.as_str(), login.password.as_str()));
    let encoded = Zeroizing::new(STANDARD.encode(pair.as_bytes()));
    secret(&Zeroizing::new(format!("Basic {}", encoded.as_str())))
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    // Debug forms of requests leave it out.
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_by_registry_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let auth = STANDARD.encode("ann:s:cret");
        let text = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{auth}"}},
            "127.0.0.1:5000": {{"username": "bob", "password": "pw"}}, "helped.example": {{}},
            "bad.example": {{"auth": "c2VjcmV0"}}}}, "credsStore": "desktop"}}"#
        );
        std::fs::write(file.path(), text).unwrap();
        let found = |registry: &str| login_for(file.path(), registry);
        let ann = found("docker.io").unwrap().unwrap();
        assert_eq!((ann.user.as_str(), ann.password.as_str()), ("ann", "s:cret"));
        assert!(!format!("{ann:?}").contains("cret"));
        assert_eq!(found("127.0.0.1:5000").unwrap().unwrap().password.as_str(), "pw");
        assert!(found("other.example").unwrap().is_none());
        assert!(found("helped.example").unwrap_err().to_string().contains("helper"));
        let bad = found("bad.example").unwrap_err().to_string();
        assert!(!bad.contains("c2VjcmV0") && !bad.contains("secret"), "{bad}");
        std::fs::write(file.path(), "ann:s:cret").unwrap();
        assert!(!found("docker.io").unwrap_err().to_string().contains("cret"));
    }

    #[test]
    fn a_token_is_preferred_and_nonsense_is_none() {
        let of = |texts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for text in texts {
                headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(text));
            }
            Challenge::of(&headers)
        };
        let docker =
            r#"Bearer realm="https://a.example/token",service="s",scope="repository:b:pull""#;
        let Some(Challenge::Bearer { realm, service, scope }) = of(&[r#"Basic realm="r""#, docker])
        else {
            panic!("no token");
        };
        assert_eq!((realm.as_str(), service.as_deref()), ("https://a.example/token", Some("s")));
        assert_eq!(scope.as_deref(), Some("repository:b:pull"));
        assert_eq!(of(&[r#"Basic realm="r""#]), Some(Challenge::Basic));
        assert_eq!(of(&["Bearer"]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn headers_do_not_show_what_they_hold() {
        let login =
            RegistryLogin { user: "ann".to_owned().into(), password: "s3cret".to_owned().into() };
        let header = basic_header(&login).unwrap();
        assert_eq!(header.as_bytes(), b"Basic YW5uOnMzY3JldA==");
        assert!(!format!("{header:?}").contains("YW5u"));
        assert_eq!(bearer_header(br#"{"access_token": "t"}"#).unwrap().as_bytes(), b"Bearer t");
        assert!(bearer_header(b"{}").is_none());
    }
}
