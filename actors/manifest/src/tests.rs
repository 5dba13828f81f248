//! Manifests: valid ones are accepted, broken ones are told at the right place, and no text is dear.

mod broken;
mod hostile;
mod valid;

use crate::{ManifestKind, check};

/// Problems as `LINE:COLUMN PATH: MESSAGE`.
fn told(kind: ManifestKind, text: &str) -> Vec<String> {
    let line = |p: hivekeep_kernel::ports::ManifestProblem| {
        format!("{}:{} {}: {}", p.line, p.column, p.path, p.message)
    };
    check(kind, text).into_iter().map(line).collect()
}

#[track_caller]
fn valid(kind: ManifestKind, text: &str) {
    assert_eq!(told(kind, text), Vec::<String>::new(), "{text}");
}

/// The first problem begins with this place and path, and its message holds these words.
#[track_caller]
fn broken(kind: ManifestKind, text: &str, place: &str, words: &str) {
    let told = told(kind, text);
    let first = told.first().unwrap_or_else(|| panic!("nothing is told of\n{text}"));
    assert!(first.starts_with(place) && first.contains(words), "{told:#?}\nof\n{text}");
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
      input: '{{task}}'
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
