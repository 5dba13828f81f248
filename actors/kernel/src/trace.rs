//! W3C Trace Context of a call, as its client sent it.

use std::sync::Arc;

/// Length of a `traceparent` of version 00.
const PARENT_CHARS: usize = 55;
/// Most characters of either value that are looked at.
const MOST_CHARS: usize = 512;
/// Most members of a `tracestate`.
const MOST_MEMBERS: usize = 32;

/// Trace that a call belongs to, and the span in it that made the call. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext(Arc<Values>);

#[derive(Debug, PartialEq, Eq)]
struct Values {
    parent: String,
    state: Option<String>,
}

impl TraceContext {
    /// Context of these two values. A `traceparent` that is not valid is none; a `tracestate` that
    /// is not valid, or longer than 512 characters, is left out.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let parent = parent(traceparent)?;
        let state = tracestate.filter(|state| is_state(state)).map(str::to_owned);
        Some(Self(Arc::new(Values { parent, state })))
    }

    /// Id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.0.parent[3..35]
    }

    /// Variables that hand the context on to a program, by the convention of OpenTelemetry.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.0.state.as_deref().map(|state| ("TRACESTATE", state));
        std::iter::once(("TRACEPARENT", self.0.parent.as_str())).chain(state)
    }
}

/// A `traceparent` in the form of version 00. One of a later version is read as far as that version
/// goes, as the recommendation asks.
fn parent(text: &str) -> Option<String> {
    if text.len() > MOST_CHARS || !text.is_ascii() {
        return None;
    }
    let (known, rest) = text.split_at_checked(PARENT_CHARS)?;
    let fields: Vec<_> = known.split('-').collect();
    let [version, trace, span, flags] = fields[..] else { return None };
    let is_id = |id: &str, digits| is_hex(id, digits) && id.bytes().any(|digit| digit != b'0');
    if !is_hex(version, 2) || !is_id(trace, 32) || !is_id(span, 16) || !is_hex(flags, 2) {
        return None;
    }
    match version {
        "ff" => None,
        "00" => rest.is_empty().then(|| known.to_owned()),
        _ if !rest.is_empty() && !rest.starts_with('-') => None,
        // The flag for sampling is the only one known of a later version.
        _ => {
            let sampled = u8::from_str_radix(flags, 16).ok()? & 1;
            Some(format!("00-{trace}-{span}-0{sampled}"))
        }
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_state(text: &str) -> bool {
    let members = || text.split(',').map(|member| member.trim_matches([' ', '\t']));
    text.len() <= MOST_CHARS
        && members().count() <= MOST_MEMBERS
        && members().any(|member| !member.is_empty())
        && members().all(|member| member.is_empty() || is_member(member))
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let in_key = |b: u8| {
        b.is_ascii_lowercase()
            || b.is_ascii_digit()
            || matches!(b, b'_' | b'-' | b'*' | b'/' | b'@')
    };
    let head = key.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    head && key.bytes().all(in_key)
        && !value.is_empty()
        && value.bytes().all(|b| matches!(b, 0x20..=0x7e) && b != b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn variables(parent: &str, state: Option<&str>) -> Option<Vec<String>> {
        let context = TraceContext::parse(parent, state)?;
        Some(context.variables().map(|(name, value)| format!("{name}={value}")).collect())
    }

    #[test]
    fn a_valid_one_is_kept_as_it_is_and_a_malformed_one_is_none() {
        let context = TraceContext::parse(PARENT, None).expect("valid");
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(variables(PARENT, None), Some(vec![format!("TRACEPARENT={PARENT}")]));
        let later = PARENT.replacen("00-", "cc-", 1).replace("-01", "-03");
        for later in [later.clone(), format!("{later}-what-will-be")] {
            assert_eq!(variables(&later, None), Some(vec![format!("TRACEPARENT={PARENT}")]));
        }
        let full = format!("{later}-{}", "x".repeat(512 - later.len() - 1));
        assert!(TraceContext::parse(&full, None).is_some() && full.len() == 512);
        assert_eq!(TraceContext::parse(&format!("{full}x"), None), None);
        let unsampled = later.replace("-03", "-02");
        let told = format!("TRACEPARENT={}", PARENT.replace("-01", "-00"));
        assert_eq!(variables(&unsampled, None), Some(vec![told]));
        let zeros = |at: std::ops::Range<usize>| {
            let mut text = PARENT.to_owned();
            text.replace_range(at.clone(), &"0".repeat(at.len()));
            text
        };
        for malformed in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-x"),
            &format!("{PARENT}x"),
            &format!("{later}x"),
            &PARENT.replacen("00-", "ff-", 1),
            &PARENT.to_uppercase(),
            &zeros(3..35),
            &zeros(36..52),
            &PARENT.replace("-01", "-0g"),
            &PARENT.replace('-', "_"),
            &"é".repeat(30),
            &format!("{later}-{}", "x".repeat(600)),
        ] {
            assert_eq!(variables(malformed, None), None, "{malformed}");
        }
    }

    #[test]
    fn a_state_that_is_malformed_or_long_is_left_out() {
        for state in ["a=1", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "a@b=x y, ,c/d=!"] {
            let both = vec![format!("TRACEPARENT={PARENT}"), format!("TRACESTATE={state}")];
            assert_eq!(variables(PARENT, Some(state)), Some(both));
        }
        let (full, long) = (vec!["a=1"; 32].join(","), format!("a={}", "1".repeat(510)));
        for state in [full, long, "1a_-*/@0= ~".to_owned()] {
            assert_eq!(variables(PARENT, Some(&state)).map(|both| both.len()), Some(2), "{state}");
        }
        let many = vec!["a=1"; 33].join(",");
        for state in
            ["", ",", "a", "A=1", "=1", "a=", "a=b=c", "a=\n", "a=é", &many, &"a=1,".repeat(200)]
        {
            let alone = vec![format!("TRACEPARENT={PARENT}")];
            assert_eq!(variables(PARENT, Some(state)), Some(alone), "{state}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_handed_on_but_printable_ascii_of_bounded_length(
            parent in "([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.{0,3})|.{0,80}",
            state in ".{0,40}",
        ) {
            for variable in variables(&parent, Some(&state)).into_iter().flatten() {
                prop_assert!(variable.bytes().all(|b| matches!(b, 0x20..=0x7e | b'\t')));
                prop_assert!(variable.len() <= 12 + 512);
            }
        }
    }
}
