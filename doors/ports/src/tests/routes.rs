//! Which port a host leads to, and who may reach it.

use super::*;

const HOST: &str = "80-web.localhost:7719";

async fn web(stage: &Stage, user: User) -> WorkspaceId {
    let id = stage.workspace("web", user);
    stage.repeats(id, 80).await;
    id
}

#[tokio::test]
async fn a_host_leads_to_its_port_or_nowhere() {
    let stage = Stage::open().await;
    let id = web(&stage, User::Uid(1)).await;
    stage.url(id, "web", public(true)).await;
    let (_, ok, _) = stage.get(HOST, "/a?b=c", &[]).await;
    assert!(ok.contains("x-of-guest: yes"));
    for (host, status) in [
        (format!("80-{id}.localhost"), 200),
        (format!("80-{}.LOCALHOST:1", id.uuid().simple()), 200),
        ("80-other.localhost".to_owned(), 404),
        ("web.localhost".to_owned(), 404),
        // A page of elsewhere that points its own name here.
        ("80-web.evil.example".to_owned(), 421),
        ("80-web.localhost.evil.example".to_owned(), 421),
        ("localhost".to_owned(), 421),
        ("127.0.0.1".to_owned(), 421),
    ] {
        let (got, _, body) = stage.get(&host, "/", &[]).await;
        assert_eq!(got, status, "{host}: {body}");
    }
    let twice =
        format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    assert_eq!(stage.send(&twice).await.0, 421);
}

#[tokio::test]
async fn the_guest_sees_the_way_and_nothing_that_was_shown_to_the_door() {
    let stage = Stage::open().await;
    let (user, secret) = stage.credential("mine", CredentialScope::Session).await;
    web(&stage, user).await;
    let (status, head, seen) = stage
        .get(
            HOST,
            "/a/b?x=1&hivekeep_token=x&y=2",
            &[
                "Accept: a",
                "X-Forwarded-For: 1.2.3.4",
                "X-Secret: 1",
                "Connection: X-Secret",
                "Cookie: hivekeep_port=x; theirs=1",
            ],
        )
        .await;
    assert_eq!(status, 403, "a bad link opens nothing: {head} {seen}");
    let bearer = format!("Authorization: Bearer {secret}");
    let more = [
        bearer.as_str(),
        "Accept: a",
        "X-Forwarded-For: 1.2.3.4",
        "X-Secret: 1",
        "Connection: X-Secret",
        "Cookie: hivekeep_port=x; theirs=1",
    ];
    let (status, head, seen) = stage.get(HOST, "/a/b?x=1", &more).await;
    assert_eq!(status, 200);
    assert!(!head.contains("keep-alive: timeout") && !head.contains("domain="), "{head}");
    assert!(head.contains("set-cookie: a=1"), "{head}");
    let seen = seen.to_ascii_lowercase();
    assert!(seen.starts_with("get /a/b?x=1 http/1.1\r\n"), "{seen}");
    for there in [
        "host: 80-web.localhost:7719",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: 80-web.localhost:7719",
        "x-forwarded-proto: http",
        "cookie: theirs=1",
        "accept: a",
    ] {
        assert!(seen.contains(&format!("{there}\r\n")), "{there}: {seen}");
    }
    for gone in ["hivekeep", "x-secret", "1.2.3.4", "authorization", "connection:"] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
}

#[tokio::test]
async fn a_private_port_opens_for_its_owner_and_for_operators() {
    let stage = Stage::open().await;
    let (user, own) = stage.credential("mine", CredentialScope::Session).await;
    let (_, other) = stage.credential("other", CredentialScope::Session).await;
    let (_, operator) = stage.credential("ops", CredentialScope::Operator).await;
    let (reader_user, reader) = stage.credential("reader", CredentialScope::ReadOnly).await;
    web(&stage, user).await;
    let reads = stage.workspace("reads", reader_user);
    stage.repeats(reads, 80).await;
    let status = async |host: &str, line: String| stage.get(host, "/", &[&line]).await.0;
    let bearer = |secret: &str| format!("Authorization: Bearer {secret}");
    assert_eq!(stage.get(HOST, "/", &[]).await.0, 401);
    assert_eq!(status(HOST, bearer("hivekeep_nonsense")).await, 401);
    assert_eq!(status(HOST, bearer("a-token-of-the-guests-program")).await, 401);
    assert_eq!(status(HOST, bearer(&own)).await, 200);
    assert_eq!(status(HOST, format!("e2b-traffic-access-token: {own}")).await, 200);
    assert_eq!(status(HOST, bearer(&operator)).await, 200);
    assert_eq!(status(HOST, bearer(&other)).await, 403);
    assert_eq!(status("80-reads.localhost", bearer(&reader)).await, 403, "it changes nothing");
    stage.credentials.revoke("mine", User::Uid(0)).await.expect("revoked");
    assert_eq!(status(HOST, bearer(&own)).await, 401);
    // What the program in the guest wants to be shown passes beside ours.
    let theirs =
        [&*format!("e2b-traffic-access-token: {operator}"), "Authorization: Bearer theirs"];
    let (_, _, seen) = stage.get(HOST, "/", &theirs).await;
    assert!(seen.to_ascii_lowercase().contains("authorization: bearer theirs\r\n"), "{seen}");
}

fn cookie(head: &str) -> String {
    let line = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    for word in ["httponly", "samesite=lax", "path=/", "max-age="] {
        assert!(line.contains(word), "{line}");
    }
    assert!(!line.contains("domain"), "host-only: {line}");
    line.split(';').next().expect("a pair").to_owned()
}

#[tokio::test]
async fn a_link_becomes_a_cookie_of_its_port_alone() {
    let stage = Stage::open().await;
    let id = web(&stage, User::Uid(1)).await;
    let other = stage.workspace("other", User::Uid(1));
    stage.repeats(other, 80).await;
    stage.repeats(id, 81).await;
    let (url, query) = stage.url(id, "web", for_secs(60)).await;
    assert_eq!(url, format!("http://80-web.localhost:{}/", stage.address.port()));
    let (status, head, _) = stage.get(HOST, &format!("//evil.example/a?x=1&{query}"), &[]).await;
    assert_eq!(status, 302);
    assert!(
        head.contains("location: http://80-web.localhost:7719//evil.example/a?x=1\r\n"),
        "{head}"
    );
    assert!(head.contains("referrer-policy: no-referrer"), "{head}");
    let cookie = format!("Cookie: {}", cookie(&head));
    let with = async |host: &str, more: &[&str]| {
        let lines: Vec<&str> = [cookie.as_str()].iter().chain(more).copied().collect();
        stage.get(host, "/", &lines).await.0
    };
    assert_eq!(with(HOST, &[]).await, 200);
    assert_eq!(with("81-web.localhost", &[]).await, 401, "another port");
    assert_eq!(with("80-other.localhost", &[]).await, 401, "another workspace");
    assert_eq!(with(HOST, &["Origin: http://80-web.localhost:7719"]).await, 200);
    assert_eq!(with(HOST, &["Origin: http://80-other.localhost:7719"]).await, 403);
    let of_link = format!("Cookie: hivekeep_port={}", query.split_once('=').expect("a value").1);
    assert_eq!(stage.get(HOST, "/", &[&of_link]).await.0, 401, "a link is not a cookie");
    // What would lose its body on the way round passes at once.
    let post = format!(
        "POST /?{query} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let (status, _, seen) = stage.send(&post).await;
    assert!(status == 200 && seen.starts_with("POST / HTTP/1.1"), "{status} {seen}");
    assert_eq!(stage.get("80-other.localhost", &format!("/?{query}"), &[]).await.0, 403);
}

#[tokio::test]
async fn an_expired_link_opens_nothing_and_a_live_one_outlives_the_daemon() {
    let stage = Stage::open().await;
    let id = web(&stage, User::Uid(1)).await;
    let (_, over) = stage.url(id, "web", for_secs(0)).await;
    assert_eq!(stage.get(HOST, &format!("/?{over}"), &[]).await.0, 403);
    let (_, live) = stage.url(id, "web", for_secs(600)).await;
    stage.url(id, "web", public(true)).await;
    let (_, none) = stage.url(id, "web", for_secs(600)).await;
    assert_eq!(none, "", "a public port needs no link");
    let stage = stage.restart().await;
    assert_eq!(stage.get(HOST, "/", &[]).await.0, 200, "public is durable");
    stage.url(id, "web", public(false)).await;
    assert_eq!(stage.get(HOST, "/", &[]).await.0, 401);
    assert_eq!(stage.get(HOST, &format!("/?{live}"), &[]).await.0, 302);
}

#[tokio::test]
async fn public_ports_go_with_their_workspace() {
    let stage = Stage::open().await;
    let id = web(&stage, User::Uid(1)).await;
    stage.url(id, "web", public(true)).await;
    let shown = stage.urls.public(id, "web");
    assert_eq!(shown.len(), 1);
    assert!(shown[0].1.starts_with("http://80-web.localhost:"), "{shown:?}");
    destroyed(&stage.journal, id);
    while !stage.urls.public(id, "web").is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.get(HOST, "/", &[]).await.0, 401);
    // One that was destroyed and not heard of, as by a kill in between.
    let second = stage.workspace("second", User::Uid(1));
    stage.end.cancel();
    tokio::task::yield_now().await;
    stage.url(second, "second", public(true)).await;
    destroyed(&stage.journal, second);
    let stage = stage.restart().await;
    while !stage.urls.public(second, "second").is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_does_not_answer_is_said_as_the_client_wants_it() {
    let stage = Stage::with(PortUrlOptions { answer_timeout_secs: 1, ..Default::default() }).await;
    let id = stage.workspace("web", User::Uid(1));
    stage.url(id, "web", public(true)).await;
    let (status, head, body) = stage.get(HOST, "/", &[]).await;
    let error: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((status, &error["error"]["code"]), (502, &serde_json::json!("port_closed")));
    assert!(head.contains("cache-control: no-store"), "{head}");
    let (status, head, page) = stage.get(HOST, "/", &["Accept: text/html,*/*"]).await;
    assert!(status == 502 && head.contains("text/html"), "{status} {head}");
    assert!(page.contains("&lt;refused&gt;") && !page.contains("<refused>"), "{page}");

    let rubbish = stage.listen(id, 80).await;
    let answering = async {
        for says in ["", "this is not HTTP\r\n\r\n"] {
            let (mut stream, _) = rubbish.accept().await.expect("a connection");
            super::head(&mut stream).await;
            stream.write_all(says.as_bytes()).await.expect("written");
        }
        // One that never answers.
        rubbish.accept().await.expect("a connection").0
    };
    let asking = async {
        for status in [502, 502, 504] {
            assert_eq!(stage.get(HOST, "/", &[]).await.0, status);
        }
    };
    tokio::join!(answering, asking);
}

#[tokio::test]
async fn an_orphans_ports_are_nobodys() {
    let stage = Stage::open().await;
    let (_, operator) = stage.credential("ops", CredentialScope::Operator).await;
    web(&stage, User::Uid(1)).await;
    stage.fakes.workspaces.lock().expect("no panic")[0].owner = None;
    let bearer = format!("Authorization: Bearer {operator}");
    let (status, _, body) = stage.get(HOST, "/", &[&bearer]).await;
    assert!(status == 502 && body.contains("not_owner"), "{status} {body}");
}
