//! Manifests: valid ones are accepted, broken ones are told at the right place, and no text is dear.

mod broken;
mod cases;
mod corpus;
mod hostile;
mod valid;

use crate::{ManifestKind, check};

/// Problems as `LINE:COLUMN PATH: MESSAGE`.
fn told(kind: ManifestKind, text: &str) -> Vec<String> {
    let line = |p: hivekeep_ports::ManifestProblem| {
        format!("{}:{} {}: {}", p.line, p.column, p.path, p.message)
    };
    check(kind, text).into_iter().map(line).collect()
}

#[track_caller]
fn valid(kind: ManifestKind, text: &str) {
    assert_eq!(told(kind, text), Vec::<String>::new(), "{text}");
}

/// Texts whose first problem does not begin with this place and path, or lacks these words.
fn misjudged<'t>(
    kind: ManifestKind,
    texts: impl IntoIterator<Item = (String, &'t str, &'t str)>,
) -> Vec<String> {
    let judge = |(text, place, words): (String, &str, &str)| {
        let told = told(kind, &text);
        let as_expected =
            told.first().is_some_and(|first| first.starts_with(place) && first.contains(words));
        (!as_expected).then(|| format!("{place} … {words}\nbut {told:#?}\nof\n{text}"))
    };
    texts.into_iter().filter_map(judge).collect()
}

#[track_caller]
fn assert_judged(misjudged: &[String]) {
    assert!(misjudged.is_empty(), "{}", misjudged.join("\n\n"));
}

const AGENT: &str = "\
apiVersion: 100monkeys.ai/v1
kind: Agent
metadata:
  name: reviewer
  version: 1.0.0
spec:
  runtime:
    language: python
    version: '3.11'
  task:
    instruction: Review the change.
";

const WORKFLOW: &str = "\
apiVersion: 100monkeys.ai/v1
kind: Workflow
metadata:
  name: refine
spec:
  initial_state: WRITE
  states:
    WRITE:
      kind: Agent
      agent: writer
      input: '{{input.task}}'
      transitions:
        - condition: always
          target: CHECK
    CHECK:
      kind: System
      command: make test
      transitions:
        - condition: exit_code_zero
          target: DONE
        - condition: on_failure
          target: WRITE
    DONE:
      kind: Human
      prompt: Is it good?
      transitions: []
";
