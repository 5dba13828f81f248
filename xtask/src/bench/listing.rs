//! Bytes that a client hands to its model before anything is done: `tools/list` of ours, whole and with
//! `--toolset auto`, beside that of the npm package of `day.rs`, a tool.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, round};
use super::{client::StdioClient, day, house::BenchDaemon, kit::BenchPrograms};

/// What the listing of `--toolset auto` may be.
const MOST_AUTO: f64 = 24.0 * 1024.0;
/// What a tool may be on average.
const MOST_EACH: f64 = 2.0 * 1024.0;

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "")?;
    let folder = kit.repo.shell.create_temp_dir()?;
    let npm = size(&mut StdioClient::start(day::server(kit, folder.path())?)?)?;
    let mut figures = Vec::new();
    for (name, args) in
        [("listing_bytes_auto", &["--toolset", "auto"][..]), ("listing_bytes_all", &[])]
    {
        let ours = size(&mut house.attach_with(args)?)?;
        let most = if args.is_empty() { MOST_EACH * ours.tools } else { MOST_AUTO };
        figures.push(Figure {
            name,
            unit: "bytes",
            value: ours.bytes,
            baseline: None,
            target: Target::AtMost(most),
            remark: format!(
                "{} tools of {} bytes on average; `@modelcontextprotocol/server-filesystem` lists {} of {}",
                ours.tools, round(ours.bytes / ours.tools), npm.tools, round(npm.bytes / npm.tools),
            ),
        });
    }
    Ok(figures)
}

struct ListingSize {
    bytes: f64,
    tools: f64,
}

/// All pages of a server's list.
#[expect(clippy::cast_precision_loss, reason = "a list is some hundred kilobytes")]
fn size(client: &mut StdioClient) -> Result<ListingSize> {
    let (mut bytes, mut tools, mut params) = (0, 0, json!({}));
    loop {
        let page = client.request("tools/list", &params)?;
        let list = page["tools"].as_array().context("a list of tools")?;
        ensure!(!list.is_empty(), "an empty page");
        tools += list.len();
        bytes += list.iter().map(|tool| tool.to_string().len()).sum::<usize>();
        match page.get("nextCursor").filter(|cursor| cursor.is_string()) {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return Ok(ListingSize { bytes: bytes as f64, tools: tools as f64 }),
        }
    }
}
