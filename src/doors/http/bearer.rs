//! Bearer authentication (RFC 6750): the credential of an `Authorization` header.

use axum::http::{HeaderMap, header};

/// Challenge to a request without a credential.
pub(in crate::doors) const CHALLENGE: &str = r#"Bearer realm="hivekeep""#;
/// Challenge to a request whose credential is none, or was revoked.
pub(in crate::doors) const INVALID: &str = r#"Bearer realm="hivekeep", error="invalid_token""#;
/// Challenge to a request whose credential does not reach so far.
pub(in crate::doors) const INSUFFICIENT: &str =
    r#"Bearer realm="hivekeep", error="insufficient_scope""#;

/// The credential that a request shows. One that shows two shows none.
pub(in crate::doors) fn of(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next()?, given.next());
    match second {
        None => token(first.as_bytes()),
        Some(_) => None,
    }
}

/// The token of an `Authorization: Bearer` header; the scheme's case is free.
fn token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_bearer_header_has_a_token() {
        assert_eq!(token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(token(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b"Basic abc"[..], b"Bearer", b"Bearerabc", b"", b"abc"] {
            assert_eq!(token(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn two_headers_show_no_credential() {
        let mut headers = HeaderMap::new();
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        assert_eq!(of(&headers), Some(&b"a"[..]));
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert_eq!(of(&headers), None);
    }
}
