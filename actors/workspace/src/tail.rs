//! The last bytes of a command's output.

use std::collections::VecDeque;

/// The last bytes of an output of any size.
pub(crate) struct Tail {
    most: usize,
    kept: VecDeque<u8>,
    /// Bytes pushed in all.
    total: u64,
}

impl Tail {
    /// A tail of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: VecDeque::new(), total: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.most)..];
        let surplus = (self.kept.len() + bytes.len()).saturating_sub(self.most);
        self.kept.drain(..surplus);
        self.kept.extend(bytes);
    }

    /// The last bytes, and the number of all bytes pushed.
    pub(crate) fn into_parts(self) -> (Vec<u8>, u64) {
        (self.kept.into(), self.total)
    }

    /// The last bytes as text, with a notice in front when something is missing.
    pub(crate) fn text(mut self) -> String {
        let bytes = self.kept.make_contiguous();
        let cut = self.total > bytes.len() as u64;
        // A character whose beginning was cut is left out.
        let begins = bytes.iter().take(3).take_while(|byte| cut && **byte & 0xc0 == 0x80).count();
        let text = String::from_utf8_lossy(&bytes[begins..]);
        match cut {
            true => format!("[the last {} of {} bytes]\n{text}", bytes.len() - begins, self.total),
            false => text.into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;
    use proptest::prelude::*;

    #[test]
    fn what_is_missing_is_said() {
        let mut tail = Tail::new(4);
        tail.push(b"abc");
        tail.push("dé!".as_bytes());
        assert_eq!(tail.text(), "[the last 4 of 7 bytes]\ndé!");
        let mut tail = Tail::new(2);
        tail.push("é!".as_bytes());
        assert_eq!(tail.text(), "[the last 1 of 3 bytes]\n!");
        let mut tail = Tail::new(4);
        tail.push(b"abcd");
        assert_eq!(tail.text(), "abcd");
    }

    proptest! {
        #[test]
        fn the_end_is_kept_however_it_comes(
            pieces in proptest::collection::vec("[a-z]{0,9}", 0..9),
            most in 1_usize..12,
        ) {
            let mut tail = Tail::new(most);
            pieces.iter().for_each(|piece| tail.push(piece.as_bytes()));
            let whole = pieces.concat();
            let end = &whole[whole.len().saturating_sub(most)..];
            let text = tail.text();
            prop_assert_eq!(text.split('\n').next_back(), Some(end));
            prop_assert_eq!(text.starts_with('['), whole.len() > most);
        }
    }
}
