//! `hivekeep read-pdf`, which the daemon runs in a sandbox for each PDF (`hivekeep_ingest::read_pdf`).

use hivekeep_ingest::PdfLimits;

use super::CommandFailure;

/// Read a PDF from the standard input and answer with its pages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Memory.
    memory_mb: u64,
    /// Time.
    timeout_secs: u64,
    /// Length of the answer.
    output_bytes: u64,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let Args { memory_mb, timeout_secs, output_bytes } = *args;
    Ok(hivekeep_ingest::read_pdf(PdfLimits { memory_mb, timeout_secs, output_bytes })?)
}
