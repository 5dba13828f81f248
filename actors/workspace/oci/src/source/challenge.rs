//! Authentication of registries: the challenge of a 401, and the token that answers it.

use base64::{Engine, engine::general_purpose::STANDARD};
use http_auth::{ChallengeParser, ChallengeRef};
use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::credentials::RegistryLogin;

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
