//! The machine that was measured on.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{dag_files::CORPUS, kit::BenchPrograms};

pub(super) struct Host {
    cores: usize,
    memory_gib: f64,
    processor: String,
    kernel: String,
    qemu: String,
    /// As nice(1) gives it; what others run meanwhile yields to a negative one.
    nice: i32,
    /// The doctor's finding about KVM.
    pub(super) kvm: String,
    accelerator: &'static str,
}

impl Host {
    pub(super) fn look(kit: &BenchPrograms<'_>) -> Result<Self> {
        let shell = &kit.repo.shell;
        let hivekeep = kit.hivekeep();
        // It fails where a folder is missing, which is no matter here.
        let check = xshell::cmd!(shell, "{hivekeep} check --json").env_remove(CORPUS);
        let check = check.ignore_status().quiet().output()?;
        let check: Value = serde_json::from_slice(&check.stdout).context("hivekeep check")?;
        let finding = |what: &str| {
            let found = check["findings"].as_array()?.iter().find(|row| row["what"] == what)?;
            Some((found["ok"] == true, found["detail"].as_str()?.to_owned()))
        };
        let (kvm_works, kvm) = finding("kvm").context("the doctor knows about KVM")?;
        let (_, qemu) = finding("qemu").context("the doctor knows about QEMU")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let memory_kib: f64 = value(&meminfo, "MemTotal:")
            .and_then(|text| text.trim_end_matches("kB").trim().parse().ok())
            .context("the kernel tells its memory")?;
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: memory_kib / 1024.0 / 1024.0,
            processor: value(&cpuinfo, "model name\t:").unwrap_or("of unknown make").to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            qemu,
            nice: rustix::process::getpriority_process(None)?,
            kvm,
            accelerator: if kvm_works { "KVM" } else { "TCG (software emulation)" },
        })
    }

    /// Everything in one line.
    pub(super) fn line(&self) -> String {
        let Self { cores, memory_gib, processor, kernel, qemu, nice, accelerator, .. } = self;
        format!(
            "{cores} cores ({processor}), {memory_gib:.0} GiB, Linux {kernel}, VMs by \
             {accelerator} over virtio-serial, {qemu}, run at nice {nice}"
        )
    }
}

fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
