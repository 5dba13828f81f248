//! Loading the drivers that the image brings, in its order.
//!
//! Modules that neither the disk nor the link needs are loaded when the agent runs, so that the first answer
//! does not wait for them.

use std::fs::File;
use std::path::Path;

/// Modules loaded after the agent's start; what needs one waits for it, see `network::interface`.
const LATER: [&str; 7] = [
    "failover.ko",
    "net_failover.ko",
    "virtio_net.ko",
    "overlay.ko",
    "qemu_fw_cfg.ko",
    "fuse.ko",
    "virtiofs.ko",
];
/// Modules that only a machine with volumes needs.
const OF_VOLUMES: [&str; 2] = ["fuse.ko", "virtiofs.ko"];
/// Part of the names of AF_VSOCK's modules.
const VSOCK: &str = "vsock";

/// Modules that are still to be loaded. They are open, since their folder is out of reach once the
/// disk is the root.
#[derive(Debug)]
pub(super) struct Later(Vec<(String, File)>);

/// Loads what `DIR/modules` lists, one file name of `DIR` a line, but for what can wait. A module that fails
/// is reported and skipped: the disk may do without it, or its absence is the next error.
pub(super) fn load_needed(dir: &Path, carrier: &str, has_volumes: bool) -> Later {
    let mut later = Vec::new();
    let list = match std::fs::read_to_string(dir.join("modules")) {
        Ok(list) => list,
        // A kernel with everything built in needs none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Later(later),
        Err(error) => {
            crate::say!("init: module list: {error}");
            return Later(later);
        }
    };
    let is_wanted = |name: &&str| !name.is_empty() && (has_volumes || !OF_VOLUMES.contains(name));
    for name in list.lines().map(str::trim).filter(is_wanted) {
        let opened = File::open(dir.join(name)).map(|file| {
            if can_wait(name, carrier) {
                later.push((name.to_owned(), file));
            } else {
                load(name, &file);
            }
        });
        if let Err(error) = opened {
            crate::say!("init: module {name}: {error}");
        }
    }
    Later(later)
}

fn can_wait(name: &str, carrier: &str) -> bool {
    LATER.contains(&name) || (name.contains(VSOCK) && carrier != VSOCK)
}

impl Later {
    /// Loads the modules in a thread that gives way to the agent, but not for long to a busy command.
    pub(super) fn load_beside(self) {
        let load_all = move || {
            // A failure to lower the priority does not keep the modules from being loaded.
            let _ = rustix::process::nice(10);
            self.0.iter().for_each(|(name, file)| load(name, file));
        };
        if let Err(error) = std::thread::Builder::new().name("modules".into()).spawn(load_all) {
            crate::say!("init: the later modules: {error}");
        }
    }
}

fn load(name: &str, module: &File) {
    match rustix::system::finit_module(module, c"", 0) {
        Err(rustix::io::Errno::EXIST) | Ok(()) => {}
        Err(error) => crate::say!("init: module {name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_and_the_link_wait_for_no_other_module() {
        for needed in ["virtio_mmio.ko", "virtio_blk.ko", "virtio_console.ko", "virtio_rng.ko"] {
            assert!(!can_wait(needed, "virtio-serial"), "{needed}");
        }
        for vsock in ["vsock.ko", "vmw_vsock_virtio_transport.ko"] {
            assert!(can_wait(vsock, "virtio-serial") && !can_wait(vsock, "vsock"));
        }
        assert!(can_wait("virtio_net.ko", "vsock"));
    }
}
