//! The bench's baseline of a browser: chromiumoxide as its documentation uses it, in this process.
//!
//! `bare-browser PROGRAM FOLDER URL` loads the page, says `ready`, and then for each line `click` or
//! `screenshot` of its input does that and says how many microseconds it took.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use chromiumoxide::{
    browser::{Browser, BrowserConfig},
    cdp::browser_protocol::page::CaptureScreenshotFormat,
    handler::viewport::Viewport,
    page::ScreenshotParams,
};
use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |what: &'static str| args.next().context(what);
    let (program, folder, url) = (next("a program")?, next("a folder")?, next("a URL")?);
    let config = BrowserConfig::builder()
        .chrome_executable(program)
        .user_data_dir(folder)
        .no_sandbox()
        .new_headless_mode()
        .viewport(Viewport { width: 1280, height: 800, ..Viewport::default() })
        .args(["disable-gpu", "disable-quic", "disable-sync", "hide-scrollbars"])
        .build()
        .map_err(anyhow::Error::msg)?;
    let (mut browser, mut handler) = Browser::launch(config).await?;
    // It drives the connection for as long as the browser lives.
    let handling = tokio::spawn(async move { while handler.next().await.is_some() {} });
    let page = browser.new_page(url).await?;
    page.wait_for_navigation().await?;
    let mut output = stdout();
    output.write_all(b"ready\n").await?;
    output.flush().await?;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let began = Instant::now();
        match line.as_str() {
            "click" => drop(page.find_element("button").await?.click().await?),
            "screenshot" => {
                let params = ScreenshotParams::builder().format(CaptureScreenshotFormat::Png);
                let taken = page.screenshot(params.build()).await?;
                let size = taken.get(16..24).context("a picture")?;
                anyhow::ensure!(size == [0, 0, 5, 0, 0, 0, 3, 32], "it is not 1280 by 800");
            }
            other => bail!("`{other}` is nothing that it does"),
        }
        let took = format!("{}\n", began.elapsed().as_micros());
        output.write_all(took.as_bytes()).await?;
        output.flush().await?;
    }
    browser.close().await?;
    browser.wait().await?;
    handling.abort();
    Ok(())
}
