//! Output as text: never cut inside of a character, and what is left out is counted.

use hivekeep_kernel::ports::CommandStream;

/// The end of a stream, and the number of bytes that are left out before it.
pub(crate) fn tail(stream: &CommandStream) -> (String, u64) {
    let cut = stream.total_bytes > stream.bytes.len() as u64;
    // Not the rest of a character whose beginning is gone.
    let rest = stream.bytes.iter().take(3).take_while(|byte| cut && **byte & 0xc0 == 0x80).count();
    let shown = &stream.bytes[rest..];
    let omitted = stream.total_bytes.saturating_sub(shown.len() as u64);
    (String::from_utf8_lossy(shown).into_owned(), omitted)
}

/// The first characters of a stream, with a notice when there is more.
pub(crate) fn head(stream: &CommandStream, most_chars: usize) -> (String, bool) {
    let bytes = &stream.bytes;
    let more = stream.total_bytes > bytes.len() as u64;
    // A character that the cut of the bytes goes through is left out.
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if more && error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let end = text.char_indices().nth(most_chars).map_or(text.len(), |(at, _)| at);
    if !more && end == text.len() {
        return (text.into_owned(), false);
    }
    let total = stream.total_bytes;
    let shown = text[..end].chars().count();
    (
        format!(
            "{}\n[output truncated: the first {shown} characters of {total} bytes]",
            &text[..end]
        ),
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_ends_of_a_text_are_parts_of_it(text in "\\PC{0,60}", most in 0_usize..80) {
            let bytes = text.as_bytes();
            let total_bytes = bytes.len() as u64;
            let last = bytes[bytes.len().saturating_sub(most)..].to_vec();
            let (end, omitted) = tail(&CommandStream { bytes: last, total_bytes });
            prop_assert!(text.ends_with(&end));
            prop_assert_eq!(omitted + end.len() as u64, total_bytes);
            prop_assert!(most.min(bytes.len()) - end.len() < 4, "at most one character is lost");

            let first = bytes[..most.min(bytes.len())].to_vec();
            let (begin, cut) = head(&CommandStream { bytes: first, total_bytes }, most / 2);
            prop_assert_eq!(cut, text.chars().count() > most / 2 || bytes.len() > most);
            let shown = begin.rsplit_once("\n[output").filter(|_| cut).map_or(&*begin, |(text, _)| text);
            prop_assert!(text.starts_with(shown) && shown.chars().count() <= most / 2);
        }
    }
}
