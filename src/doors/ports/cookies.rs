//! Cookies on their way through: the daemon's own stay here, and an origin sets none for another.

use axum::http::{HeaderMap, HeaderValue, header};

/// Name of the cookie that a signed link becomes.
const NAME: &str = "hivekeep_port";

/// Cookie of a token, for this host alone and for as long as the token lasts.
pub(super) fn set(token: &str, max_age_secs: i64, scheme: &str) -> String {
    let secure = if scheme == "https" { "; Secure" } else { "" };
    format!("{NAME}={token}; Path=/; Max-Age={max_age_secs}; HttpOnly; SameSite=Lax{secure}")
}

/// The daemon's cookies of a request: there is more than one where somebody has set another.
pub(super) fn ours(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let ours = all.flat_map(|value| value.split(';')).filter_map(named_ours);
    ours.map(str::to_owned).collect()
}

/// The value of a pair if it is the daemon's cookie.
fn named_ours(pair: &str) -> Option<&str> {
    pair.trim().split_once('=').filter(|(name, _)| name.trim_end() == NAME).map(|(_, it)| it)
}

/// Takes the daemon's cookies out of a request.
pub(super) fn strip(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for value in all {
        let Ok(text) = value.to_str() else {
            // A value with bytes that no cookie has may hold the daemon's, and is not passed on.
            continue;
        };
        let theirs: Vec<&str> =
            text.split(';').map(str::trim).filter(|pair| named_ours(pair).is_none()).collect();
        if let Ok(value) = HeaderValue::from_str(&theirs.join("; "))
            && !value.is_empty()
        {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Keeps the cookies of an answer to the host that it comes from, and the daemon's own out of it.
pub(in crate::doors) fn confine(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for value in all {
        let confined = value
            .to_str()
            .ok()
            .filter(|text| text.split(';').next().is_some_and(|pair| named_ours(pair).is_none()));
        let confined = confined.map(|text| {
            let wide = |part: &&str| {
                let name = part.split('=').next().unwrap_or_default().trim();
                !name.eq_ignore_ascii_case("domain")
            };
            text.split(';')
                .enumerate()
                .filter(|(at, part)| *at == 0 || wide(part))
                .map(|(_, part)| part)
                .collect::<Vec<_>>()
                .join(";")
        });
        if let Some(value) = confined.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.append(header::SET_COOKIE, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn values(headers: &HeaderMap, name: header::HeaderName) -> Vec<&str> {
        headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
    }

    #[test]
    fn ours_are_found_and_taken_out_of_a_request() {
        let sent = ["a=1; hivekeep_port=x.y; b=2", "hivekeep_port=z", "hivekeep_portal=3; c"];
        let mut headers = headers(header::COOKIE, &sent);
        assert_eq!(ours(&headers), ["x.y", "z"]);
        strip(&mut headers);
        assert_eq!(values(&headers, header::COOKIE), ["a=1; b=2", "hivekeep_portal=3; c"]);
    }

    #[test]
    fn an_answer_sets_cookies_for_its_own_host_alone() {
        let set = [
            "a=1; Domain=localhost; Path=/; HttpOnly",
            "b=domain=x; path=/;DOMAIN = .localhost",
            "hivekeep_port=forged; Path=/",
            "domain=mine",
        ];
        let mut headers = headers(header::SET_COOKIE, &set);
        confine(&mut headers);
        let left = ["a=1; Path=/; HttpOnly", "b=domain=x; path=/", "domain=mine"];
        assert_eq!(values(&headers, header::SET_COOKIE), left);
    }
}
