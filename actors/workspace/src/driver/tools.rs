//! Finding the programs that machines are made of.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Error;

/// The absolute path of a configured program; a bare name is looked up in `PATH`.
pub(super) fn find(program: &Path, remedy: &str) -> Result<PathBuf, Error> {
    let is_program = |path: &Path| {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
    };
    let found = if program.components().count() > 1 {
        is_program(program).then(|| program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| is_program(path))
    };
    found.ok_or_else(|| Error::ToolMissing {
        program: program.display().to_string(),
        detail: remedy.to_owned(),
    })
}

/// The first line of `program --version`.
pub(super) fn version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("run", program))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
