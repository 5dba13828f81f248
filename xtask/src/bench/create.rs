//! Time from the request of a workspace to the first command's answer.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::figure::{Figure, Target, median, round};
use super::{bare, client::StdioClient, house::BenchDaemon, kit::BenchPrograms};

const VM_ROUNDS: usize = 7;
const SANDBOX_ROUNDS: usize = 25;
const DISK_GB: u64 = 2;

pub(super) fn workspace(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(
        kit,
        "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\n",
    )?;
    let mut client = house.attach()?;
    let folder = kit.repo.shell.create_temp_dir()?;
    let bare = {
        let _first = Made::new(&mut client)?;
        bare::Vm::like(&house, folder.path(), base(kit)?, DISK_GB)?
    };
    let taken = in_turns(kit.rounds(VM_ROUNDS), &mut client, || bare.boot(kit))?;
    Ok(vec![taken.figure("workspace_create", Target::AtMostTimes(1.15))])
}

pub(super) fn sandbox(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let house = BenchDaemon::open(kit, "isolation = \"sandbox\"\n")?;
    let mut client = house.attach()?;
    let folder = kit.repo.shell.create_temp_dir()?;
    let (lower, guest) = (image(kit, "rootfs_tree", "tree")?, crate::guest::installed(kit.repo));
    let bare = {
        let _first = Made::new(&mut client)?;
        bare::Sandbox::like(&house, folder.path(), &lower, &guest)?
    };
    let taken = in_turns(kit.rounds(SANDBOX_ROUNDS), &mut client, || bare.boot())?;
    Ok(vec![taken.figure("sandbox_create", Target::AtMostTimes(2.0))])
}

/// Path of the base image of virtual machines' disks.
pub(super) fn base(kit: &BenchPrograms<'_>) -> Result<PathBuf> {
    image(kit, "rootfs_ext4", "rootfs.ext4")
}

/// A part of the base image.
fn image(kit: &BenchPrograms<'_>, part: &str, name: &str) -> Result<PathBuf> {
    let images = kit.repo.images();
    let manifest: Value = serde_json::from_slice(&fs::read(images.join("images/base.json"))?)?;
    let hash = manifest[part]["hash"].as_str().with_context(|| format!("no {part}"))?;
    Ok(images.join("objects").join(hash).join(name))
}

/// Times in milliseconds.
#[derive(Default)]
struct Taken {
    bare: Vec<f64>,
    whole: Vec<f64>,
    create: Vec<f64>,
}

fn in_turns(
    rounds: usize,
    client: &mut StdioClient,
    mut bare: impl FnMut() -> Result<Duration>,
) -> Result<Taken> {
    let mut taken = Taken::default();
    for _ in 0..rounds {
        taken.bare.push(ms(bare()?));
        let made = Made::new(client)?;
        taken.whole.push(ms(made.whole));
        taken.create.push(ms(made.create));
    }
    Ok(taken)
}

impl Taken {
    fn figure(self, name: &'static str, target: Target) -> Figure {
        let (create, whole) = (median(self.create), median(self.whole));
        Figure {
            name,
            unit: "ms",
            value: whole,
            baseline: Some(median(self.bare)),
            target,
            remark: format!(
                "of that {} ms are the call of workspace_create, the rest the first exec",
                round(create)
            ),
        }
    }
}

/// A workspace that is gone when dropped.
struct Made<'c> {
    client: &'c mut StdioClient,
    id: Value,
    create: Duration,
    whole: Duration,
}

impl<'c> Made<'c> {
    fn new(client: &'c mut StdioClient) -> Result<Self> {
        let began = Instant::now();
        let made = client.call("workspace_create", &json!({ "disk_gb": DISK_GB }))?;
        let create = began.elapsed();
        let id = made["workspace_id"].clone();
        client.call("exec", &json!({ "workspace_id": id, "command": "true" }))?;
        Ok(Self { client, id, create, whole: began.elapsed() })
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Err(error) =
            self.client.call("workspace_destroy", &json!({ "workspace_id": self.id }))
        {
            eprintln!("xtask: {error:#}");
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
