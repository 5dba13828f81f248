//! What the doctor looks at.

use std::{os::unix::fs::MetadataExt, path::Path};

use hivekeep_image::{ImageState, ImageStore, Purpose, Remedy, requirements};
use hivekeep_kernel::{Room, Shortage};
use hivekeep_machine as driver;
use hivekeep_network::{Mode, doctor};
use serde::Serialize;

use super::distribution::Distribution;
use crate::{
    cli::{Context, client::Client, reach::Unreachable},
    config::Loaded,
};

/// One thing looked at.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) ok: bool,
    /// Without it, nothing works; otherwise something is slower or missing.
    pub(super) needed: bool,
    pub(super) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    fn good(what: &str, detail: impl Into<String>) -> Self {
        Self { what: what.to_owned(), ok: true, needed: true, detail: detail.into(), remedy: None }
    }

    fn bad(what: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { what: what.to_owned(), ok: false, needed: true, detail: detail.into(), remedy }
    }

    fn optional(self) -> Self {
        self.needed(false)
    }

    fn needed(mut self, needed: bool) -> Self {
        self.needed = needed;
        self
    }
}

/// Everything, in the order in which a person would mend it.
pub(super) fn all(context: &Context) -> Vec<Finding> {
    let loaded = match context.load() {
        Ok(loaded) => loaded,
        Err(problems) => {
            let remedy = "mend it; `hivekeep config --default` shows every key";
            return vec![Finding::bad("configuration", problems.to_string(), remedy)];
        }
    };
    let mut found = vec![configuration(&loaded)];
    found.extend(folders(&loaded));
    found.push(daemon(context, &loaded));
    let here = Distribution::here();
    found.extend(host(&loaded, &here));
    found.extend(programs(&here));
    found.extend(network(&loaded, &here));
    found.push(guest(&loaded));
    found.push(vault(&loaded));
    found.extend(images(&loaded));
    found
}

fn configuration(loaded: &Loaded) -> Finding {
    let detail = match &loaded.file {
        Some(file) => file.display().to_string(),
        None => "no file: the defaults".to_owned(),
    };
    Finding::good("configuration", detail)
}

fn folders(loaded: &Loaded) -> Vec<Finding> {
    let folders = &loaded.folders;
    let places = [
        ("state folder", &folders.state),
        ("run folder", &folders.run),
        ("log folder", &folders.logs),
    ];
    let room = Room::with_floor_mb(loaded.config.daemon.free_space_floor_mb);
    let mut found: Vec<_> =
        places.into_iter().map(|(what, path)| folder(what, path, &room)).collect();
    let transfers = hivekeep_workspace::transfer_dir(&loaded.config.workspace, &folders.state);
    let vault = loaded.config.vault.folder(&folders.state);
    for (what, path) in [("transfer folder", transfers), ("vault folder", vault)] {
        found.extend(path.exists().then(|| space(what, &path, &room).optional()));
    }
    found.push(reserve(loaded));
    found
}

/// Free space against the floor below which nothing new is begun.
fn space(what: &str, path: &Path, room: &Room) -> Finding {
    let shown = path.display();
    let bytes = crate::cli::output::bytes;
    let Some(Shortage { free_bytes, floor_bytes }) = room.look(path) else {
        return Finding::bad(what, format!("{shown} cannot be looked at"), "mend the file system");
    };
    let (free, floor) = (bytes(free_bytes), bytes(floor_bytes));
    if free_bytes < floor_bytes {
        let detail = format!("{shown} has {free} left, below its floor of {floor}");
        return Finding::bad(what, detail, "free some space: nothing new is begun until then");
    }
    Finding::good(what, format!("{shown} ({free} free, floor {floor})"))
}

/// What the journal has put by for a full disk.
fn reserve(loaded: &Loaded) -> Finding {
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
        // The daemon makes it, if it may.
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
            format!("{shown} has {} left", crate::cli::output::bytes(found.free_bytes)),
            "free some space",
        ),
        _ => space(what, path, room),
    }
}

fn daemon(context: &Context, loaded: &Loaded) -> Finding {
    match Client::connect(&context.reach(loaded)) {
        Ok(client) => {
            let welcome = &client.welcome;
            let detail = format!("version {}, pid {}", welcome.version, welcome.pid);
            if welcome.version == env!("CARGO_PKG_VERSION") {
                return Finding::good("daemon", detail);
            }
            Finding::bad("daemon", detail, "restart it: it is not of this program's version")
                .optional()
        }
        Err(Unreachable::NotRunning(_)) => {
            Finding::good("daemon", "not running; `hivekeep mcp` starts it").optional()
        }
        Err(error) => Finding::bad("daemon", error.to_string(), "look at `hivekeep logs`"),
    }
}

/// What machines need. Only the hypervisor is needed by the default isolation;
/// the rest makes machines quicker or better confined.
fn host(loaded: &Loaded, here: &Distribution) -> Vec<Finding> {
    // A tag of our own: a running daemon's groups stay as they are.
    let tag = format!("check{}", std::process::id());
    let landlock = loaded.config.workspace.sandbox.landlock_required;
    driver::doctor::doctor(&loaded.config.workspace.driver, &tag)
        .into_iter()
        .map(|found| Finding {
            what: found.what.to_owned(),
            ok: found.ok,
            needed: found.what == "qemu" || (found.what == "landlock" && landlock),
            detail: found.detail,
            remedy: found.package.map(|package| here.install(package)).or(found.remedy),
        })
        .collect()
}

fn programs(here: &Distribution) -> Vec<Finding> {
    requirements()
        .into_iter()
        .map(|wanted| {
            let (purpose, needed) = match wanted.purpose {
                Purpose::Overlay => ("makes disks", true),
                Purpose::Build => ("builds images", false),
                Purpose::BuildDebian => ("builds the debian image", false),
                Purpose::BuildSmallKernel => ("compiles the small kernel", false),
            };
            let name = Path::new(wanted.what).file_name().unwrap_or_default().to_string_lossy();
            match wanted.found {
                true => Finding::good(&name, purpose),
                false => {
                    let remedy = match wanted.remedy {
                        Remedy::Package(package) => here.install(package),
                        Remedy::Otherwise(remedy) => remedy.to_owned(),
                    };
                    Finding::bad(&name, format!("missing; {purpose}"), remedy)
                }
            }
            .needed(needed)
        })
        .collect()
}

/// What the workspaces' network needs; with packets, in namespaces that are gone afterwards.
fn network(loaded: &Loaded, here: &Distribution) -> Vec<Finding> {
    let options = &loaded.config.network;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime of one thread can be built");
    let lines = runtime.block_on(doctor::doctor(options, &loaded.folders.state));
    lines
        .into_iter()
        .map(|line| Finding {
            what: line.what.to_owned(),
            ok: line.ok,
            needed: options.mode == Mode::Bridge,
            detail: line.detail,
            remedy: line.package.map(|package| here.install(package)).or(line.remedy),
        })
        .collect()
}

fn guest(loaded: &Loaded) -> Finding {
    match hivekeep_workspace::guest_binary(&loaded.config.workspace) {
        Ok(path) => Finding::good("guest daemon", path.display().to_string()),
        Err(error) => {
            Finding::bad("guest daemon", error.message, error.next_step.unwrap_or_default())
        }
    }
    .optional()
}

fn vault(loaded: &Loaded) -> Finding {
    match hivekeep_vault::look(&loaded.config.vault, &loaded.folders.state) {
        Ok(detail) => Finding::good("vault", detail),
        Err(hivekeep_vault::Error::Disabled) => Finding::good("vault", "off, by vault.enabled"),
        Err(error) => Finding::bad(
            "vault",
            error.to_string(),
            "make the folder readable and writable for the daemon, or set vault.path",
        ),
    }
    .optional()
}

fn images(loaded: &Loaded) -> Vec<Finding> {
    let folder = hivekeep_workspace::image_dir(&loaded.config.workspace, &loaded.folders.state);
    let wanted = &loaded.config.workspace.default_image;
    let build = |name: &str| format!("run `hivekeep image build {name}`");
    if !folder.exists() {
        // Looking must not make folders.
        return vec![Finding::bad(&format!("image {wanted}"), "not built", build(wanted))];
    }
    let listed = ImageStore::open(folder).and_then(|store| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of one thread can be built").block_on(store.list())
    });
    let images = match listed {
        Ok(images) => images,
        Err(error) => {
            return vec![Finding::bad("images", error.to_string(), "mend the image folder")];
        }
    };
    images
        .into_iter()
        .map(|image| {
            let (what, name) = (format!("image {}", image.name), image.name.as_str());
            let found = match image.state {
                ImageState::Built(manifest) => {
                    Finding::good(&what, format!("built {}", manifest.built_at.format("%Y-%m-%d")))
                }
                ImageState::NotBuilt => Finding::bad(&what, "not built", build(name)),
                ImageState::Unreadable { reason } => Finding::bad(&what, reason, build(name)),
            };
            found.needed(name == wanted)
        })
        .collect()
}
