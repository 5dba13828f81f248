//! A change of a workspace's network policy, while packets of an allowed flow go on.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};

const ROUNDS: usize = 40;
pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open_apart(
        kit,
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n",
    )?;
    let mut client = house.attach()?;
    for name in ["asks", "answers"] {
        client.call("workspace_create", &json!({ "name": name }))?;
        change(&mut client, name, &json!({ "allow_inter_vm": true }))?;
    }
    let answers = client.call("workspace_info", &json!({ "workspace_id": "answers" }))?;
    let ip = answers["ip"].as_str().context("a workspace in a network has an address")?.to_owned();
    let (mut changes, mut looks) = (Vec::new(), Vec::new());
    start(&mut client, &ip)?;
    for round in 0..kit.rounds(ROUNDS) {
        looks.push(change(&mut client, "answers", &json!({}))?);
        let to = format!("192.0.2.{}", round % 200 + 1);
        changes.push(change(&mut client, "answers", &json!({ "egress_allow": [to] }))?);
    }
    let (sent, received) = end(&mut client)?;
    ensure!(sent > 0 && sent == received, "of {sent} packets {received} were answered");
    Ok(vec![Figure {
        name: "policy_change",
        unit: "ms",
        value: median(changes),
        baseline: Some(median(looks.clone())),
        target: Target::Stated,
        remark: format!(
            "the call of network_policy, which returns when the change is durable, applied and \
             verified; the baseline is a call that changes nothing and looks at the kernel \
             ({} ms); of {sent} echo requests between two guests meanwhile none was lost",
            round(median(looks))
        ),
    }])
}

/// Echo requests, one after the other, until it is over; then how many, and how many answered.
fn start(client: &mut StdioClient, to: &str) -> Result<()> {
    let command = format!(
        "sent=0; got=0; while [ ! -e /run/over ]; do sent=$((sent+1)); \
         ping -c 1 -W 2 {to} >/dev/null && got=$((got+1)); done; echo $sent $got >/run/flow"
    );
    let args = json!({ "workspace_id": "asks", "action": "start", "command": command });
    client.call("exec_background", &args).map(drop)
}

fn end(client: &mut StdioClient) -> Result<(u64, u64)> {
    let command = "touch /run/over; until [ -s /run/flow ]; do sleep 0.1; done; cat /run/flow";
    let said = client.call("exec", &json!({ "workspace_id": "asks", "command": command }))?;
    let counts = said["stdout"].as_str().context("exec answers with output")?;
    let (sent, received) = counts.trim().split_once(' ').context("two counts")?;
    Ok((sent.parse()?, received.parse()?))
}

fn change(client: &mut StdioClient, workspace: &str, request: &serde_json::Value) -> Result<f64> {
    let mut args = json!({ "workspace_id": workspace });
    let fields = request.as_object().context("a request is an object")?.clone();
    args.as_object_mut().context("arguments are an object")?.extend(fields);
    let began = Instant::now();
    let set = client.call("network_policy", &args)?;
    let took = began.elapsed();
    ensure!(set["verified"] == true, "not verified: {set}");
    Ok(took.as_secs_f64() * 1e3)
}
