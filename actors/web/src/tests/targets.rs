//! Where a fetch may go, at each hop.

use std::sync::Arc;

use serde_json::json;

use super::{
    server::{Server, no_rules, ok, redirect, reply},
    stage::{Stage, options},
};
use crate::Options;

/// A server that nobody may reach.
pub(super) async fn forbidden() -> Server {
    Server::at(("127.0.0.2", 0), None, |_, _| ok("text/plain", "secret")).await
}

#[tokio::test]
async fn what_is_not_of_the_internet_is_never_connected_to() {
    let secret = forbidden().await;
    let stage = Stage::with_names(&options(), &[("inside.test", &["127.0.0.2"])]);
    let port = secret.at.port();
    for host in [
        "127.0.0.2",
        "2130706434",
        "0x7f.2",
        "017700000002",
        "127.2",
        "127.0.0.2.",
        "１２７。0.0.2",
        "[::1]",
        "[::ffff:127.0.0.2]",
        "[::127.0.0.2]",
        "[64:ff9b::7f00:2]",
        "[2002:7f00:2::]",
        "[fe80::1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "0",
        "255.255.255.255",
        "inside.test",
        "inside.test.",
        "INSIDE.test",
    ] {
        let url = format!("http://{host}:{port}/");
        let code = stage.refused(&url).await;
        // A name with a dot at its end is another one to the resolver, which does not know it.
        let fits = ["web_address_refused", "web_unreachable"].contains(&code.as_str());
        assert!(code == "web_address_refused" || host.ends_with('.') && fits, "{url}: {code}");
    }
    assert_eq!(secret.asked(), [""; 0]);
}

#[tokio::test]
async fn urls_that_are_none_of_the_web_are_refused() {
    let stage = Stage::new(&options());
    for url in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "gopher://127.0.0.1:70/_x",
        "data:text/plain,x",
        "http://user@127.0.0.1/",
        "http://user:password@127.0.0.1/",
        "http://:password@127.0.0.1/",
        "http://",
        "//127.0.0.1/",
        "127.0.0.1",
    ] {
        assert_eq!(stage.refused(url).await, "web_url_refused", "{url}");
    }
}

#[tokio::test]
async fn each_hop_of_a_redirect_is_judged() {
    let secret = forbidden().await;
    let inside = secret.at;
    let server = Server::new(no_rules(move |asked| match asked.path.as_str() {
        "/metadata" => redirect("http://169.254.169.254/latest/meta-data/"),
        "/inside" => redirect(&format!("http://{inside}/")),
        "/name" => redirect(&format!("http://inside.test:{}/", inside.port())),
        "/user" => redirect("http://a:b@127.0.0.1/"),
        "/file" => redirect("file:///etc/passwd"),
        "/loop" => redirect("/loop"),
        "/bad" => redirect("http://[bad"),
        "/0" => ok("text/plain", "at last"),
        other => redirect(&format!("/{}", other[1..].parse::<u32>().expect("a number") - 1)),
    }))
    .await;
    let stage = Stage::with_names(&options(), &[("inside.test", &["127.0.0.2"])]);
    for (path, code) in [
        ("/metadata", "web_address_refused"),
        ("/inside", "web_address_refused"),
        ("/name", "web_address_refused"),
        ("/user", "web_url_refused"),
        ("/file", "web_url_refused"),
        ("/loop", "web_redirect_failed"),
        ("/bad", "web_redirect_failed"),
        ("/11", "web_redirect_failed"),
    ] {
        assert_eq!(stage.refused(&server.url(path)).await, code, "{path}");
    }
    assert_eq!(secret.asked(), [""; 0]);
    let page = stage.good(&server.url("/10")).await;
    assert_eq!((page.content.as_str(), page.redirects.len()), ("at last", 10));
    assert_eq!((page.redirects[0].as_str(), &page.url), (&*server.url("/10"), &server.url("/0")));
    let args = json!({ "url": server.url("/metadata"), "follow_redirects": false });
    let page = stage.fetch_with(args).await.expect("an answer");
    assert_eq!((page.status, page.ok), (302, false));
    assert_eq!(page.location.as_deref(), Some("http://169.254.169.254/latest/meta-data/"));
}

#[tokio::test]
async fn a_name_that_changes_its_address_meanwhile_leads_nowhere() {
    let server = Server::new(no_rules(|asked| match asked.path.as_str() {
        "/again" => redirect("/page"),
        _ => ok("text/plain", "good"),
    }))
    .await;
    // Each connection resolves anew: rules, first page, second page.
    let same_port = ("127.0.0.2", server.at.port());
    let secret = Server::at(same_port, None, |_, _| ok("text/plain", "secret")).await;
    let turns: [&[&str]; 3] =
        [&["127.0.0.2"], &["127.0.0.1", "127.0.0.2"], &["127.0.0.1", "127.0.0.1", "127.0.0.2"]];
    for turns in turns {
        let stage = Stage::with_names(&options(), &[("rebind.test", turns)]);
        let url = server.named("rebind.test", "/again");
        assert_eq!(stage.refused(&url).await, "web_address_refused", "{turns:?}");
    }
    assert_eq!(secret.asked(), [""; 0]);
    let stage = Stage::with_names(&options(), &[("rebind.test", &["127.0.0.1"])]);
    assert_eq!(stage.good(&server.named("rebind.test", "/again")).await.content, "good");
}

#[tokio::test]
async fn domains_and_ports_are_the_operators() {
    let server = Server::new(no_rules(|_| ok("text/plain", "good"))).await;
    let here: &[&str] = &["127.0.0.1"];
    let names = [
        ("a.good.test", here),
        ("good.test", here),
        ("notgood.test", here),
        ("x.a.good.test", here),
    ];
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let rules = Options {
        allow_domains: list(&["GOOD.test."]),
        deny_domains: list(&["a.good.test"]),
        ..options()
    };
    let stage = Stage::with_names(&rules, &names);
    assert_eq!(stage.good(&server.named("good.test", "/")).await.content, "good");
    for denied in ["notgood.test", "a.good.test", "x.a.good.test", "A.Good.test.", "127.0.0.1"] {
        assert_eq!(
            stage.refused(&server.named(denied, "/")).await,
            "web_target_denied",
            "{denied}"
        );
    }
    let closed = Stage::with_names(&Options { ports: vec![80, 443], ..options() }, &names);
    assert_eq!(closed.refused(&server.url("/")).await, "web_target_denied");
}

#[tokio::test]
async fn an_allowed_name_may_have_any_address() {
    let inside = forbidden().await;
    let rules = Options { allow_networks: vec!["wiki.test".to_owned()], ..options() };
    let stage =
        Stage::with_names(&rules, &[("wiki.test", &["127.0.0.2"]), ("b.test", &["127.0.0.2"])]);
    assert_eq!(stage.good(&inside.named("wiki.test", "/")).await.content, "secret");
    assert_eq!(stage.refused(&inside.named("b.test", "/")).await, "web_address_refused");
    assert_eq!(stage.refused(&inside.url("/")).await, "web_address_refused");
}

#[tokio::test]
async fn a_proxy_is_used_if_it_is_configured() {
    let proxy = Arc::new(
        Server::new(|asked, _| match asked.path.ends_with("/robots.txt") {
            true => reply("404 Not Found", &[], ""),
            false => ok("text/plain", &asked.path),
        })
        .await,
    );
    let stage = Stage::new(&Options { proxy: Some(proxy.url("/")), ..options() });
    let page = stage.good("http://far.example/page").await;
    assert_eq!(page.content, "http://far.example/page");
    assert_eq!(stage.refused("http://169.254.169.254/").await, "web_address_refused");
    assert_eq!(proxy.pages_asked(), 1);
}
