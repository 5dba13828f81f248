//! The `hivekeep` program; everything it does is in the library.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// Gives freed memory back by a thread of its own (decision 0047).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    hivekeep::cli::main()
}
