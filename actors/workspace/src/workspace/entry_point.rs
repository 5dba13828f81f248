//! Entry point of a workspace's image, as it was recorded with the disk.

use hivekeep_kernel::{Layer, ToolError, ports::EntryPoint};

use crate::{codes, ledger::Ledger};

/// Working directory of an image that names none, as in containers.
const ROOT: &str = "/";

/// Finds the entry point.
///
/// # Errors
/// `no_entry_point`, which says what there is instead.
pub(crate) fn entry_point(ledger: &Ledger) -> Result<EntryPoint, ToolError> {
    let image = &ledger.plan.spec.image;
    let refused = |why: String, next: &str| {
        Err(ToolError::new(Layer::Actor, codes::NO_ENTRY_POINT, why).next(next.to_owned()))
    };
    let Some(defaults) = &ledger.defaults else {
        let why = format!(
            "no entry point of image {image} is recorded: it is not a container image, or the disk was \
             made by an earlier version"
        );
        let next = "name the program in `command`, or make a workspace from a container image";
        return refused(why, next);
    };
    if defaults.entrypoint.is_empty() {
        let instead = match defaults.command.join(" ") {
            none if none.is_empty() => String::new(),
            words => format!("; its command is {words:.200?}"),
        };
        let why = format!("image {image} has no entry point{instead}");
        return refused(why, "name the program in `command`, and leave `entrypoint` out");
    }
    Ok(EntryPoint {
        program: defaults.entrypoint.clone(),
        default_args: defaults.command.clone(),
        working_dir: defaults.working_dir.clone().unwrap_or_else(|| ROOT.to_owned()),
    })
}
