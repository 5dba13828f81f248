//! Excerpts of long results, for the text beside structured content.

use serde_json::Value;

/// Bytes of JSON up to which the text is the whole result: as much as a model reads in one piece.
const WHOLE_BYTES: usize = 64 * 1024;
/// Bytes that an excerpt shows of each end of a long string.
const SHOWN_BYTES: usize = 4 * 1024;
/// Items that an excerpt shows of a long list, and names of a large object.
const SHOWN_ITEMS: usize = 64;
/// All that an excerpt shows, whatever its shape.
const EXCERPT_BYTES: usize = 48 * 1024;

/// The result as text: whole where it is short, or where nobody reads the structured content.
pub fn excerpt_text(value: &Value, structured_is_read: bool) -> String {
    let long = structured_is_read.then(|| excerpt_if_long(value)).flatten();
    long.unwrap_or_else(|| value.to_string())
}

/// The excerpt of a value that is long.
pub fn excerpt_if_long(value: &Value) -> Option<String> {
    match fits(value, WHOLE_BYTES) {
        Some(_) => None,
        None => Some(shown(value, &mut { EXCERPT_BYTES }).to_string()),
    }
}

/// The rest of `room` after the value's JSON, or a little less; `None` if it does not fit. Looks at
/// no more of the value than that.
fn fits(value: &Value, room: usize) -> Option<usize> {
    const BESIDE: usize = 8;
    match value {
        Value::String(text) => room.checked_sub(text.len() + BESIDE),
        Value::Array(items) => {
            items.iter().try_fold(room.checked_sub(BESIDE)?, |room, item| fits(item, room))
        }
        Value::Object(map) => {
            map.iter().try_fold(room.checked_sub(BESIDE)?, |room, (name, item)| {
                fits(item, room.checked_sub(name.len() + BESIDE)?)
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => room.checked_sub(BESIDE),
    }
}

fn shown(value: &Value, room: &mut usize) -> Value {
    match value {
        Value::String(text) => excerpt(text, room).into(),
        Value::Array(items) => {
            let mut list: Vec<_> =
                items.iter().take(SHOWN_ITEMS).map(|item| shown(item, room)).collect();
            if let Some(more) = more(items.len()) {
                list.push(more.into());
            }
            list.into()
        }
        Value::Object(map) => {
            let items = map.iter().take(SHOWN_ITEMS);
            let mut object: serde_json::Map<_, _> =
                items.map(|(name, item)| (excerpt(name, room), shown(item, room))).collect();
            if let Some(more) = more(map.len()) {
                object.insert("...".to_owned(), more.into());
            }
            object.into()
        }
        other => other.clone(),
    }
}

fn more(items: usize) -> Option<String> {
    let more = items.checked_sub(SHOWN_ITEMS).filter(|more| *more > 0)?;
    Some(format!("[{more} more in structuredContent]"))
}

/// A string, or how it begins and ends.
fn excerpt(text: &str, room: &mut usize) -> String {
    let each = SHOWN_BYTES.min(*room / 2);
    if text.len() <= 2 * each {
        *room -= text.len();
        return text.to_owned();
    }
    let head = text.floor_char_boundary(each);
    let tail = text.ceil_char_boundary(text.len() - each);
    *room -= head + (text.len() - tail);
    let left_out = tail - head;
    format!("{}\n[{left_out} bytes more in structuredContent]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_of_a_screen_or_two_is_whole() {
        let value = json!({"exit_code": 0, "stdout": "x".repeat(60_000)});
        assert_eq!(excerpt_text(&value, true), value.to_string());
    }

    #[test]
    fn a_long_text_is_shown_by_its_ends() {
        let long = format!("begins{}ends", "ä".repeat(100_000));
        let value = json!({"exit_code": 3, "stdout": long, "stderr": "short"});
        let shown: Value = serde_json::from_str(&excerpt_text(&value, true)).expect("JSON");
        assert_eq!((&shown["exit_code"], &shown["stderr"]), (&json!(3), &json!("short")));
        let stdout = shown["stdout"].as_str().expect("text");
        assert!(stdout.starts_with("begins") && stdout.ends_with("ends") && stdout.len() < 9_000);
        assert!(stdout.contains("bytes more in structuredContent"), "{stdout}");
        assert_eq!(excerpt_text(&value, false), value.to_string());
    }

    #[test]
    fn no_shape_is_shown_at_length() {
        let rows: Vec<_> = (0..5_000).map(|n| json!({"n": n, "text": "y".repeat(400)})).collect();
        let wide: serde_json::Map<_, _> =
            (0..9_000).map(|n| (format!("{n}{}", "k".repeat(90)), json!("z".repeat(90)))).collect();
        let deep = json!([["d".repeat(70_000)], vec!["e".repeat(20_000); 60]]);
        for value in [json!({ "rows": rows }), wide.into(), deep] {
            let shown = excerpt_text(&value, true);
            assert!(shown.len() < WHOLE_BYTES, "{}", shown.len());
            assert!(shown.contains("more in structuredContent"));
        }
    }
}
