//! Loading the drivers that the image brings, in its order.

use std::fs::File;
use std::path::Path;

/// Loads what `DIR/modules` lists, one file name of `DIR` a line. A module that
/// fails is said and skipped: the disk may do without it, or its absence is the
/// next error.
pub(super) fn load_all(dir: &Path) {
    let list = match std::fs::read_to_string(dir.join("modules")) {
        Ok(list) => list,
        // A kernel with everything built in needs none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        Err(error) => return crate::say!("init: module list: {error}"),
    };
    for name in list.lines().map(str::trim).filter(|name| !name.is_empty()) {
        if let Err(error) = load(&dir.join(name)) {
            crate::say!("init: module {name}: {error}");
        }
    }
}

fn load(path: &Path) -> std::io::Result<()> {
    let module = File::open(path)?;
    match rustix::system::finit_module(&module, c"", 0) {
        Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
