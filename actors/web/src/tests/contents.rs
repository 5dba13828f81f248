//! What becomes of a body: types, encodings, Markdown, pieces.

use hivekeep_kernel::SessionId;
use serde_json::json;

use super::{
    server::{Reply, Server, no_rules, ok, reply},
    stage::{Stage, options},
};

const ARTICLE: &str = r#"<!DOCTYPE html><html><head><title>On tides</title></head><body>
<nav><a href="/home">Home</a> <a href="/about">About us</a></nav>
<article><h1>On tides</h1>
<p>The sea rises and falls twice a day, and the moon has more to do with it than the wind, as anybody
who keeps a boat on a flat coast will tell you without being asked.</p>
<p>See <a href="tables.html">the tables</a>, which give the hours for every harbour, and remember that
a strong wind from the sea adds to what they say while a land wind takes away from it.</p>
<pre><code>high = 06:12
low  = 12:25</code></pre></article>
<footer>Imprint and terms</footer><script>track("everything")</script></body></html>"#;

async fn serving(kind: &'static str, body: impl Into<Vec<u8>>) -> Server {
    let body = body.into();
    Server::new(no_rules(move |_| ok(kind, &body))).await
}

#[tokio::test]
async fn a_page_becomes_markdown_of_its_main_content() {
    let server = serving("text/html; charset=utf-8", ARTICLE).await;
    let stage = Stage::new(&options());
    let page = stage.good(&server.url("/sea/page.html")).await;
    assert_eq!((page.format, page.title.as_deref()), ("markdown", Some("On tides")));
    assert!(
        page.content.contains(&format!("[the tables]({})", server.url("/sea/tables.html"))),
        "{page:?}"
    );
    assert!(page.content.contains("high = 06:12\nlow  = 12:25"), "{page:?}");
    for left_out in ["About us", "Imprint", "track"] {
        assert!(!page.content.contains(left_out), "{left_out}: {}", page.content);
    }
    let args = json!({ "url": server.url("/sea/page.html"), "to_markdown": false });
    let page = stage.fetch_with(args).await.expect("fetched");
    assert_eq!((page.format, page.content.as_str()), ("html", ARTICLE));
}

#[tokio::test]
async fn other_texts_come_as_they_are_and_the_rest_is_refused_by_its_type() {
    let stage = Stage::new(&options());
    for kind in [
        "text/plain",
        "application/json",
        "application/ld+json",
        "text/css",
        "image/svg+xml",
        "application/xml",
    ] {
        let page = stage.good(&serving(kind, "<a> {\"b\": 1}").await.url("/")).await;
        assert_eq!((page.format, page.content.as_str()), ("text", "<a> {\"b\": 1}"), "{kind}");
    }
    for kind in
        ["image/png", "application/pdf", "application/octet-stream", "video/mp4", "nonsense"]
    {
        let error = stage.fetch(&serving(kind, "x").await.url("/")).await.expect_err(kind);
        assert_eq!(error.code, "web_type_refused");
        assert!(error.message.contains(kind), "{error}");
    }
    let binary = Server::new(no_rules(|_| reply("200 OK", &[], b"\x7fELF\0\0"))).await;
    assert_eq!(stage.refused(&binary.url("/")).await, "web_type_refused");
    let coded =
        Server::new(no_rules(|_| reply("200 OK", &[("content-encoding", "br")], "?"))).await;
    assert_eq!(stage.refused(&coded.url("/")).await, "web_type_refused");
}

#[tokio::test]
async fn a_status_is_told_and_no_error() {
    let server = Server::new(no_rules(|asked| match asked.path.as_str() {
        "/picture" => reply("500 Oh", &[("content-type", "image/png")], "PNG"),
        "/empty" => reply("204 No Content", &[], ""),
        _ => reply("404 Not Found", &[("content-type", "text/plain")], "no such page"),
    }))
    .await;
    let stage = Stage::new(&options());
    let page = stage.good(&server.url("/")).await;
    assert_eq!((page.status, page.ok, page.content.as_str()), (404, false, "no such page"));
    let page = stage.good(&server.url("/picture")).await;
    assert_eq!((page.status, page.ok, page.content.as_str()), (500, false, ""));
    let page = stage.good(&server.url("/empty")).await;
    assert_eq!((page.status, page.ok, page.content.as_str()), (204, true, ""));
}

#[tokio::test]
async fn texts_are_read_in_their_encoding() {
    let stage = Stage::new(&options());
    let sjis = b"<meta charset=shift_jis><p>\x93\xfa\x96\x7b</p>".to_vec();
    let xml = b"<?xml version='1.0' encoding='windows-1251'?><a>\xcf\xf0</a>".to_vec();
    let cases: [(&str, Vec<u8>, &str, &str); 8] = [
        ("text/plain; charset=windows-1252", b"caf\xe9 \x80".to_vec(), "café €", "windows-1252"),
        ("text/plain; charset=\"KOI8-R\"", b"\xd0\xd2\xc9".to_vec(), "при", "KOI8-R"),
        ("text/html", sjis, "日本", "Shift_JIS"),
        ("application/xml", xml.clone(), "Пр", "windows-1251"),
        ("application/xhtml+xml", xml, "Пр", "windows-1251"),
        ("text/plain", b"\xff\xfea\0b\0".to_vec(), "ab", "UTF-16LE"),
        ("text/plain", b"caf\xe9".to_vec(), "café", "windows-1252"),
        ("text/plain; charset=iso-8859-1", "\u{feff}ü".into(), "ü", "UTF-8"),
    ];
    for (kind, body, text, encoding) in cases {
        let page = stage.good(&serving(kind, body).await.url("/")).await;
        assert!(page.content.contains(text) && !page.malformed, "{kind}: {page:?}");
        assert_eq!(page.encoding, encoding, "{kind}");
    }
    let page =
        stage.good(&serving("text/plain; charset=utf-8", b"a\xffb".to_vec()).await.url("/")).await;
    assert_eq!((page.content.as_str(), page.malformed), ("a\u{fffd}b", true));
}

#[tokio::test]
async fn the_pieces_of_a_page_are_of_one_request() {
    let text = "αβγ — δεζ\n".repeat(1000);
    let server = serving("text/plain; charset=utf-8", text.as_str()).await;
    let mut stage = Stage::new(&options());
    let (mut read, mut offset, mut times) = (String::new(), Some(0), Vec::new());
    while let Some(at) = offset {
        let args = json!({ "url": server.url("/"), "offset": at, "max_bytes": 1025 });
        let piece = stage.fetch_with(args).await.expect("a piece");
        assert_eq!((piece.offset, piece.size_bytes), (read.len(), text.len()));
        read += &piece.content;
        offset = piece.next_offset;
        times.push(piece.fetched_at);
    }
    assert_eq!(read, text);
    times.dedup();
    assert_eq!((times.len(), server.pages_asked()), (1, 1));
    stage.good(&server.url("/")).await;
    assert_eq!(server.pages_asked(), 2, "from the start it is fetched anew");
    stage.session = SessionId::new();
    let args = json!({ "url": server.url("/"), "offset": 5 });
    stage.fetch_with(args).await.expect("fetched");
    assert_eq!(server.pages_asked(), 3, "what is kept is the session's");
    let args = json!({ "url": server.url("/"), "offset": text.len() + 1 });
    assert_eq!(stage.fetch_with(args).await.expect_err("beyond").code, "invalid_input");
}

#[tokio::test]
async fn bodies_are_decompressed() {
    let server = Server::new(no_rules(|asked| {
        assert!(asked.head.contains("accept-encoding: gzip"), "{}", asked.head);
        gzipped(b"hello".repeat(100))
    }))
    .await;
    let page = Stage::new(&options()).good(&server.url("/")).await;
    assert_eq!(page.content, "hello".repeat(100));
}

pub(super) fn gzipped(body: Vec<u8>) -> Reply {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut coder, &body).expect("into memory");
    let coded = coder.finish().expect("into memory");
    reply("200 OK", &[("content-type", "text/plain"), ("content-encoding", "gzip")], coded)
}
