use super::*;

#[test]
fn output_files_are_read_or_refused() {
    let declared = [("tag", false), ("meta", true)];
    let missing = |name: &str| Err(OutputFileError::Missing(name.to_owned()));
    let syntax = |line| Err(OutputFileError::Syntax(line));
    let is = |tag: &str, meta: &str| Ok(named([("tag", tag), ("meta", meta)]));
    for (text, expected) in [
        ("tag=v1\nmeta={}\n", is("v1", "{}")),
        ("meta=1\r\ntag=a=b<<c", is("a=b<<c", "1")),
        ("tag=\nmeta<<JSON\n{\"a\":\n 1}\nJSON\n", is("", "{\"a\":\n 1}")),
        ("tag<<_E\n\n x \n_E \n_E\nmeta=null", is("\n x \n_E ", "null")),
        ("tag<<E\nE\nmeta=\"$(x)\"", is("", "\"$(x)\"")),
        ("", missing("tag")),
        ("tag=1\n", missing("meta")),
        ("\ntag=1", syntax(1)),
        ("tag=1\n\nmeta=1", syntax(2)),
        ("tag", syntax(1)),
        ("tag: 1", syntax(1)),
        (" tag=1", syntax(1)),
        ("1=1", syntax(1)),
        ("=1", syntax(1)),
        ("tag<<", syntax(1)),
        ("tag<<1E\n1E", syntax(1)),
        ("tag<1", syntax(1)),
        ("other=1", Err(OutputFileError::Undeclared("other".to_owned()))),
        ("tag=1\ntag=2", Err(OutputFileError::Duplicate("tag".to_owned()))),
        ("tag<<END\nx\nEND x", Err(OutputFileError::Unclosed("tag".to_owned(), "END".to_owned()))),
    ] {
        assert_eq!(output_file(text.as_bytes(), &declared, 1024), expected, "{text:?}");
    }
    let json = output_file(b"meta={", &declared, 1024);
    assert!(matches!(json, Err(OutputFileError::Json(name, _)) if name == "meta"));
    assert_eq!(output_file(b"\xff", &declared, 1024), Err(OutputFileError::NotUtf8));
    let large = OutputFileError::TooLarge(6);
    assert_eq!(output_file(b"tag=123", &[("tag", false)], 6), Err(large));
    assert_eq!(output_file(b"", &[], 0), Ok(NamedTexts::new()));
}

#[test]
fn values_are_decoded_and_selected() {
    use hivekeep_manifest::dag::DagOutputForm::{Json, Text, Yaml};
    let json = r#"{"a": {"b": [10, {"c d": null}]}, "x": "y"}"#;
    for (text, kind, path, expected) in [
        (" v1 \n", Text, None, Ok(json!("v1"))),
        (json, Json, Some(".a.b[0]"), Ok(json!(10))),
        (json, Json, Some("a.b.[0]"), Ok(json!(10))),
        (json, Json, Some(r#".a["b"][1]["c d"]"#), Ok(json!(null))),
        (json, Json, Some(". "), serde_json::from_str(json).map_err(drop)),
        (json, Json, None, serde_json::from_str(json).map_err(drop)),
        ("a:\n  - x: 1\n", Yaml, Some(".a[0].x"), Ok(json!(1))),
        ("", Yaml, None, Ok(json!(null))),
        (json, Json, Some(".a.c"), Err(())),
        (json, Json, Some(".x.y"), Err(())),
        (json, Json, Some(".a.b[2]"), Err(())),
        (json, Json, Some(".a.b[-1]"), Err(())),
        (json, Json, Some(".a.b[0"), Err(())),
        (json, Json, Some(".a..b"), Err(())),
        (json, Json, Some("..a"), Err(())),
        ("{", Json, None, Err(())),
        ("a: [", Yaml, None, Err(())),
        ("a: 1\n---\nb: 2\n", Yaml, None, Err(())),
    ] {
        assert_eq!(decode(text, kind, path).map_err(drop), expected, "{path:?} of {text}");
    }
    for (value, text) in [
        (json!(null), ""),
        (json!(true), "true"),
        (json!(-3), "-3"),
        (json!(1.25), "1.25"),
        (json!(1e21), "1000000000000000000000"),
        (json!("a\n'"), "a\n'"),
        (json!([1, { "b": 2, "a": "x" }]), r#"[1,{"b":2,"a":"x"}]"#),
    ] {
        assert_eq!(value_text(&value), text);
    }
}
