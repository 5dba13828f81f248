//! Cookies of an answer on its way through: an origin sets none for another, and none of the daemon's own.

use axum::http::{HeaderMap, HeaderValue, header};

/// Name of the cookie that a signed link to a port becomes.
pub const PORT_COOKIE: &str = "hivekeep_port";

/// The value of a pair `name=value` if it is the daemon's cookie.
pub fn port_cookie(pair: &str) -> Option<&str> {
    pair.trim().split_once('=').filter(|(name, _)| name.trim_end() == PORT_COOKIE).map(|(_, it)| it)
}

/// Keeps the cookies of an answer to the host that it comes from, and the daemon's own out of it.
pub fn confine(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for value in all {
        let confined = value
            .to_str()
            .ok()
            .filter(|text| text.split(';').next().is_some_and(|pair| port_cookie(pair).is_none()));
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

    #[test]
    fn an_answer_sets_cookies_for_its_own_host_alone() {
        let set = [
            "a=1; Domain=localhost; Path=/; HttpOnly",
            "b=domain=x; path=/;DOMAIN = .localhost",
            "hivekeep_port=forged; Path=/",
            "domain=mine",
        ];
        let mut headers: HeaderMap = set
            .map(|one| (header::SET_COOKIE, HeaderValue::from_static(one)))
            .into_iter()
            .collect();
        confine(&mut headers);
        let left = ["a=1; Path=/; HttpOnly", "b=domain=x; path=/", "domain=mine"];
        assert_eq!(headers.get_all(header::SET_COOKIE).iter().collect::<Vec<_>>(), left);
    }
}
