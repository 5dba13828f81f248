//! Random graphs, each of whose steps leaves a line where it takes its effect.

use fastrand::Rng;

/// Kind of a step, with what its check has to know.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum StepKind {
    /// A command, of one try or of several.
    Command,
    /// Runs of another DAG, or rounds of a body, with their items in their order.
    Items(Vec<String>),
    Wait,
    Question,
    /// A call of a tool, which may be made again or not.
    Call {
        idempotent: bool,
    },
}

/// Graph whose effects are lines of a file.
#[derive(Debug)]
pub(super) struct RandomGraph {
    pub(super) text: String,
    pub(super) file: String,
    pub(super) steps: Vec<(String, StepKind)>,
}

impl RandomGraph {
    pub(super) fn new(number: usize, random: &mut Rng) -> Self {
        let file = format!("f{number}");
        let handler = ["success", "failure", "exit", "init"][random.usize(..4)];
        let mut text = format!(
            "type: graph\nworking_dir: .\nmax_active_steps: {}\nhandler_on: {{ {handler}: {{ run: echo handled >> {file} }} }}\nsteps:\n",
            random.usize(1..5)
        );
        let mut steps = Vec::new();
        for at in 0..random.usize(1..8) {
            let name = format!("s{at}");
            let (kind, body) = step(&name, &file, random);
            let before = (0..at).filter(|_| random.u8(..3) == 0).map(|at| format!("s{at}"));
            let depends = before.collect::<Vec<_>>().join(", ");
            text.push_str(&format!("- {{ id: {name}, depends: [{depends}], {body} }}\n"));
            steps.push((name, kind));
        }
        text.push_str(&format!(
            "---\nname: item\nworking_dir: .\nparams: [{{ name: v }}]\nsteps:\n\
             - {{ id: c, run: \"echo ${{params.v}} >> {file}; echo '{{\\\"v\\\": \\\"${{params.v}}\\\"}}'\", stdout: {{ outputs: {{ decode: json }} }} }}\n"
        ));
        Self { text, file, steps }
    }
}

fn step(name: &str, file: &str, random: &mut Rng) -> (StepKind, String) {
    let said = format!("echo {name} >> {file}");
    let often = |least: u8| format!("test $(grep -cx {name} {file}) -ge {least}");
    let items = |random: &mut Rng| -> Vec<String> {
        (0..random.usize(1..5)).map(|at| format!("{name}-{at}")).collect()
    };
    match random.u8(..12) {
        0..3 => (StepKind::Command, format!("run: {said}")),
        3 => {
            let goes_on = if random.bool() { ", continue_on: failed" } else { "" };
            (StepKind::Command, format!("run: '{said}; exit 3'{goes_on}"))
        }
        4 => (
            StepKind::Command,
            format!("run: '{said}; {}', retry_policy: {{ limit: 3, interval_sec: 0 }}", often(3)),
        ),
        5 => (
            StepKind::Command,
            format!(
                "run: {said}, repeat_policy: {{ repeat: until, condition: '{}', interval_sec: 0 }}",
                often(2)
            ),
        ),
        6 => {
            let items = items(random);
            let body = format!(
                "action: dag.run, with: {{ dag: item, params: 'v=${{ITEM}}' }}, parallel: {{ items: [{}], max_concurrent: {} }}",
                items.join(", "),
                random.u8(1..4)
            );
            (StepKind::Items(items), body)
        }
        7 => {
            let items = items(random);
            // Later items are over earlier.
            let pause = "sleep 0.0$((3 - ${foreach.index} % 4))";
            let body = format!(
                "foreach: {{ items: [{}], collect: {{ v: '${{foreach.item}}' }}, steps: [{{ run: '{pause}; echo ${{foreach.item}} >> {file}' }}] }}",
                items.join(", ")
            );
            (StepKind::Items(items), body)
        }
        8 => {
            let duration = random.u8(1..40);
            (StepKind::Wait, format!("action: wait.duration, with: {{ duration: {duration}ms }}"))
        }
        9 => (StepKind::Question, "action: human.task, with: { prompt: Now }".to_owned()),
        kind => {
            let idempotent = kind == 10;
            let tool = if idempotent { "toy.slow_read" } else { "toy.slow" };
            (
                StepKind::Call { idempotent },
                format!("action: {tool}, with: {{ n: {file}-{name} }}, continue_on: failed"),
            )
        }
    }
}
