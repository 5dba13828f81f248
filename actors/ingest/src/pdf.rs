//! Text of PDFs, made by a process of its own: a sandbox with bounded memory, time and output.
//!
//! ```text
//! bytes ─▶ standard input ─▶ [ bwrap ─ this program as `read-pdf` ] ─▶ standard output ─▶ pages
//!                               └ no network, no files, a limit of each resource
//! ```
//! The library that parses PDFs is written for good files. A file that makes it panic, run in circles, or
//! take all memory ends that process, and is a failure of that file.

mod child;

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use hivekeep_runtime::host_process::{
    self, HostBounds, HostChild, HostCommand, HostProgram, HostSandbox, HostUsers, PROGRAM_PATH,
    StderrTail,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use child::{PdfLimits, read_pdf};

/// Command of the program that makes it read a PDF.
pub const READ_PDF: &str = "read-pdf";
/// Home of the process in its sandbox.
const HOME: &str = "/reader";
/// Processes and threads of all readers together.
const MOST_PROCESSES: u64 = 256;

/// Reads PDFs.
#[derive(Debug, Clone)]
pub(crate) struct PdfReader {
    /// This program.
    program: Option<PathBuf>,
    /// Empty folder, which is the home of the process.
    home: PathBuf,
    users: HostUsers,
    limits: PdfLimits,
}

impl PdfReader {
    /// A reader that is this program, with a folder for its home.
    pub(crate) fn new(home: PathBuf, users: HostUsers, limits: PdfLimits) -> Self {
        Self { program: std::env::current_exe().ok(), home, users, limits }
    }

    /// Texts of the pages of a PDF.
    ///
    /// # Errors
    /// The reason, for people: what is wrong with the file, or why nothing reads it.
    pub(crate) async fn read(&self, pdf: Vec<u8>) -> Result<Vec<String>, String> {
        let nothing = |why| format!("nothing reads the PDF: {why}");
        let mut child = HostChild::spawn(self.command().await?, &self.home).map_err(nothing)?;
        let (mut input, output, said) = child.streams().map_err(nothing)?;
        let mut said = StderrTail::of(said);
        let (mut pages, most) = (Vec::new(), self.limits.output_bytes);
        let send = async {
            // The process may end before it has read all; its answer counts.
            let _ = input.write_all(&pdf).await;
            drop(input);
        };
        let work = async {
            let mut output = output.take(most + 1);
            tokio::join!(send, output.read_to_end(&mut pages)).1
        };
        let limit = Duration::from_secs(self.limits.timeout_secs);
        // The process is killed when it is dropped, with its namespace.
        match tokio::time::timeout(limit, work).await {
            Err(_) => return Err(format!("its text is not found within {} s", limit.as_secs())),
            Ok(Err(error)) => return Err(format!("its text cannot be taken: {error}")),
            Ok(Ok(_)) if pages.len() as u64 > most => {
                return Err(format!("it has more text than {most} bytes"));
            }
            Ok(Ok(_)) => {}
        }
        match child::decoded(&pages) {
            Some(outcome) => outcome,
            None => Err(format!("it cannot be read: {}", said.last_words(&mut child).await)),
        }
    }

    async fn command(&self) -> Result<HostCommand, String> {
        let nothing = || "nothing reads the PDF: the daemon's program is not there".to_owned();
        let program = self.program.as_ref().ok_or_else(nothing)?;
        let path = program.to_str().ok_or_else(nothing)?;
        tokio::fs::create_dir_all(&self.home)
            .await
            .map_err(|error| format!("nothing reads the PDF: {}: {error}", self.home.display()))?;
        let sandbox = HostSandbox {
            hostname: "reader",
            uid: self.users.uid(HostProgram::Reader),
            home: (&self.home, HOME),
            network: false,
            etc: host_process::ETC,
            folders: &[format!("{path}:ro")],
            tmp_mb: None,
            nests: false,
            bounds: HostBounds { memory_mb: None, processes: MOST_PROCESSES },
        };
        let PdfLimits { memory_mb, timeout_secs, output_bytes } = self.limits;
        let limits =
            [memory_mb, timeout_secs, output_bytes].map(|it| OsString::from(it.to_string()));
        let mut command =
            sandbox.command().await.map_err(|why| format!("nothing reads the PDF: {why}"))?;
        command
            .arg(program)
            .arg(READ_PDF)
            .args(limits)
            .env_clear()
            .env("PATH", PROGRAM_PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}
