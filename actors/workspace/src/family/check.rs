//! Findings of what workspaces need on a host: a hypervisor, programs, the guest's daemon, images.

use std::path::Path;

use hivekeep_image::{ImageState, ImageStore, Remedy, RequirementPurpose, requirements};
use hivekeep_machine::doctor::doctor;
use hivekeep_runtime::{
    Finding, Host,
    host_process::{self, HostUsers},
};

use crate::{Options, guest_binary, image_dir, transfer_dir};

/// All findings, in the order in which a person would fix them.
pub(super) async fn all(options: &Options, host: &Host) -> Vec<Finding> {
    let transfers = transfer_dir(options, &host.folders.state);
    let space = transfers
        .exists()
        .then(|| Finding::space("transfer folder", &transfers, &host.room).optional());
    let mut found: Vec<_> = space.into_iter().collect();
    found.extend(machines(options));
    let first = hivekeep_machine::ids_of_programs(&options.driver).ok();
    found.push(host_process::tried(HostUsers::from_first(first), &host.folders.state).await);
    found.extend(programs());
    found.push(guest(options));
    found.extend(images(options, &host.folders.state).await);
    found
}

/// Requirements of machines. The default isolation needs only the hypervisor; the rest makes machines
/// quicker or better confined.
fn machines(options: &Options) -> Vec<Finding> {
    // A tag of its own leaves the groups of a running daemon as they are.
    let tag = format!("check{}", std::process::id());
    let landlock = options.sandbox.landlock_required;
    let found = doctor(&options.driver, &tag).into_iter();
    found
        .map(|found| Finding {
            what: found.what.to_owned(),
            ok: found.ok,
            needed: found.what == "qemu" || (found.what == "landlock" && landlock),
            detail: found.detail,
            remedy: found.remedy,
            package: found.package,
        })
        .collect()
}

fn programs() -> Vec<Finding> {
    let wanted = requirements().into_iter();
    wanted
        .map(|wanted| {
            let (purpose, needed) = match wanted.purpose {
                RequirementPurpose::Overlay => ("makes disks", true),
                RequirementPurpose::Build => ("builds images", false),
                RequirementPurpose::BuildDebian => ("builds the debian image", false),
                RequirementPurpose::BuildSmallKernel => ("compiles the small kernel", false),
            };
            let name = Path::new(wanted.what).file_name().unwrap_or_default().to_string_lossy();
            let missing = format!("missing; {purpose}");
            match (wanted.found, wanted.remedy) {
                (true, _) => Finding::good(name, purpose),
                (false, Remedy::Package(package)) => {
                    Finding::bad(name, missing, "").package(Some(package))
                }
                (false, Remedy::Otherwise(remedy)) => Finding::bad(name, missing, remedy),
            }
            .needed(needed)
        })
        .collect()
}

fn guest(options: &Options) -> Finding {
    match guest_binary(options) {
        Ok(path) => Finding::good("guest daemon", path.display().to_string()),
        Err(error) => {
            Finding::bad("guest daemon", error.message, error.next_step.unwrap_or_default())
        }
    }
    .optional()
}

async fn images(options: &Options, state_dir: &Path) -> Vec<Finding> {
    let (folder, wanted) = (image_dir(options, state_dir), &options.default_image);
    let build = |name: &str| format!("run `hivekeep image build {name}`");
    if !folder.exists() {
        // A check makes no folders.
        return vec![Finding::bad(format!("image {wanted}"), "not built", build(wanted))];
    }
    let listed = match ImageStore::open(folder) {
        Ok(store) => store.list().await,
        Err(error) => Err(error),
    };
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
                    Finding::good(what, format!("built {}", manifest.built_at.format("%Y-%m-%d")))
                }
                ImageState::Pulled(image) => {
                    Finding::good(what, format!("pulled {}", image.pulled_at.format("%Y-%m-%d")))
                }
                ImageState::NotBuilt => Finding::bad(what, "not built", build(name)),
                ImageState::Unreadable { reason } => Finding::bad(what, reason, build(name)),
            };
            found.needed(name == wanted)
        })
        .collect()
}
