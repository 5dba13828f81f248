//! Nothing is lost, nothing torn, no passage too long.

use proptest::prelude::*;

use super::*;

fn of(text: &str, form: TextForm, bytes: usize) -> Vec<(String, String)> {
    let size = PassageSize { bytes, overlap_chars: 0 };
    let passages = split(text, form, size).into_iter();
    passages.map(|it| (it.section, text[it.shown].trim().to_owned())).collect()
}

fn is(found: &[(String, String)], wanted: &[(&str, &str)]) {
    let found: Vec<_> =
        found.iter().map(|(section, text)| (section.as_str(), text.as_str())).collect();
    assert_eq!(found, wanted);
}

#[test]
fn sections_are_apart_and_headings_stay_with_their_text() {
    let text = "# Top\n\n## One\n\nFirst.\n\nSecond.\n\n## Two\nThird.\n";
    is(
        &of(text, TextForm::Markdown, 500),
        &[("Top > One", "# Top\n\n## One\n\nFirst.\n\nSecond."), ("Top > Two", "## Two\nThird.")],
    );
}

#[test]
fn a_fence_has_no_headings() {
    let text = "## One\n\n```sh\n# a comment\n\n## another\n```\n\nAfter.\n~~~\n```\n# x\n~~~\n";
    let found = of(text, TextForm::Markdown, 500);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "One");
}

#[test]
fn a_long_paragraph_is_cut_at_sentences_and_a_fence_at_lines() {
    let text = "One two three. Four five six. Seven eight nine.\n";
    is(
        &of(text, TextForm::Markdown, 32),
        &[("", "One two three. Four five six."), ("", "Seven eight nine.")],
    );
    let fence = "```\nlet a. b = 1;\nlet c. d = 2;\n```\n";
    is(
        &of(fence, TextForm::Markdown, 20),
        &[("", "```\nlet a. b = 1;"), ("", "let c. d = 2;\n```")],
    );
}

#[test]
fn definitions_are_the_sections_of_code() {
    let text = "use a;\n\n/// Adds.\n#[inline]\npub fn add() {\n    one();\n\n    two();\n}\n\nclass B:\n    x = 1\n";
    let found = of(text, TextForm::Code, 80);
    let sections: Vec<_> = found.iter().map(|(section, _)| section.as_str()).collect();
    assert_eq!(sections, ["", "pub fn add()", "class B"]);
    assert!(found[1].1.starts_with("/// Adds.") && found[1].1.contains("two();"));
}

#[test]
fn an_overlap_begins_at_a_word_and_stays_in_its_section() {
    let size = PassageSize { bytes: 20, overlap_chars: 7 };
    let text = "alpha beta gamma. delta epsilon zeta.\n# New\nother words\n";
    let passages = split(text, TextForm::Markdown, size);
    let shown: Vec<_> = passages.iter().map(|it| text[it.shown.clone()].trim()).collect();
    assert_eq!(shown[..2], ["alpha beta gamma.", "gamma. delta epsilon zeta."]);
    assert!(shown.iter().any(|text| text.starts_with("# New")), "{shown:?}");
    assert_eq!(passages.last().map(|it| it.line), Some(2));
}

fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("# Heading\n".to_owned()),
        Just("\n### Sub\n\n".to_owned()),
        Just("```\n".to_owned()),
        Just("fn name() {\n".to_owned()),
        "[a-zé漢🦀 .?!]{0,60}",
        "[a-z]{60,90}",
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn passages_laid_end_to_end_are_the_text(
        text in texts(),
        form in prop_oneof![Just(TextForm::Markdown), Just(TextForm::Code), Just(TextForm::Plain)],
        bytes in 1_usize..120,
        overlap_chars in 0_usize..40,
    ) {
        let passages = split(&text, form, PassageSize { bytes, overlap_chars });
        let mut at = 0;
        for Passage { shown, own, line, .. } in &passages {
            // What is between two passages is white space; slices panic at torn characters.
            prop_assert!(text[at..own.start].trim().is_empty());
            prop_assert!(!text[own.clone()].trim().is_empty());
            prop_assert!(own.len() <= (2 * bytes).max(4), "{} of {bytes}", own.len());
            prop_assert!(shown.start <= own.start && shown.end == own.end);
            prop_assert!(text[shown.start..own.start].chars().count() <= overlap_chars);
            let begin = own.start + leading_space(&text[own.clone()]);
            prop_assert_eq!(*line as usize, text[..begin].matches('\n').count() + 1);
            at = own.end;
        }
        prop_assert!(text[at..].trim().is_empty());
    }
}
