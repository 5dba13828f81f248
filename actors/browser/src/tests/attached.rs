//! A browser that runs elsewhere, by its name.

use std::{collections::BTreeMap, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::stage::{Pages, Stage, options};
use crate::{AttachOptions, Options};

/// A Chrome as a person debugs one, and its address.
async fn elsewhere(folder: &std::path::Path) -> (Child, String) {
    let program = Options::default().found_program().expect("apt-get install chromium");
    let mut child = Command::new(program)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"])
        .arg(format!("--user-data-dir={}", folder.display()))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    while let Some(line) = lines.next_line().await.expect("it speaks") {
        if let Some((_, url)) = line.split_once("listening on ws://") {
            let address = url.split('/').next().expect("an address").to_owned();
            // Nobody reads the rest, and it does not wait for that.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (child, format!("http://{address}"));
        }
    }
    panic!("it does not listen");
}

#[tokio::test]
async fn a_browser_that_the_operator_opened_is_attached_to_and_left_as_it_was() {
    let pages = Pages::one("<button onclick='done=1'>Press</button>").await;
    let folder = tempfile::TempDir::new().expect("a folder");
    let (mut chrome, url) = elsewhere(folder.path()).await;
    let attach = BTreeMap::from([("mine".to_owned(), AttachOptions { url: url.clone() })]);
    let stage = Stage::mounted(Options { attach, ..options() }).await;
    let other = json!({ "debug_url": "http://127.0.0.1:1" });
    assert_eq!(stage.refused("webview_connect", other).await.code, "browser_attach_denied");
    for name in ["mine", url.as_str()] {
        stage.good("webview_connect", json!({ "debug_url": name })).await;
        stage.go(&pages.url("/")).await;
        stage.good("webview_click", json!({ "selector": "button" })).await;
        assert_eq!(
            stage.eval("[done, document.cookie]").await,
            json!([1, ""]),
            "a context of its own"
        );
        stage.eval("document.cookie = 'a=b'").await;
        let refused = stage.refused("webview_navigate", json!({ "url": "http://10.0.0.1/" })).await;
        assert_eq!(refused.code, "browser_address_refused");
        stage.good("webview_disconnect", json!({})).await;
    }
    assert!(chrome.try_wait().expect("a child").is_none(), "it goes on");
    stage.good("webview_connect", json!({ "debug_url": "mine" })).await;
    chrome.kill().await.expect("it is killed");
    let mut codes = Vec::<String>::new();
    while codes
        .last()
        .is_none_or(|code| code != "browser_unavailable" && code != "browser_not_connected")
    {
        let answer: Result<Value, _> = stage.call("webview_eval", json!({ "script": "1" })).await;
        codes.push(answer.expect_err("nobody is there").code.into_owned());
        assert!(codes.len() < 1_000, "{codes:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
