//! Rules of servers.

use super::{
    server::{Server, no_rules, ok, redirect, reply},
    stage::{Stage, options},
};
use crate::Options;

const RULES: &str =
    "User-agent: *\nDisallow: /\n\nUser-agent: hivekeep\nDisallow: /private\nAllow: /\n";

#[tokio::test]
async fn rules_are_obeyed_and_read_once() {
    let server = Server::new(|asked, _| match asked.path.as_str() {
        "/robots.txt" => ok("text/plain", RULES),
        _ => ok("text/plain", "page"),
    })
    .await;
    let stage = Stage::new(&options());
    for path in ["/", "/public", "/other/private"] {
        assert_eq!(stage.good(&server.url(path)).await.content, "page", "{path}");
    }
    for path in ["/private", "/private/x?y=z", "/%70rivate"] {
        let code = stage.fetch(&server.url(path)).await.map(|page| page.content);
        let refused = code.is_err_and(|error| error.code == "web_robots_denied");
        // The escaped form is the same path to servers, but not to every reader of rules.
        assert!(refused || path.contains('%'), "{path}");
    }
    let rules = server.asked().iter().filter(|line| line.contains("robots.txt")).count();
    assert_eq!(rules, 1);
    assert!(!server.asked().iter().any(|line| line.starts_with("get /private")));
}

#[tokio::test]
async fn the_rules_of_each_hop_count() {
    let strict = Server::new(|asked, _| match asked.path.as_str() {
        "/robots.txt" => ok("text/plain", "User-agent: *\nDisallow: /"),
        _ => ok("text/plain", "page"),
    })
    .await;
    let to = strict.url("/page");
    let server = Server::new(no_rules(move |_| redirect(&to))).await;
    assert_eq!(Stage::new(&options()).refused(&server.url("/")).await, "web_robots_denied");
    assert_eq!(strict.pages_asked(), 0);
}

#[tokio::test]
async fn rules_that_cannot_be_had_exclude_everything() {
    let stage = Stage::new(&options());
    for (status, fetched) in
        [("503 No", false), ("429 No", false), ("403 No", true), ("410 No", true)]
    {
        let server = Server::new(move |asked, _| match asked.path.as_str() {
            "/robots.txt" => reply(status, &[], ""),
            _ => ok("text/plain", "page"),
        })
        .await;
        match stage.fetch(&server.url("/")).await {
            Ok(page) => assert!(fetched, "{status}: {page:?}"),
            Err(error) => {
                assert_eq!((&*error.code, fetched), ("web_robots_denied", false), "{status}")
            }
        }
    }
}

#[tokio::test]
async fn rules_do_not_lead_inside_and_are_bounded() {
    let stage = Stage::new(&options());
    let server = Server::new(|_, _| redirect("http://127.0.0.2:1/robots.txt")).await;
    assert_eq!(stage.refused(&server.url("/")).await, "web_address_refused");
    let large = "# padding\n".repeat(100_000) + "User-agent: *\nDisallow: /";
    let server = Server::new(move |asked, _| match asked.path.as_str() {
        "/robots.txt" => ok("text/plain", &large),
        _ => ok("text/plain", "page"),
    })
    .await;
    assert_eq!(stage.good(&server.url("/")).await.content, "page", "the end is not looked at");
}

#[tokio::test]
async fn requests_say_who_asks_and_carry_nothing_else() {
    let server = Server::new(no_rules(|_| {
        let cookie = [("content-type", "text/plain"), ("set-cookie", "a=b")];
        reply("200 OK", &cookie, "page")
    }))
    .await;
    let contact_url = Some("https://example.org/robot".to_owned());
    let stage = Stage::new(&Options { contact_url, ..options() });
    for _ in 0..2 {
        stage.good(&server.url("/")).await;
    }
    let agent = concat!(
        "user-agent: hivekeep/",
        env!("CARGO_PKG_VERSION"),
        " (+https://example.org/robot)"
    );
    for head in server.heads() {
        assert!(head.contains(agent), "{head}");
        assert!(!head.contains("cookie") && !head.contains("referer"), "{head}");
    }
}
