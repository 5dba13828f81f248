//! Options of workspaces.

mod pool;

use std::path::PathBuf;

use hivekeep_kernel::{Backoff, GiveUp, Restart, RestartPolicy};
use hivekeep_link::LinkSupervisorOptions;
use hivekeep_machine::{Isolation, Options as DriverOptions, SandboxOptions};
use hivekeep_oci::ImageOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use pool::{ClassOptions, PoolOptions};

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
            max_snapshots_per_workspace: 20,
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
    /// What happens to a machine that crashed.
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
