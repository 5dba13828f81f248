//! Health checks of the host, folders and configuration, for `hivekeep check` and the daemon itself.

mod distribution;

use std::{os::unix::fs::MetadataExt, path::Path};

use hivekeep_config::{LoadedConfig, families};
use hivekeep_kernel::Room;
use hivekeep_runtime::{Finding, Host, bytes};

use distribution::Distribution;

/// Configuration and folders.
pub(crate) fn of_daemon(loaded: &LoadedConfig) -> Vec<Finding> {
    let mut found = vec![configuration(loaded)];
    let renamed = loaded.renamed.iter().map(|old_name| {
        Finding::bad("configuration", old_name.to_string(), "use the new name").optional()
    });
    found.extend(renamed);
    found.extend(folders(loaded));
    found
}

/// Findings of the families about this host. Blocks for seconds; not to be called from a runtime's thread.
pub(crate) fn of_families(loaded: &LoadedConfig) -> Vec<Finding> {
    let room = Room::with_floor_mb(loaded.config.daemon.free_space_floor_mb);
    let host = Host { folders: loaded.folders.shared(), room };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be built");
    let mut found = runtime.block_on(families::check(&loaded.config, &host));
    let here = Distribution::here();
    for finding in &mut found {
        if let Some(package) = finding.package {
            finding.remedy = Some(here.install(package));
        }
    }
    found
}

fn configuration(loaded: &LoadedConfig) -> Finding {
    let detail = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => "no file: the defaults".to_owned(),
    };
    Finding::good("configuration", detail)
}

fn folders(loaded: &LoadedConfig) -> Vec<Finding> {
    let folders = &loaded.folders;
    let places = [
        ("state folder", &folders.state),
        ("run folder", &folders.run),
        ("log folder", &folders.logs),
    ];
    let room = Room::with_floor_mb(loaded.config.daemon.free_space_floor_mb);
    let mut found: Vec<_> =
        places.into_iter().map(|(what, path)| folder(what, path, &room)).collect();
    found.push(reserve(loaded));
    found
}

/// Finding about the space that the journal sets aside for a full disk.
fn reserve(loaded: &LoadedConfig) -> Finding {
    let (what, journal) = ("journal reserve", loaded.folders.journal());
    let wanted_mb = loaded.config.store.reserve_mb;
    match (wanted_mb, hivekeep_store::reserved_bytes(&journal)) {
        (0, _) => Finding::good(what, "none, by store.reserve_mb"),
        (_, 0) if !journal.exists() => Finding::good(what, format!("{wanted_mb} MiB will be made")),
        (_, 0) => Finding::bad(what, "given up", "free some space: the daemon makes it anew"),
        (..) => Finding::good(what, format!("{wanted_mb} MiB")),
    }
    .optional()
}

fn folder(what: &str, path: &Path, room: &Room) -> Finding {
    let shown = path.display().to_string();
    let Ok(meta) = std::fs::metadata(path) else {
        // The daemon makes a missing folder, if it may.
        let there = path.ancestors().skip(1).find(|path| path.exists());
        let may = there
            .is_some_and(|there| rustix::fs::access(there, rustix::fs::Access::WRITE_OK).is_ok());
        return match may {
            true => Finding::good(what, format!("{shown} will be made")),
            false => Finding::bad(
                what,
                format!("{shown} cannot be made"),
                "make it for this user, or set its key in section [daemon]",
            ),
        };
    };
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != own {
        let detail = format!("{shown} is not a folder of user {own}");
        return Finding::bad(what, detail, "remove it, or choose another in section [daemon]");
    }
    match room.look(path) {
        // A base image, an overlay and the journal need about this much.
        Some(found) if (found.floor_bytes..2 << 30).contains(&found.free_bytes) => Finding::bad(
            what,
            format!("{shown} has {} left", bytes(found.free_bytes)),
            "free some space",
        ),
        _ => Finding::space(what, path, room),
    }
}
