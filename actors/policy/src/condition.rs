//! Condition of a rule: an expression of the Common Expression Language (CEL) over the call.
//!
//! It sees `tool`, `session`, `args` and `commands`. What it cannot judge, as a member that is not
//! there or a command line that no grammar takes apart, is neither true nor false: the rule then
//! asks a person.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, Program, Value as CelValue,
    common::ast::{EntryExpr, Expr, IdedExpr},
};
use serde_json::{Value, json};

use crate::{Question, facts::program_name};

/// Longest expression, in bytes.
const MAX_BYTES: usize = 4_096;
/// Most values of an input that a condition is evaluated over: an expression may walk lists within
/// lists, and runs within the call.
const MAX_VALUES: usize = 1_000;
/// Most bytes of text of an input that a condition is evaluated over.
const MAX_TEXT_BYTES: usize = 256 * 1024;
/// Variables of expressions.
pub(crate) const VARIABLES: [&str; 4] = ["tool", "session", "args", "commands"];
/// Standard functions and types. Made once: that takes longer than most conditions.
static STANDARD: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
/// Place of the first variable that depends on the input.
const OF_INPUT: usize = 2;
/// Place of the commands.
const COMMANDS: usize = 3;
/// Place, behind the variables, of the commands by the names of their programs.
const COMMANDS_BY_NAME: usize = VARIABLES.len();

/// Value of a variable for one call, or why there is none.
pub(crate) type Variable = Result<CelValue, String>;

/// Compiled condition.
#[derive(Debug)]
pub(crate) struct Condition {
    program: Program,
    /// Places of its variables among [`VARIABLES`].
    wants: Vec<usize>,
}

/// Outcome of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holds {
    Yes,
    No,
    /// The reason why neither can be said.
    Unclear(String),
}

impl Condition {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("is longer than {MAX_BYTES} bytes"));
        }
        let program = Program::compile(text)
            .map_err(|error| format!("is not a valid expression: {error}"))?;
        let wants = {
            let references = program.references();
            let bound = bound_names(program.expression());
            let known = |name: &&str| VARIABLES.contains(name) || bound.contains(name);
            let unknown = references.variables().into_iter().find(|name| !known(name));
            if let Some(name) = unknown {
                return Err(format!("`{name}` is not one of {}", VARIABLES.join(", ")));
            }
            let wanted = |at: &usize| references.has_variable(VARIABLES[*at]);
            (0..VARIABLES.len()).filter(wanted).collect()
        };
        Ok(Self { program, wants })
    }

    /// Evaluates it for a call, and once more by the names of programs if it looks at some that are named by
    /// a path. Without an input, what depends on one does not hold.
    pub(crate) fn holds(&self, question: &Question<'_>) -> (Holds, Option<Holds>) {
        let by_paths = self.wants.contains(&COMMANDS)
            && question.args.is_some()
            && question.facts.commands().have_paths();
        let by_name = by_paths.then(|| self.evaluate(question, COMMANDS_BY_NAME));
        (self.evaluate(question, COMMANDS), by_name)
    }

    fn evaluate(&self, question: &Question<'_>, commands: usize) -> Holds {
        if question.args.is_none() && self.wants.iter().any(|at| *at >= OF_INPUT) {
            return Holds::No;
        }
        let mut context = Context::with_env(STANDARD.clone());
        for at in &self.wants {
            let place = if *at == COMMANDS { commands } else { *at };
            match question.facts.variable(place, || variable(place, question)) {
                Ok(value) => context.add_variable_from_value(VARIABLES[*at], value.clone()),
                Err(why) => return Holds::Unclear(why.clone()),
            }
        }
        match self.program.execute(&context) {
            Ok(CelValue::Bool(true)) => Holds::Yes,
            Ok(CelValue::Bool(false)) => Holds::No,
            Ok(other) => Holds::Unclear(format!("is {:?}, not true or false", other.type_of())),
            Err(error) => Holds::Unclear(error.to_string()),
        }
    }
}

/// Value of a variable by its place.
fn variable<'a>(at: usize, question: &'a Question<'_>) -> Variable {
    let spec = question.tool;
    let value = |value: &Value| cel::to_value(value).map_err(|error| error.to_string());
    match VARIABLES.get(at).copied() {
        Some("tool") => value(&json!({
            "name": spec.name, "toolset": spec.family, "risk": spec.risk, "effect": spec.effect,
            "open_world": spec.open_world,
        })),
        Some("session") => value(&json!({
            "id": question.session, "user": question.user, "door": question.door,
            "agent": question.profile.agent,
        })),
        Some("args") => {
            let args = question.args.unwrap_or(&Value::Null);
            small(args)?;
            value(args)
        }
        _ => {
            let judged = question.facts.commands().judged();
            let judged = judged.map_err(|what| format!("the command line has {what}"))?;
            let word = |(nth, word): (usize, &'a String)| match nth == 0 && at == COMMANDS_BY_NAME {
                true => program_name(word),
                false => word.as_str(),
            };
            let words = |command: &'a [String]| command.iter().enumerate().map(word).collect();
            let commands: Vec<Vec<&str>> = judged.into_iter().map(words).collect();
            value(&json!(commands))
        }
    }
}

/// Refuses an input that would take long to walk.
fn small(args: &Value) -> Result<(), String> {
    let (mut values, mut bytes, mut open) = (0, 0, vec![args]);
    while let Some(value) = open.pop() {
        values += 1;
        match value {
            Value::Array(list) => open.extend(list),
            Value::Object(map) => open.extend(map.values()),
            Value::String(text) => bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if values > MAX_VALUES || bytes > MAX_TEXT_BYTES {
            return Err("the input is too large to judge".to_owned());
        }
    }
    Ok(())
}

/// Names that some comprehension of an expression binds, as `x` in `list.exists(x, x > 1)`.
fn bound_names(expression: &IdedExpr) -> BTreeSet<&str> {
    let (mut bound, mut open) = (BTreeSet::new(), vec![expression]);
    while let Some(one) = open.pop() {
        match &one.expr {
            Expr::Call(call) => {
                open.extend(call.target.as_deref());
                open.extend(&call.args);
            }
            Expr::Comprehension(it) => {
                bound.insert(it.iter_var.as_str());
                bound.extend(it.iter_var2.as_deref());
                open.extend([
                    &it.iter_range,
                    &it.accu_init,
                    &it.loop_cond,
                    &it.loop_step,
                    &it.result,
                ]);
            }
            Expr::List(list) => open.extend(&list.elements),
            Expr::Map(map) => {
                map.entries.iter().for_each(|entry| open.extend(values_of(&entry.expr)))
            }
            Expr::Struct(it) => {
                it.entries.iter().for_each(|entry| open.extend(values_of(&entry.expr)))
            }
            Expr::Select(select) => open.push(&select.operand),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }
    bound
}

fn values_of(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
