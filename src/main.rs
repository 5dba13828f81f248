//! The `hivekeep` program; everything it does is in the library.

use std::process::ExitCode;

/// Gives freed memory back by a thread of its own (decision 0047).
#[cfg(feature = "full")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    hivekeep::cli::main()
}
