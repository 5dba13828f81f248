//! Text of PDFs, made by a process of its own: a sandbox with bounded memory, time and output.
//!
//! ```text
//! bytes ─▶ standard input ─▶ [ bwrap ─ this program as `read-pdf` ] ─▶ standard output ─▶ pages
//!                               └ no network, no files, a limit of each resource
//! ```
//! The library that parses PDFs is written for good files. A file that makes it panic, run in circles, or
//! take all memory ends that process, and is a failure of that file. The process limits itself, takes the bytes, and
//! answers with one character and the rest: `=` and pages as JSON, or `!` and what is wrong with the file. A
//! truncated answer is not valid.

use std::{
    any::Any,
    ffi::OsString,
    io::{self, Read, Write},
    panic,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use hivekeep_runtime::host_process::{
    self, HostBounds, HostChild, HostCommand, HostProgram, HostSandbox, HostUsers, PROGRAM_PATH,
    StderrTail,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Command of the program that makes it read a PDF.
pub const READ_PDF: &str = "read-pdf";
/// Home of the process in its sandbox.
const HOME: &str = "/reader";
/// Processes and threads of all readers together.
const MOST_PROCESSES: u64 = 256;
/// Bytes that end an answer of the process.
const END: u8 = b'\n';
/// Longest reason of the library that parses.
const MAX_WHY_CHARS: usize = 200;

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
        match decoded(&pages) {
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

/// Limits of the process that reads a PDF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PdfLimits {
    /// Memory for the data of the process, in MiB.
    pub memory_mb: u64,
    /// Processor time, and elapsed time.
    pub timeout_secs: u64,
    /// Length of the answer.
    pub output_bytes: u64,
}

impl Default for PdfLimits {
    fn default() -> Self {
        Self { memory_mb: 512, timeout_secs: 30, output_bytes: 16 * 1024 * 1024 }
    }
}

/// Reads the PDF of the standard input, and answers on the standard output. Limits the whole process first,
/// so it is for a process that does nothing else.
///
/// # Errors
/// When the limits cannot be set, or the answer cannot be written.
pub fn read_pdf(limits: PdfLimits) -> io::Result<()> {
    let memory = limits.memory_mb * 1024 * 1024;
    for (resource, most) in [
        (Resource::Data, memory),
        (Resource::Cpu, limits.timeout_secs),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    let mut pdf = Vec::new();
    io::stdin().lock().read_to_end(&mut pdf)?;
    // A panic of the library becomes an answer, and is not printed.
    panic::set_hook(Box::new(|_| {}));
    let answer =
        match panic::catch_unwind(|| pages(&pdf)).unwrap_or_else(|why| Err(panicked(&*why))) {
            Ok(pages) => format!("={}", serde_json::to_string(&pages)?),
            Err(why) => format!("!{}", why.replace(char::is_control, " ")),
        };
    let mut output = io::stdout().lock();
    // A byte beyond the limit is written, so that the reader sees that the answer is too large.
    let most = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
    output.write_all(&answer.as_bytes()[..answer.len().min(most.saturating_add(1))])?;
    output.write_all(&[END])
}

/// Answer of the process; `None` if it is not valid.
fn decoded(answer: &[u8]) -> Option<Result<Vec<String>, String>> {
    match answer.strip_suffix(&[END])?.split_first()? {
        (b'=', pages) => serde_json::from_slice(pages).ok().map(Ok),
        (b'!', why) => Some(Err(String::from_utf8_lossy(why).into_owned())),
        _ => None,
    }
}

/// Texts of the pages.
///
/// # Errors
/// What is wrong with the file.
fn pages(pdf: &[u8]) -> Result<Vec<String>, String> {
    let read = pdf_extract::extract_text_from_mem_by_pages(pdf)
        .map_err(|error| bad(&error.to_string()))?;
    let pages: Vec<String> = read.iter().map(|page| plain(page)).collect();
    match pages.iter().any(|page| page.chars().any(char::is_alphanumeric)) {
        true => Ok(pages),
        false => Err(format!(
            "it is a PDF without text, of {} pages: perhaps scanned pictures",
            pages.len()
        )),
    }
}

fn bad(why: &str) -> String {
    format!("it is not a valid PDF: {}", why.chars().take(MAX_WHY_CHARS).collect::<String>())
}

/// Message of a panic.
fn panicked(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str);
    bad(text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("it makes no sense"))
}

/// Letters that a ligature stands for: queries are typed without ligatures.
fn letters(letter: char) -> Option<&'static str> {
    const LIGATURES: [&str; 7] = ["ff", "fi", "fl", "ffi", "ffl", "st", "st"];
    LIGATURES.get((letter as usize).checked_sub(0xfb00)?).copied()
}

/// A page without the empty lines that its layout makes, but for those between paragraphs.
fn plain(page: &str) -> String {
    let mut plain = String::with_capacity(page.len());
    let mut blank = true;
    for line in page.lines().map(str::trim) {
        match (line.is_empty(), blank) {
            (true, true) => {}
            (true, false) => plain.push('\n'),
            (false, _) => {
                for letter in line.chars().filter(|letter| !letter.is_control()) {
                    match letters(letter) {
                        Some(letters) => plain.push_str(letters),
                        None => plain.push(letter),
                    }
                }
                plain.push('\n');
            }
        }
        blank = line.is_empty();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let whole = br#"=["a","b"]"#.iter().copied().chain([END]).collect::<Vec<_>>();
        assert_eq!(decoded(&whole), Some(Ok(vec!["a".to_owned(), "b".to_owned()])));
        for cut in 0..whole.len() {
            assert_eq!(decoded(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(decoded(b"!it is bad\n"), Some(Err("it is bad".to_owned())));
    }

    #[test]
    fn lines_of_a_layout_are_paragraphs() {
        assert_eq!(plain("\n\n  One \n\n\n o\u{fb03}ce\u{7}\n"), "One\n\noffice\n");
    }
}
