//! Bad input: what is too much is refused, or cut short, by a typed error, at little cost.

use std::time::{Duration, Instant};

use hivekeep_plan::progress::RunOutcome::{Failed, Succeeded};
use serde_json::Value;

use super::{ALL, Stage, guest::FLOOD};
use crate::run::RunFold;

/// Time for what takes minutes where it costs more than it should.
const SOON: Duration = Duration::from_secs(20);

fn error(run: &RunFold) -> String {
    let refused = run.refused().map(|error| error.message.clone());
    let of_steps = run.left.values().chain(run.results.values());
    let of_steps = of_steps.filter_map(|left| left.error.as_ref()).map(|it| it.message.clone());
    refused.into_iter().chain(of_steps).collect::<Vec<_>>().join("; ")
}

/// Texts of runs that fail, each with a part of the reason.
fn refused() -> Vec<(String, &'static str)> {
    let items = |count: usize| vec!["1"; count].join(", ");
    let calls = |name: &str, other: &str| {
        format!("name: {name}\nsteps: [{{ action: dag.run, with: {{ dag: {other} }} }}]\n")
    };
    let flood = |step: &str| {
        format!("steps: [{{ id: a, run: \"printf '{}'\", {step} }}]", FLOOD.escape_default())
    };
    let loops = |items: &str| {
        format!("steps: [{{ foreach: {{ items: {items}, steps: [{{ run: touch no }}] }} }}]")
    };
    let million = "max_output_size: 33554432\ntype: chain\nsteps:\n- { id: a, run: \"printf '['; seq -s, 1000000; printf ']'\", \
                   output: { all: { from: stdout, decode: json } } }\n";
    vec![
        // Cycles through calls come to an end.
        ([calls("w", "x"), calls("x", "x")].join("---\n"), "of its 1 runs failed"),
        ([calls("x", "y"), calls("y", "z"), calls("z", "y")].join("---\n"), "of its 1 runs failed"),
        // An output of 1 GiB.
        (flood("output: BIG"), "longer than"),
        (flood("output: { a: { from: stdout } }"), "longer than"),
        (flood("stdout: { outputs: a }"), "longer than"),
        // A loop of a million items.
        (loops(&format!("[{}]", items(1_001))), "1001 items"),
        (
            format!(
                "{million}- {{ foreach: {{ items: '${{a.output.all}}', steps: [{{ run: touch no }}] }} }}"
            ),
            "longer than",
        ),
        (
            format!(
                "{million}- {{ action: dag.run, with: {{ dag: x }}, parallel: '${{a.output.all}}' }}\n---\nname: x\nsteps: [{{ run: touch no }}]"
            ),
            "longer than",
        ),
        (
            format!(
                "params: [{{ name: l, eval: \"$(seq -s, 100000)\" }}]\n{}",
                loops("'[${params.l}]'")
            ),
            "100000 items",
        ),
        // A value that grows by what it refers to.
        (
            format!(
                "env: [{{ A0: xxxxxxxxxxxxxxxx }}, {}]\nsteps: [{{ run: touch no }}]",
                (1..40)
                    .map(|at| format!("{{ A{at}: $A{m}$A{m} }}", m = at - 1))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            "too long",
        ),
    ]
}

#[tokio::test]
async fn what_is_too_much_fails_by_its_name() {
    let (stage, mut wrong) = (Stage::new().await, Vec::new());
    for (text, why) in refused() {
        let (began, before) = (Instant::now(), stage.runs().0.list(ALL, None, usize::MAX).1);
        let run = stage.ran(&format!("working_dir: .\n{text}"), Value::Null).await;
        let runs = stage.runs().0.list(ALL, None, usize::MAX).1 - before;
        let is_cheap = runs <= 12 && began.elapsed() < SOON;
        if run.outcome() != Some(Failed) || !error(&run).contains(why) || !is_cheap {
            let told = error(&run);
            wrong.push(format!("{text:.200}: {told:.300}, {runs} runs, {:?}", began.elapsed()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(stage.file("no").is_none());
    // Each of the three outputs is read up to its bound of 1 MiB, and not beyond.
    assert!((3..=18).contains(&stage.guest.windows()), "{}", stage.guest.windows());
    let looked = "steps: [{ run: \"printf 'flood\\n'; exit 1\", continue_on: { output: never } }]";
    assert_eq!(stage.outcome(looked).await, Failed);
    assert!(stage.guest.windows() <= 20, "{}", stage.guest.windows());
}

#[tokio::test]
async fn ten_thousand_steps_are_gone_through_in_linear_time() {
    let stage = Stage::new().await;
    let began = Instant::now();
    let text = format!("type: chain\nsteps:\n- exit 1\n{}", "- x\n".repeat(9_999));
    let run = stage.ran(&text, Value::Null).await;
    assert_eq!((run.outcome(), stage.guest.started().len()), (Some(Failed), 1), "{}", error(&run));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let noops = format!("type: chain\nsteps:\n{}", "- action: noop\n".repeat(500));
    assert_eq!(stage.outcome(&noops).await, Succeeded);
    assert!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
}
