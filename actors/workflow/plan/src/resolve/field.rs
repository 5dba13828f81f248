//! Table of the notation's fields: how the text of each is evaluated, and what it may refer to.

use ScopeName::{Consts, Context, Env, Item, Params, Steps};
use TextField::{
    Argument, Const, Literal, Path, RootEval, RootImport, RootText, Run, StepEval, StepText, SubDag,
};

/// How a text is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evaluation {
    /// The text is used as it is written.
    Literal,
    /// References give way to values.
    Resolved,
    /// The same, and then commands to their outputs.
    Evaluated,
}

/// Whose `$NAME` and `${NAME}` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variables {
    /// Whatever reads the text later, as a shell, replaces them.
    Kept,
    /// The environment replaces them; a backslash before one keeps it.
    Replaced,
    /// The environment replaces them; a backslash is a part of the path.
    ReplacedInPath,
}

/// Scope that references read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeName {
    /// Constants, `consts`.
    Consts,
    /// Parameters, `params`.
    Params,
    /// `env`, and variables.
    Env,
    /// Context of the run, `context`.
    Context,
    /// `steps`, and what a step has left.
    Steps,
    /// Item of `foreach`.
    Foreach,
    /// `ITEM` of `parallel`.
    Item,
}

/// Fields whose texts are treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextField {
    /// Names, defaults, secrets, templates and all that no other kind is for.
    Literal,
    /// Value of a constant.
    Const,
    /// `env` of the DAG, and paths of `dotenv`.
    RootImport,
    /// Shell, folder, conditions and container of the DAG.
    RootText,
    /// `eval` of a parameter or of a condition of the DAG.
    RootEval,
    /// Lines of a shell or an interpreter.
    Run,
    /// Inputs, environment, conditions, outputs and other texts of a step.
    StepText,
    /// `eval` of a step's condition.
    StepEval,
    /// Program or argument that no shell reads.
    Argument,
    /// Name and parameters of a DAG that a step runs.
    SubDag,
    /// Path of a stream's file or artifact.
    Path,
}

/// Rule for the text of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRule {
    /// How the text is evaluated.
    pub evaluation: Evaluation,
    /// Whose variables are.
    pub variables: Variables,
    /// True where a variable may be read from the environment outside of the run.
    pub reads_host: bool,
    /// Scopes that may be read. A step's text has `steps` only where a step owns it: handlers have none.
    pub scopes: &'static [ScopeName],
}

const ROOT: &[ScopeName] = &[Consts, Params, Env, Context];
const STEP: &[ScopeName] = &[Consts, Params, Env, Context, Steps, ScopeName::Foreach];
const SUB_DAG: &[ScopeName] = &[Consts, Params, Env, Context, Steps, ScopeName::Foreach, Item];

impl TextField {
    /// Rule of the field.
    pub const fn rule(self) -> FieldRule {
        use Evaluation::{Evaluated, Resolved};
        use Variables::{Kept, Replaced, ReplacedInPath};
        let (evaluation, variables, reads_host, scopes): (_, _, _, &[ScopeName]) = match self {
            Literal => (Evaluation::Literal, Kept, false, &[]),
            Const => (Resolved, Kept, false, &[Consts]),
            RootImport => (Resolved, Replaced, true, ROOT),
            RootText => (Resolved, Replaced, false, ROOT),
            RootEval => (Evaluated, Replaced, true, ROOT),
            Run => (Resolved, Kept, false, STEP),
            StepText => (Resolved, Replaced, false, STEP),
            StepEval => (Evaluated, Replaced, true, STEP),
            Argument => (Resolved, Replaced, true, STEP),
            SubDag => (Resolved, Replaced, false, SUB_DAG),
            Path => (Resolved, ReplacedInPath, false, STEP),
        };
        FieldRule { evaluation, variables, reads_host, scopes }
    }
}

/// Fields of a DAG: `#` is an index, `*` a key or an index, `**` any rest, or none, `a|b` one of the two. The
/// first that fits counts; what is not here is literal.
const ROOT_FIELDS: [(&str, TextField); 12] = [
    ("consts.#.*", Const),
    ("params.#.eval", RootEval),
    ("env.*", RootImport),
    ("env.#.*", RootImport),
    ("dotenv.**", RootImport),
    ("preconditions.eval", RootEval),
    ("preconditions.#.eval", RootEval),
    ("preconditions.expected|negate", Literal),
    ("preconditions.#.expected|negate", Literal),
    ("shell|shell_args|preconditions|container.**", RootText),
    ("working_dir", RootText),
    ("tasks.#.description", RootText),
];

/// Fields of a step, as [`ROOT_FIELDS`]; those with an action or a type are of its steps alone.
const STEP_FIELDS: [(&str, &[&str], TextField); 32] = [
    ("script", &["template"], Literal),
    ("run|command|script.**", &[], Run),
    ("exec.command|args.**", &[], Argument),
    ("with.command|args.**", &["exec"], Argument),
    ("with.template", &["template.render"], Literal),
    ("with.form.**", &["human.task"], Literal),
    ("with.dag|params.**", &["dag.run", "dag.enqueue"], SubDag),
    ("call|params.**", &[], SubDag),
    ("with|config|parallel|container.**", &[], StepText),
    ("env.*", &[], StepText),
    ("env.#.*", &[], StepText),
    ("shell|shell_args|shell_packages.**", &[], StepText),
    ("working_dir|value", &[], StepText),
    ("preconditions.eval", &[], StepEval),
    ("preconditions.#.eval", &[], StepEval),
    ("preconditions.expected|negate", &[], Literal),
    ("preconditions.#.expected|negate", &[], Literal),
    ("preconditions.**", &[], StepText),
    ("retry_policy.limit|interval_sec", &[], StepText),
    ("repeat_policy.condition|limit|interval_sec|max_interval_sec", &[], StepText),
    ("foreach.items.**", &[], StepText),
    ("foreach.key", &[], StepText),
    ("foreach.collect.*", &[], StepText),
    ("stdout|stderr", &[], Path),
    ("stdout|stderr.artifact", &[], Path),
    ("stdout.outputs.fields.*.select", &[], Literal),
    ("stdout.outputs.fields.**", &[], StepText),
    ("output.*.select", &[], Literal),
    ("output.*.**", &[], StepText),
    ("llm.system|provider|model|base_url", &[], StepText),
    ("llm.model.#.provider|name|base_url", &[], StepText),
    ("messages.#.content", &[], StepText),
];

/// Field at a path of keys and indices below a document, as `steps`, `0`, `run`. The action, or the type, is
/// that of the step.
pub fn field_of(path: &[&str], action: Option<&str>) -> TextField {
    let of_step = match path {
        ["steps", _, "foreach", "steps", _, rest @ ..] | ["handler_on" | "steps", _, rest @ ..] => {
            match rest {
                // Steps of a list within the list run beside each other.
                [index, below @ ..] if is_index(index) => below,
                _ => rest,
            }
        }
        // Settings of a model that steps have unless they say otherwise.
        ["llm", ..] => path,
        _ => {
            let found = ROOT_FIELDS.iter().find(|(form, _)| fits(form, path));
            return found.map_or(Literal, |(_, field)| *field);
        }
    };
    let of_action =
        |actions: &[&str]| actions.is_empty() || action.is_some_and(|it| actions.contains(&it));
    let mut fields = STEP_FIELDS.iter();
    let found = fields.find(|(form, actions, _)| of_action(actions) && fits(form, of_step));
    found.map_or(Literal, |(.., field)| *field)
}

fn is_index(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

fn fits(form: &str, path: &[&str]) -> bool {
    let mut path = path.iter();
    for part in form.split('.') {
        let fits = match (part, path.next()) {
            ("**", _) => return true,
            ("*", Some(_)) => true,
            ("#", Some(next)) => is_index(next),
            (_, next) => next.is_some_and(|next| part.split('|').any(|part| part == *next)),
        };
        if !fits {
            return false;
        }
    }
    path.next().is_none()
}
