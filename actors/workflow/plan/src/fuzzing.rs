//! Fuzz targets: texts of DAGs as anybody may write them, and files that steps leave.

use std::collections::BTreeMap;

use hivekeep_manifest::dag::DagOutputForm;

use crate::resolve::{
    GivenParams, MAX_RESOLVED_BYTES, NamedTexts, StepValues, TextField, TextPart, TextScopes,
    decode, dotenv, evaluate, output_file, resolve,
};

/// Resolves a text whose references have the text itself for their values.
///
/// # Panics
/// When a text grows beyond its bound, or when a value is read again: a text that only names it is not it.
pub fn text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let texts: NamedTexts =
        ["A", "b", "PATH"].map(|name| (name.to_owned(), text.to_string())).into();
    let step = StepValues {
        outputs: texts.clone(),
        output: Some(text.as_ref().into()),
        ..StepValues::default()
    };
    let steps = BTreeMap::from([("a".to_owned(), step)]);
    let scopes = TextScopes {
        consts: Some(&texts),
        env: Some(&texts),
        steps: Some(&steps),
        ..TextScopes::default()
    };
    for field in [TextField::Run, TextField::StepText, TextField::Path, TextField::RootEval] {
        if let Ok(resolved) = resolve(&text, field, &scopes) {
            assert!(resolved.len() <= MAX_RESOLVED_BYTES);
        }
        for reference in ["${consts.b}", "${env.A}", "${A}", "${a.output}"] {
            let is_ours = field != TextField::Run && field != TextField::RootEval;
            if is_ours || reference.contains('.') && field == TextField::Run {
                let resolved = resolve(reference, field, &scopes);
                assert!(resolved.is_err() || resolved.as_deref() == Ok(&*text));
            }
        }
    }
    if let Ok(parts) = evaluate(&text, TextField::RootEval, &scopes) {
        let bytes = |part: &TextPart| match part {
            TextPart::Literal(text) | TextPart::Command(text) => text.len(),
        };
        assert!(parts.iter().map(bytes).sum::<usize>() <= MAX_RESOLVED_BYTES);
    }
    let _ = (GivenParams::from_text(&text), dotenv(&text));
    let _ = output_file(bytes, &[("a", false), ("b", true)], MAX_RESOLVED_BYTES);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let _ = decode(rest, DagOutputForm::Json, Some(first));
}

#[test]
fn the_corpus_and_its_mutations_are_taken() {
    hivekeep_replay::replay("text", text);
}
