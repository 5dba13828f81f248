//! A package that is selected beside others and never built; `Cargo.toml` says why.

fn main() {}
