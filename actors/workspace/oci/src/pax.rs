//! Records of extension of the pax format: `LENGTH KEY=VALUE` and a line break, which values may
//! have as well. The parser of `tar` takes each line for a record.

/// Reads all records; `None` if one is malformed.
pub(crate) fn records(mut bytes: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let digits = bytes.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&bytes[..digits]).ok()?.parse().ok()?;
        let record = bytes.get(digits + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((&record[..equals], &record[equals + 1..]));
        bytes = &bytes[length..];
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::records;

    #[test]
    fn values_may_have_line_breaks_and_nonsense_is_none() {
        let bytes = b"12 path=a\nb\n7 k=\0\xff\n";
        let read = records(bytes).unwrap();
        assert_eq!(read, [(b"path".as_slice(), b"a\nb".as_slice()), (b"k", b"\0\xff")]);
        assert_eq!(records(b""), Some(Vec::new()));
        for bad in [&b"x"[..], b"5 a=b\n", b"99 a=b\n", b"0 \n", b"2 a=b\n", b"6 a=bX", b"5 ab\n"] {
            assert_eq!(records(bad), None, "{bad:?}");
        }
    }
}
