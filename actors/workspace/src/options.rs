//! Options of workspaces.

use std::path::PathBuf;

use hivekeep_image::ImageName;
use hivekeep_kernel::{Backoff, GiveUp, Restart, RestartPolicy};
use hivekeep_link::LinkSupervisorOptions;
use hivekeep_machine::{Isolation, Options as DriverOptions, SandboxOptions};
use hivekeep_oci::{ImageOptions, RegistryRef};
use hivekeep_runtime::FamilyOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::WorkspaceSpec;

/// Most machines of one class.
const MAX_READY: u32 = 100;

/// Section `[workspace]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How a workspace is isolated when its creation does not say: "vm" or "sandbox".
    pub isolation: Isolation,
    /// Image of a workspace whose creation names none.
    pub default_image: String,
    /// Virtual CPUs of a workspace whose creation does not say.
    pub default_vcpus: u32,
    /// Memory in MiB of a workspace whose creation does not say.
    pub default_memory_mb: u64,
    /// Disk in GiB of a workspace whose creation does not say.
    pub default_disk_gb: u64,
    /// Most virtual CPUs of one workspace.
    pub max_vcpus: u32,
    /// Most memory in MiB of one workspace.
    pub max_memory_mb: u64,
    /// Largest disk in GiB of one workspace.
    pub max_disk_gb: u64,
    /// Most workspaces of all sessions together.
    pub max_workspaces: usize,
    /// Most snapshots of one workspace.
    pub max_snapshots_per_workspace: usize,
    /// Most forks that one call makes at the same time.
    pub max_parallel_forks: usize,
    /// Most parked machines that are woken at the same time; others wait for their turn.
    pub max_parallel_wakes: usize,
    /// Park a virtual machine that nobody asked anything of for so long, and that runs no job; 0: never.
    pub park_after_idle_secs: u64,
    /// Time for a machine to boot and answer.
    pub boot_timeout_secs: u64,
    /// Time for a guest to shut down in order before it is killed.
    pub stop_grace_secs: u64,
    /// Time a call waits for a link that is being made anew.
    pub link_wait_secs: u64,
    /// Start a crashed machine again by itself.
    pub restart_crashed: bool,
    /// Restarts of a crashed machine within restart_window_secs; one more and it stays down.
    pub max_restarts: u32,
    /// Window for max_restarts.
    pub restart_window_secs: u64,
    /// The host's directory for file_transfer; empty: `transfers` in the state directory.
    pub transfer_dir: PathBuf,
    /// The most that all files in transfer_dir take together in MiB. No file is downloaded beyond it.
    pub transfer_max_total_mb: u64,
    /// Where images are; empty: `images` in the state directory.
    pub image_dir: PathBuf,
    /// The guest daemon's binary; empty: `lib/hivekeep/hivekeep-guest` beside the folder of this program.
    pub guest_binary: PathBuf,
    /// Machines that are kept ready.
    pub pool: PoolOptions,
    /// The hypervisor and the sandbox.
    pub driver: DriverOptions,
    /// Walls of sandboxes.
    pub sandbox: SandboxOptions,
    /// Container images: where they come from, and their limits.
    pub images: ImageOptions,
    /// The link into the guest.
    pub link: LinkSupervisorOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            isolation: Isolation::Vm,
            default_image: "base".to_owned(),
            default_vcpus: 2,
            default_memory_mb: 512,
            default_disk_gb: 10,
            max_vcpus: 8,
            max_memory_mb: 8192,
            max_disk_gb: 100,
            max_workspaces: 50,
            max_snapshots_per_workspace: 40,
            max_parallel_forks: 10,
            max_parallel_wakes: 4,
            park_after_idle_secs: 0,
            boot_timeout_secs: 120,
            stop_grace_secs: 10,
            link_wait_secs: 10,
            restart_crashed: false,
            max_restarts: 3,
            restart_window_secs: 600,
            transfer_dir: PathBuf::new(),
            transfer_max_total_mb: 100 * 1024,
            image_dir: PathBuf::new(),
            guest_binary: PathBuf::new(),
            pool: PoolOptions::default(),
            driver: DriverOptions::default(),
            sandbox: SandboxOptions::default(),
            images: ImageOptions::default(),
            link: LinkSupervisorOptions::default(),
        }
    }
}

impl Options {
    /// Restart policy of a machine that crashed.
    pub fn machine_policy(&self) -> RestartPolicy {
        RestartPolicy {
            restart: if self.restart_crashed { Restart::OnFailure } else { Restart::Never },
            max_restarts: self.max_restarts,
            window_secs: self.restart_window_secs,
            backoff: Backoff { initial_ms: 500, max_ms: 30_000 },
            give_up: GiveUp::StayDown,
        }
    }
}

/// Section `[workspace.pool]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolOptions {
    /// Most memory in MiB that the machines of all classes may be given together. A configuration
    /// that wants more is refused. The machine of which copies are made is gone when the first
    /// copy is begun.
    pub max_memory_mb: u64,
    /// The classes of machines that are kept ready, none by default. Each is a table:
    /// `[[workspace.pool.classes]]` with `ready = 2` and what of `image`, `isolation`, `vcpus`,
    /// `memory_mb` and `disk_gb` differs from a workspace's defaults. A creation that asks for
    /// exactly that is given one of them.
    pub classes: Vec<ClassOptions>,
}

/// Class of machines that are kept ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassOptions {
    /// Number of machines that are kept ready.
    pub ready: u32,
    /// Their image; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How they are isolated, as a workspace's default: only `vm` can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Their virtual CPUs; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// Their memory in MiB; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Their disk in GiB; as a workspace's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<u64>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { max_memory_mb: 8192, classes: Vec::new() }
    }
}

impl ClassOptions {
    /// Specification of a machine of this class; options left out are those of a workspace.
    pub(crate) fn spec(&self, options: &Options) -> WorkspaceSpec {
        WorkspaceSpec {
            image: self.image.clone().unwrap_or_else(|| options.default_image.clone()),
            isolation: self.isolation.unwrap_or(options.isolation),
            vcpus: self.vcpus.unwrap_or(options.default_vcpus),
            memory_mb: self.memory_mb.unwrap_or(options.default_memory_mb),
            disk_gb: self.disk_gb.unwrap_or(options.default_disk_gb),
        }
    }
}

impl FamilyOptions for Options {
    fn problems(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        let mut specs = Vec::new();
        for (nth, class) in (1..).zip(&self.pool.classes) {
            let spec = class.spec(self);
            let mut add = |why: String| {
                wrong.push(("pool.classes", format!("class {nth}: {why}")));
            };
            if !(1..=MAX_READY).contains(&class.ready) {
                add(format!("ready must be 1 to {MAX_READY}, not {}", class.ready));
            }
            let known = spec.image.parse::<ImageName>().is_ok();
            if !known && RegistryRef::parse(&spec.image).is_err() {
                add(format!("there is no image `{}`", spec.image));
            }
            if spec.isolation == Isolation::Sandbox {
                add("a sandbox keeps the host name that it was started with, and starts at once \
                     without a pool: isolation must be vm"
                    .to_owned());
            }
            let sizes = [
                ("vcpus", u64::from(spec.vcpus), 1, u64::from(self.max_vcpus)),
                ("memory_mb", spec.memory_mb, 64, self.max_memory_mb),
                ("disk_gb", spec.disk_gb, 1, self.max_disk_gb),
            ];
            for (what, value, least, most) in sizes {
                if !(least..=most).contains(&value) {
                    add(format!("{what} must be {least} to {most}, not {value}"));
                }
            }
            if specs.contains(&spec) {
                add("it is the same as one before it".to_owned());
            }
            specs.push(spec);
        }
        let counts = || self.pool.classes.iter().map(|class| u64::from(class.ready)).zip(&specs);
        let memory_mb: u64 =
            counts().map(|(ready, spec)| ready.saturating_mul(spec.memory_mb)).sum();
        if memory_mb > self.pool.max_memory_mb {
            let most = self.pool.max_memory_mb;
            wrong.push((
                "pool.max_memory_mb",
                format!("{most} MiB are too few for the classes, which want {memory_mb} MiB"),
            ));
        }
        // Each class that is copied from a template has that one too.
        let slots: u64 = counts().map(|(ready, _)| ready + 1).sum();
        if !specs.is_empty() && slots >= self.max_workspaces as u64 {
            let most = self.max_workspaces;
            wrong.push((
                "pool.classes",
                format!("they want {slots} of the {most} places that max_workspaces gives"),
            ));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(toml_like: serde_json::Value) -> Options {
        serde_json::from_value(serde_json::json!({ "pool": toml_like })).expect("options")
    }

    #[test]
    fn a_class_takes_what_it_leaves_out_from_the_defaults() {
        let options = options(serde_json::json!({ "classes": [{ "ready": 2, "memory_mb": 256 }] }));
        assert_eq!(options.problems(), []);
        let spec = options.pool.classes[0].spec(&options);
        assert_eq!((spec.image.as_str(), spec.memory_mb, spec.vcpus), ("base", 256, 2));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let class = serde_json::json!({ "ready": 3, "memory_mb": 4096 });
        let bad = serde_json::json!({
            "ready": 0, "image": "nope", "isolation": "sandbox", "vcpus": 99, "disk_gb": 0,
        });
        let problems = options(serde_json::json!({ "classes": [class, class, bad] })).problems();
        let told: Vec<_> = problems.iter().map(|(key, why)| format!("{key}: {why}")).collect();
        assert_eq!(
            told,
            [
                "pool.classes: class 2: it is the same as one before it",
                "pool.classes: class 3: ready must be 1 to 100, not 0",
                "pool.classes: class 3: there is no image `nope`",
                "pool.classes: class 3: a sandbox keeps the host name that it was started with, and \
                 starts at once without a pool: isolation must be vm",
                "pool.classes: class 3: vcpus must be 1 to 8, not 99",
                "pool.classes: class 3: disk_gb must be 1 to 100, not 0",
                "pool.max_memory_mb: 8192 MiB are too few for the classes, which want 24576 MiB",
            ]
        );
        let many = serde_json::json!({ "classes": [{ "ready": 60 }], "max_memory_mb": 100_000 });
        assert!(options(many).problems()[0].1.contains("61 of the 50 places"));
        let unknown: Result<Options, _> =
            serde_json::from_value(serde_json::json!({ "pool": { "classes": [{ "redy": 1 }] } }));
        assert!(unknown.is_err());
    }
}
