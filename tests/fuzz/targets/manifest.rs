//! Manifests of agents, workflows and DAGs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hivekeep_manifest::fuzzing::manifest(bytes));
