//! From a request to something that can be executed.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hivekeep_protocol::{Argv, GuestCode, GuestError, limits};

use crate::files::io_error;
use crate::sys::spawn::Program;

const BASE_ENV: [(&str, &str); 7] = [
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("LOGNAME", "root"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("SHELL", "/bin/sh"),
    ("TERM", "dumb"),
    ("USER", "root"),
];
const DEFAULT_WORKDIRS: [&std::ffi::CStr; 3] = [c"/workspace", c"/root", c"/"];
const SHELL: &std::ffi::CStr = c"/bin/sh";
/// Linux refuses a single argument of 128 KiB (`MAX_ARG_STRLEN`).
const MAX_INLINE_SCRIPT_BYTES: usize = 100 * 1024;
/// Hard limit of open files of commands; the soft one is the usual 1024.
const MAX_OPEN_FILES: u64 = 65_536;

/// A command ready to start.
#[derive(Debug)]
pub struct PreparedCommand {
    /// Program to execute.
    pub program: Program,
    /// The file of a long script; removed when dropped.
    pub script: Option<ScriptFile>,
}

impl PreparedCommand {
    /// Checks the request and resolves the program. `script_dir` takes long scripts.
    ///
    /// # Errors
    /// `Invalid` for NULs and bad variable names, `TooLarge`, `CannotStart` for a
    /// program that PATH does not have.
    pub fn new(
        argv: &Argv,
        env: &[(String, String)],
        workdir: Option<&str>,
        script_dir: &Path,
    ) -> Result<Self, GuestError> {
        let env = environment(env)?;
        let workdirs = match workdir {
            Some(dir) => vec![text(dir, "the working directory")?],
            None => DEFAULT_WORKDIRS.map(std::ffi::CStr::to_owned).to_vec(),
        };
        let mut script = None;
        let (path, argv) = match argv {
            Argv::Shell(line) if line.len() > MAX_INLINE_SCRIPT_BYTES => {
                let file = ScriptFile::write(script_dir, line)?;
                let name = text(&file.0.to_string_lossy(), "the script's path")?;
                script = Some(file);
                (SHELL.to_owned(), vec![c"sh".to_owned(), name])
            }
            Argv::Shell(line) => {
                let line = text(line, "the command")?;
                (SHELL.to_owned(), vec![c"sh".to_owned(), c"-c".to_owned(), line])
            }
            Argv::Direct(words) => direct(words, &env, workdir)?,
        };
        let env = env
            .into_iter()
            .map(|(name, value)| text(&format!("{name}={value}"), "the environment"))
            .collect::<Result<_, _>>()?;
        let max_open_files = Some(max_open_files());
        Ok(Self { program: Program { path, argv, env, workdirs, max_open_files }, script })
    }
}

/// Limit of open files of commands: this process's own hard limit, at most [`MAX_OPEN_FILES`].
fn max_open_files() -> u64 {
    static OURS: OnceLock<u64> = OnceLock::new();
    *OURS.get_or_init(|| {
        let ours = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        ours.unwrap_or(MAX_OPEN_FILES).min(MAX_OPEN_FILES)
    })
}

fn invalid(message: impl Into<String>) -> GuestError {
    GuestError::new(GuestCode::Invalid, message)
}

fn text(text: &str, what: &str) -> Result<CString, GuestError> {
    CString::new(text).map_err(|_| invalid(format!("{what} holds a NUL byte")))
}

fn environment(asked: &[(String, String)]) -> Result<BTreeMap<&str, &str>, GuestError> {
    if asked.len() > limits::MAX_ENV_VARS {
        let message = format!("{} variables; at most {}", asked.len(), limits::MAX_ENV_VARS);
        return Err(GuestError::new(GuestCode::TooLarge, message));
    }
    let mut env = BTreeMap::from(BASE_ENV);
    for (name, value) in asked {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(invalid(format!("{name:?} is not a name for a variable")));
        }
        env.insert(name, value);
    }
    Ok(env)
}

fn direct(
    words: &[String],
    env: &BTreeMap<&str, &str>,
    workdir: Option<&str>,
) -> Result<(CString, Vec<CString>), GuestError> {
    let program = words.first().filter(|word| !word.is_empty());
    let program = program.ok_or_else(|| invalid("no program is named"))?;
    let argv = words.iter().map(|word| text(word, "an argument")).collect::<Result<_, _>>()?;
    if program.contains('/') {
        return Ok((text(program, "the program")?, argv));
    }
    let found = env.get("PATH").unwrap_or(&"").split(':').find_map(|dir| {
        let dir = if dir.is_empty() { "." } else { dir };
        let path = Path::new(workdir.unwrap_or("/")).join(dir).join(program);
        let executable = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
        (executable && path.is_file()).then_some(path)
    });
    let found = found.ok_or_else(|| {
        GuestError::new(GuestCode::CannotStart, format!("{program}: not found in PATH"))
    })?;
    Ok((text(&found.to_string_lossy(), "the program")?, argv))
}

/// A script too long for an argument.
#[derive(Debug)]
pub struct ScriptFile(pub PathBuf);

impl ScriptFile {
    /// The folder is memory in a VM and in a sandbox, so this does not wait for a disk.
    fn write(dir: &Path, script: &str) -> Result<Self, GuestError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("script-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = Self(dir.join(name));
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file.0)
            .and_then(|mut opened| opened.write_all(script.as_bytes()))
            .map_err(|error| io_error(&error, "the script file"))?;
        Ok(file)
    }
}

impl Drop for ScriptFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(argv: Argv, env: &[(&str, &str)]) -> Result<PreparedCommand, GuestCode> {
        let env: Vec<_> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let dir = std::env::temp_dir();
        PreparedCommand::new(&argv, &env, None, &dir).map_err(|error| error.code)
    }

    #[test]
    fn the_request_wins_over_the_base_environment() {
        let it = prepared(Argv::Shell("x".into()), &[("HOME", "/a"), ("HOME", "/b"), ("N", "1")]);
        let env = it.expect("prepared").program.env;
        assert!(env.contains(&c"HOME=/b".to_owned()) && env.contains(&c"N=1".to_owned()));
        assert!(env.contains(&c"TERM=dumb".to_owned()) && !env.contains(&c"HOME=/root".to_owned()));
    }

    #[test]
    fn nonsense_is_refused_with_its_code() {
        let sh = || Argv::Shell("true".into());
        for name in ["", "A=B", "A\0"] {
            assert_eq!(prepared(sh(), &[(name, "x")]).err(), Some(GuestCode::Invalid));
        }
        assert_eq!(prepared(sh(), &[("A", "\0")]).err(), Some(GuestCode::Invalid));
        assert_eq!(prepared(Argv::Direct(vec![]), &[]).err(), Some(GuestCode::Invalid));
        let unknown = Argv::Direct(vec!["no-such-program-here".into()]);
        assert_eq!(prepared(unknown, &[]).err(), Some(GuestCode::CannotStart));
    }

    #[test]
    fn a_long_script_becomes_a_file_and_is_removed() {
        let long = Argv::Shell("#".repeat(MAX_INLINE_SCRIPT_BYTES + 1));
        let it = prepared(long, &[]).expect("prepared");
        let path = it.script.as_ref().expect("a file").0.clone();
        assert!(path.exists());
        drop(it);
        assert!(!path.exists());
    }
}
