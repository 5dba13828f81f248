//! Mutations of kept inputs.

use std::iter::repeat_with;

use fastrand::Rng;

/// Most bytes of an input, as of one that `cargo xtask fuzz` makes.
const MOST_BYTES: usize = 16 * 1024;
/// Most changes to one input.
const MOST_CHANGES: usize = 4;
/// Most bytes that one change inserts, deletes or repeats.
const PIECE: usize = 32;
/// Most copies of a piece that is repeated.
const MOST_COPIES: usize = 8;
/// Integers at which a length, a count or a sum goes wrong; cut to the width in which they are written.
const INTEGERS: [u64; 10] = [
    0,
    1,
    0x7f,
    0x80,
    0x7fff,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];

/// One of the inputs, changed.
pub(super) fn of(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = corpus[rng.usize(..corpus.len())].clone();
    for _ in 0..rng.usize(1..=MOST_CHANGES) {
        change(&mut input, corpus, rng);
        input.truncate(MOST_BYTES);
    }
    input
}

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let end = at + rng.usize(..=PIECE.min(input.len() - at));
    match rng.u8(..6) {
        // A bit the other way.
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
        // Bytes more.
        1 => {
            let count = rng.usize(1..=PIECE);
            let bytes: Vec<u8> = repeat_with(|| rng.u8(..)).take(count).collect();
            input.splice(at..at, bytes);
        }
        // Bytes less.
        2 => drop(input.drain(at..end)),
        // A piece once more, or several times.
        3 => {
            let piece = input[at..end].repeat(rng.usize(1..=MOST_COPIES));
            let to = rng.usize(..=input.len());
            input.splice(to..to, piece);
        }
        // The end of another input.
        4 => {
            let other = &corpus[rng.usize(..corpus.len())];
            input.truncate(at);
            input.extend_from_slice(&other[rng.usize(..=other.len())..]);
        }
        // An integer over what is there.
        _ => {
            let bytes = integer(rng);
            let end = input.len().min(at + bytes.len());
            input.splice(at..end, bytes);
        }
    }
}

/// An integer as wires have them: of one, two, four or eight bytes, or seven bits a byte.
fn integer(rng: &mut Rng) -> Vec<u8> {
    let value = INTEGERS[rng.usize(..INTEGERS.len())];
    let width = 1 << rng.u32(..4);
    match rng.u8(..3) {
        0 => value.to_be_bytes()[8 - width..].to_vec(),
        1 => value.to_le_bytes()[..width].to_vec(),
        _ => varint(value),
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_what_is_tried_and_each_kind_of_change_is_made() {
        let corpus = [(1..=100).collect::<Vec<u8>>(), b"other".to_vec()];
        let some = |seed| {
            let mut rng = Rng::with_seed(seed);
            repeat_with(|| of(&corpus, &mut rng)).take(2_000).collect::<Vec<_>>()
        };
        let inputs = some(1);
        assert_eq!(inputs, some(1));
        assert_ne!(inputs, some(2));
        let any = |wanted: &dyn Fn(&[u8]) -> bool| inputs.iter().any(|input| wanted(input));
        let has = |input: &[u8], bytes: &[u8]| input.windows(bytes.len()).any(|it| it == bytes);
        assert!(any(&|input| input.len() == 100 && input != corpus[0]), "a change in place");
        assert!(any(&|input| (96..100).contains(&input.len())), "a few bytes less");
        assert!(any(&|input| input.len() > 100 && corpus[0].iter().all(|it| input.contains(it))));
        assert!(any(&|input| input.starts_with(&[1, 2, 3]) && input.ends_with(b"ther")), "spliced");
        assert!(any(&|input| input.windows(8).any(|it| it[..4] == it[4..] && it[0] != it[1])));
        assert!(any(&|input| has(input, &0x7fff_ffff_u32.to_be_bytes())), "an integer");
        assert!(any(&|input| has(input, &varint(u64::MAX))), "one of ten bytes");
        assert_eq!(varint(300), [0xac, 0x02]);
        assert!(inputs.iter().all(|input| input.len() <= MOST_BYTES));
    }
}
