//! `hivekeep browse`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hivekeep_door_server::plain;
use serde_json::{Map, Value, json};

use super::{CliContext, CommandFailure, call::Bar, client::Client, output};
use crate::control::ControlMethod;

/// Load a page in a browser of the daemon's, and print its outline or take its picture.
///
/// The browser is that of your lasting session: one that this command starts it closes at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hivekeep browse https://example.org/
  hivekeep browse https://example.org/ --screenshot page.png --full-page
  hivekeep browse https://example.org/report.pdf    # a download goes into the place of your session
  hivekeep browse http://127.0.0.1:8000/ --keep     # needs `browser.allow_networks` and `browser.ports`

Exit code 1 when the page was not loaded, 5 when no daemon runs.")]
pub struct Args {
    /// The page.
    url: String,
    /// Write a picture: the format is that of the name, png, jpeg or webp.
    #[arg(long, short, value_name = "FILE")]
    screenshot: Option<PathBuf>,
    /// Take the whole page, not only what a window shows.
    #[arg(long, requires = "screenshot")]
    full_page: bool,
    /// Leave the browser open, for `hivekeep call webview_click` and the like.
    #[arg(long)]
    keep: bool,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let format = args.screenshot.as_deref().map(format_of).transpose()?;
    let (mut client, bar) = (context.client()?, Bar::new());
    let outcome = browsed(&mut client, args, format, &bar);
    bar.clear();
    Ok(output::painted(&outcome?)?)
}

/// The output, by a browser that is closed again unless it was there before.
fn browsed(
    client: &mut Client,
    args: &Args,
    format: Option<&'static str>,
    bar: &Bar,
) -> Result<String, CommandFailure> {
    bar.say("starting a browser");
    let connected = call(client, "webview_connect", json!({ "debug_url": "local" }))?;
    bar.say("loading the page");
    let shown = show(client, args, format);
    if connected["started"] == true && !args.keep {
        bar.say("closing the browser");
        let closed = call(client, "webview_disconnect", json!({}));
        let shown = shown?;
        return closed.map(|_| shown);
    }
    shown
}

fn show(
    client: &mut Client,
    args: &Args,
    format: Option<&'static str>,
) -> Result<String, CommandFailure> {
    // A browser without a console, as its page crashed or its Chrome is a new one, has no old errors.
    let seen = errors_since(client, &json!(0)).map_or(json!(0), |read| read["next"].clone());
    let loaded = call(client, "webview_navigate", json!({ "url": args.url }))?;
    let read = call(client, "webview_snapshot", json!({}))?;
    let errors = errors_since(client, &seen)?;
    if let (Some(file), Some(format)) = (&args.screenshot, format) {
        let input = json!({ "format": format, "full_page": args.full_page, "keep": false });
        let taken = call(client, "webview_screenshot", input)?;
        let data = STANDARD.decode(taken["data"].as_str().unwrap_or_default());
        let data = data.map_err(|error| CommandFailure::Other(format!("the picture: {error}")))?;
        fs::write(file, data)?;
    }
    if args.json {
        let all = json!({ "loaded": loaded, "page": read, "errors": errors["messages"] });
        let text = serde_json::to_string_pretty(&all).map_err(std::io::Error::from)?;
        return Ok(format!("{}\n", plain::json(&text)));
    }
    let text = |value: &Value| plain::lines(value.as_str().unwrap_or_default()).into_owned();
    let status = loaded["status"].as_u64().map(|status| format!(" ({status})"));
    let mut told = format!("{}{}\n", text(&loaded["url"]), status.unwrap_or_default());
    if args.screenshot.is_none() {
        told.push_str(&format!("{}\n{}", text(&read["title"]), text(&read["outline"])));
    }
    for error in errors["messages"].as_array().into_iter().flatten() {
        told.push_str(&format!("{}: {}\n", text(&error["type"]), text(&error["text"])));
    }
    let downloads = [&loaded, &read].map(|from| from["downloads"].as_array());
    for seen in downloads.into_iter().flatten().flatten() {
        let (name, state) = (text(&seen["name"]), text(&seen["state"]));
        let path = seen["path"]
            .as_str()
            .map(|path| format!(": {path} in the place {}", text(&seen["place"])));
        told.push_str(&format!("download {name} {state}{}\n", path.unwrap_or_default()));
    }
    Ok(told)
}

/// Errors in the page; of a browser that was kept only new ones.
fn errors_since(client: &mut Client, since: &Value) -> Result<Value, CommandFailure> {
    let args = json!({ "level": "error", "since": since, "limit": 500 });
    call(client, "webview_console", args)
}

fn call(client: &mut Client, tool: &str, args: Value) -> Result<Value, CommandFailure> {
    let args = match args {
        Value::Object(args) => args,
        _ => Map::new(),
    };
    client.get(ControlMethod::Call { tool: tool.to_owned(), args, timeout_ms: None })
}

/// Format of a picture by the name of its file.
fn format_of(file: &Path) -> Result<&'static str, CommandFailure> {
    match file.extension().and_then(|it| it.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("png") => Ok("png"),
        Some("jpg" | "jpeg") => Ok("jpeg"),
        Some("webp") => Ok("webp"),
        _ => {
            let why = format!("{} should end in .png, .jpeg or .webp", file.display());
            Err(CommandFailure::Usage(why))
        }
    }
}
