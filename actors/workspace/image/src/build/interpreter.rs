//! Additions of the image `code-interpreter`: Python with Jupyter's kernel, and a server for it. Only the
//! daemon starts the server, when code is first run.

use super::flavour::Flavour;

/// Packages that the server needs, and those that programs written for sandboxes expect.
const PACKAGES: &str = "bash,ca-certificates,curl,git,procps,python-is-python3,python3,python3-ipykernel,\
                        python3-pip,python3-venv,sudo";

/// See the module.
pub(super) const FLAVOUR: Flavour = Flavour {
    include: PACKAGES,
    files: &[
        ("usr/lib/code-interpreter", 0o755, include_str!("../../assets/code-interpreter.py")),
        ("etc/sudoers.d/user", 0o440, "user ALL=(ALL:ALL) NOPASSWD: ALL\n"),
        // pip adds to the user's own packages; the system is nobody else's.
        ("etc/pip.conf", 0o644, "[global]\nbreak-system-packages = true\n"),
    ],
    users_workspace: true,
};
