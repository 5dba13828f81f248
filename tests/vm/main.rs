//! A real daemon with real machines, driven from outside and killed on purpose.
//!
//! `sandbox` runs everywhere bubblewrap does and is quick; `vm` boots virtual
//! machines and runs one test at a time. What a host cannot run prints
//! `SKIPPED:` and why.

mod house;
mod leaks;
mod scenes;

/// Tests on namespaces: hundreds of crashes in the time of a few boots.
mod sandbox {
    use crate::house::Kind::Sandbox;
    crate::scenes::scenes!(Sandbox);
}

/// The same on virtual machines, and what only they can show.
mod vm {
    use crate::house::Kind::Vm;
    crate::scenes::scenes!(Vm);
}
