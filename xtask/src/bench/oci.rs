//! A container image from a registry on loopback, against `skopeo copy` with `umoci unpack`; and the
//! first command in a workspace of it, against one of `base`.

mod stage;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use super::figure::{Figure, Target, median, round};
use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms};
use stage::OciStage;

const PULL_ROUNDS: usize = 5;
const EXEC_ROUNDS: usize = 25;
/// Name under which the image is kept beside those of the bench, for the time of it.
const IMAGE: &str = "oci-bench";

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let stage = OciStage::new(kit)?;
    let mut figures = Vec::new();
    if kit.wants("oci_pull") {
        figures.push(pull(kit, &stage)?);
    }
    if kit.wants("oci_first_exec") {
        figures.push(first_exec(kit, &stage)?);
    }
    Ok(figures)
}

fn pull(kit: &BenchPrograms<'_>, stage: &OciStage<'_>) -> Result<Figure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(PULL_ROUNDS) {
        let taken = (stage.pull()?, stage.copy_and_unpack()?);
        // The first of each finds the registry's files cold.
        if round > 0 {
            ours.push(taken.0.as_secs_f64());
            theirs.push(taken.1.as_secs_f64());
        }
    }
    Ok(Figure {
        name: "oci_pull",
        unit: "s",
        value: median(ours),
        baseline: Some(median(theirs)),
        target: Target::AtMostTimes(1.5),
        remark: format!(
            "an image of {} MiB in {} layers of this host's files, {} MiB compressed; ours is an ext4 \
             file besides the tree, both hashed and synced",
            round(stage.bytes as f64 / f64::from(1 << 20)),
            stage::LAYERS,
            round(stage.compressed_bytes()? as f64 / f64::from(1 << 20)),
        ),
    })
}

fn first_exec(kit: &BenchPrograms<'_>, stage: &OciStage<'_>) -> Result<Figure> {
    let _kept = stage.keep(IMAGE)?;
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let mut client = house.attach()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=kit.rounds(EXEC_ROUNDS) {
        let taken = (workspace(&mut client, "base")?, workspace(&mut client, IMAGE)?);
        // The first of each reads all of the image, to check it.
        if round > 0 {
            theirs.push(taken.0);
            ours.push(taken.1);
        }
    }
    Ok(Figure {
        name: "oci_first_exec",
        unit: "ms",
        value: median(ours),
        baseline: Some(median(theirs)),
        target: Target::AtMostTimes(1.2),
        remark: "a sandbox and its first command, of an image that was used before".to_owned(),
    })
}

/// From the request of a workspace to the answer of its first command, in ms.
fn workspace(client: &mut StdioClient, image: &str) -> Result<f64> {
    let began = Instant::now();
    let made = client.call("workspace_create", &json!({ "base_image": image }))?;
    let id = made["workspace_id"].clone();
    let done = client.call("exec", &json!({ "workspace_id": id, "command": "true" }))?;
    let took: Duration = began.elapsed();
    ensure!(done["exit_code"] == 0, "true in {image}: {done}");
    client.call("workspace_destroy", &json!({ "workspace_id": id }))?;
    Ok(took.as_secs_f64() * 1e3)
}
