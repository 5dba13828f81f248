//! A fuzz target's corpus, and mutations of it, as an ordinary test: without instrumentation, so without a search for
//! code that no input has reached; that is `cargo xtask fuzz`.

mod mutation;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use fastrand::Rng;

/// Mutations that a replay tries.
const MUTATIONS: usize = 2_000;
/// Names the seed of another run.
const SEED: &str = "TEST_HIVEKEEP_FUZZ_SEED";

/// Runs the body of the target `name` on the inputs in `tests/fuzz/corpus/NAME` and on mutations of them, which the
/// seed that it prints says again.
///
/// # Panics
/// As the body. The input that it panicked on is in a file whose path is printed.
#[allow(clippy::print_stdout)]
pub fn replay(name: &str, body: fn(&[u8])) {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().unwrap_or_else(|_| panic!("{SEED} is not a number: {seed}")),
        Err(_) => fastrand::u64(..),
    };
    println!("{SEED}={seed}");
    replay_with(&corpus(name), &found(), &format!("{name}-{seed}"), Rng::with_seed(seed), body);
}

/// Runs the body. The folder `found` keeps the input that broke it as `LABEL-NUMBER`.
#[allow(clippy::print_stdout)]
fn replay_with(corpus: &[Vec<u8>], found: &Path, label: &str, mut rng: Rng, body: fn(&[u8])) {
    fs::create_dir_all(found).expect("the folder of what is found is made");
    // On the disk before it is tried: a stack that overflows leaves nobody to write it.
    let trying = found.join(format!("{label}-trying"));
    let file = File::create(&trying).expect("the file of an input is made");
    println!("each input is in {} while it is tried", trying.display());
    let mutations = (0..MUTATIONS).map(|_| mutation::of(corpus, &mut rng));
    for (number, input) in corpus.iter().cloned().chain(mutations).enumerate() {
        // One open file: some file systems flush each that is cut to nothing, written and closed.
        let written = file.write_all_at(&input, 0).and_then(|()| file.set_len(input.len() as u64));
        written.expect("the input is written");
        if let Err(panic) = catch_unwind(|| body(&input)) {
            let broke = found.join(format!("{label}-{number}"));
            fs::rename(&trying, &broke).expect("the input is kept");
            println!("the input is in {}", broke.display());
            resume_unwind(panic);
        }
    }
    fs::remove_file(&trying).expect("the last input is there");
}

/// The kept inputs of a target, in a stable order.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = root().join("tests/fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it lists").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty: a target begins with a corpus", folder.display());
    files.iter().map(|file| fs::read(file).expect("it reads")).collect()
}

/// Folder of inputs that broke a target, as `cargo xtask fuzz` has it.
fn found() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root().join("target")).join("fuzz/found")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders below the root")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length_is_sound(input: &[u8]) {
        let length = input.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        assert!(length.is_none_or(|length| length < 1 << 31), "a length of {length:?}");
    }

    #[test]
    fn the_input_that_broke_a_body_is_kept_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let corpus = [b"\0\0\0\x05hello".to_vec()];
        let run = |body| {
            catch_unwind(|| replay_with(&corpus, folder.path(), "it", Rng::with_seed(7), body))
        };
        assert!(run(length_is_sound).is_err());
        let kept: Vec<_> = fs::read_dir(folder.path()).expect("it lists").collect();
        let [Ok(kept)] = &kept[..] else { panic!("{kept:?}") };
        let input = fs::read(kept.path()).expect("it reads");
        assert!(catch_unwind(|| length_is_sound(&input)).is_err());
        fs::remove_file(kept.path()).expect("it goes");
        assert!(run(|_| ()).is_ok());
        assert_eq!(fs::read_dir(folder.path()).expect("it lists").count(), 0);
    }
}
