use hivekeep_manifest::dag::DagOutputForm;
use proptest::prelude::*;

use super::*;

/// Texts that would be something if they were read again.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "${params.other}",
        "${env.SECRET}",
        "$SECRET",
        "${SECRET}",
        "$(touch x)",
        "`touch x`",
        "'",
        "\"",
        "\\",
        "\n",
        "${",
        "}",
        ")",
        "${SECRET:-",
        "ä",
        "${steps.a.outputs.b}",
        "${ITEM}",
        "a",
        " ",
    ]);
    prop::collection::vec(pieces, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn values_are_put_in_as_they_are(value in hostile(), around in "[ :/]{0,4}") {
        let params = serde_json::from_value(json!({ "p": value, "other": "OTHER" })).expect("texts");
        let env = named([("V", &value), ("SECRET", "SECRET")]);
        let output = StepValues { output: Some(json!({ "o": value })), outputs: named([("o", &value)]), ..StepValues::default() };
        let steps = [("s".to_owned(), output)].into();
        let item = ItemScope::Parallel(json!({ "f": value }));
        let scopes = TextScopes {
            params: Some(&params), env: Some(&env), steps: Some(&steps), items: &[item], ..TextScopes::default()
        };
        for reference in [
            "${params.p}", "${env.V}", "$V", "${V}", "${V:-x}", "${X:-x}${V-}", "${s.output.o}", "${steps.s.outputs.o}", "${ITEM.f}",
        ] {
            let text = format!("{around}{reference}{around}");
            let value = match reference {
                // An empty value is not one for this.
                "${V:-x}" if value.is_empty() => "x",
                "${X:-x}${V-}" => &format!("${{X:-x}}{value}"),
                _ => &value,
            };
            let expected = format!("{around}{value}{around}");
            prop_assert_eq!(resolve(&text, TextField::SubDag, &scopes), Ok(expected.clone()));
            if !reference.contains("ITEM") && !reference.contains("s.") {
                let expected = if expected.is_empty() { vec![] } else { vec![TextPart::Literal(expected)] };
                prop_assert_eq!(evaluate(&text, TextField::RootEval, &scopes), Ok(expected));
            }
        }
    }

    #[test]
    fn texts_without_values_are_as_they_were_but_for_escapes(text in hostile()) {
        for field in [TextField::Run, TextField::StepText, TextField::Path] {
            let resolved = resolve(&text, field, &TextScopes::default()).expect("short");
            prop_assert_eq!(resolved.replace('\\', ""), text.replace('\\', ""));
        }
        let escaped = text.replace('\\', "").replace("${", "\\${").replace("$SECRET", "\\$SECRET");
        let resolved = resolve(&escaped, TextField::StepText, &Filled::new().scopes()).expect("short");
        prop_assert!(!resolved.contains("SECRET-VALUE"));
    }

    #[test]
    fn readers_take_any_text(text in ".{0,200}") {
        let given = GivenParams::from_text(&text);
        prop_assert!(given.named.len() + given.positional.len() <= text.len());
        let _ = dotenv(&text);
        let _ = output_file(text.as_bytes(), &[("a", true)], 1024);
        let _ = decode(&text, DagOutputForm::Json, Some(&text));
    }
}

/// Bytes of texts that quadratic time would take minutes with, in all.
const SIZE: usize = 64 * 1024;

/// Reads a text of a piece again and again in every way: in some 20 s where one is quadratic.
fn read_all(piece: &str, field: TextField) {
    let filled = Filled::new();
    let large = "x".repeat(SIZE);
    let env = named([("L", large.as_str()), ("A", "a"), ("E", ""), ("J", "{\"a\":1}")]);
    let scopes = TextScopes { env: Some(&env), ..filled.scopes() };
    let text = piece.repeat(SIZE / piece.len());
    let _ = resolve(&text, field, &scopes);
    if field.rule().evaluation == Evaluation::Evaluated {
        let _ = evaluate(&text, field, &scopes);
    }
    let _ = dotenv(&text);
    let dag = json!({ "params": text, "env": [format!("A={text}")], "steps": [] });
    let given = GivenParams::from_text(&text);
    let facts = RunFacts { given, ..RunFacts::default() };
    let dag = serde_json::from_value(dag).expect("a DAG");
    let _ = Begin::new(&dag, facts).and_then(|mut begin| begin.next(BeginAnswer::Start));
    let _ = output_file(text.as_bytes(), &[("A", false)], MAX_RESOLVED_BYTES);
}

#[test]
fn hostile_texts_take_linear_time() {
    for piece in [
        "$",
        "${",
        "}",
        "\\",
        "'",
        "\"",
        "`",
        "$(",
        ")",
        "\\`",
        "\\)",
        "${A:-",
        "${E:-${A}}",
        "${E:-",
        "$A",
        "${L",
        "\\$",
        "\\'",
        "${L##*}",
        "${L%%*x}",
        "${#L}",
        "${L:1:1}",
        "${J.a}",
        "${L.a}",
        "${params}",
        "${build.output.items}",
        "A=",
        "A='\n",
        "A<<E\n",
        "a ",
        "'a",
        "${E:=x}",
        "${A#${A#",
        "[",
        "{",
        "${foreach.episode.",
        "${A:-}${E:-'}",
    ] {
        for field in [TextField::Run, TextField::StepText, TextField::RootEval] {
            read_all(piece, field);
        }
    }
}

#[test]
fn commands_without_an_end_are_looked_for_once() {
    for piece in ["$(", "$(\\)", "`$(", "\\`$("] {
        let text = piece.repeat(MAX_RESOLVED_BYTES / piece.len());
        let _ = evaluate(&text, TextField::RootEval, &TextScopes::default());
    }
}

#[test]
fn texts_and_all_that_is_made_of_them_are_bounded() {
    let large = "x".repeat(MAX_RESOLVED_BYTES);
    let env = named([("L", large.as_str())]);
    let scopes = TextScopes { env: Some(&env), ..TextScopes::default() };
    assert!(resolve("$L", TextField::StepText, &scopes).is_ok());
    assert_eq!(resolve("${env.L}.", TextField::Run, &scopes), Err(TextTooLong));
    assert_eq!(resolve(&format!("{large}."), TextField::Literal, &scopes), Err(TextTooLong));
    assert_eq!(evaluate("$(${env.L})a", TextField::RootEval, &scopes), Err(TextTooLong));
    let value = json!(["$L", ["a"]]);
    assert_eq!(resolve_value(&value, TextField::StepText, &scopes), Err(TextTooLong));
    let mut env = named([("A0", "0123456789")]);
    let double = |n: usize| (format!("A{n}"), format!("$A{}$A{}", n - 1, n - 1));
    let entries: Vec<_> = (1..40).map(double).collect();
    let entries = entries.iter().map(|(name, text)| (name.as_str(), text));
    let error = resolve_env(entries, TextField::StepText, &TextScopes::default(), &mut env);
    assert_eq!(error, Err("A16".to_owned()));
}
