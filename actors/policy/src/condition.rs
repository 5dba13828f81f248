//! Condition of a rule: an expression of the Common Expression Language (CEL) over the call.
//!
//! It sees `tool`, `session`, `args` and `commands`. What it cannot judge, as a member that is not
//! there or a command line that no grammar takes apart, is neither true nor false: the rule then
//! asks a person.

use std::collections::BTreeSet;

use hivekeep_runtime::expression::{Expression, ExpressionValue};
use serde_json::{Value, json};

use crate::{Question, facts::program_name};

/// Variables of expressions.
pub(crate) const VARIABLES: [&str; 4] = ["tool", "session", "args", "commands"];
/// Place of the first variable that depends on the input.
const OF_INPUT: usize = 2;
/// Place of the commands.
const COMMANDS: usize = 3;
/// Place, behind the variables, of the commands by the names of their programs.
const COMMANDS_BY_NAME: usize = VARIABLES.len();

/// Value of a variable for one call, or why there is none.
pub(crate) type Variable = Result<ExpressionValue, String>;

/// Compiled condition.
#[derive(Debug)]
pub(crate) struct Condition {
    expression: Expression,
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
        let expression = Expression::new(text, &BTreeSet::from(VARIABLES))?;
        let wants = (0..VARIABLES.len()).filter(|at| expression.names(VARIABLES[*at])).collect();
        Ok(Self { expression, wants })
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
        let mut variables = Vec::with_capacity(self.wants.len());
        for at in &self.wants {
            let place = if *at == COMMANDS { commands } else { *at };
            match question.facts.variable(place, || variable(place, question)) {
                Ok(value) => variables.push((VARIABLES[*at], value.clone())),
                Err(why) => return Holds::Unclear(why.clone()),
            }
        }
        match self.expression.holds(variables) {
            Ok(true) => Holds::Yes,
            Ok(false) => Holds::No,
            Err(why) => Holds::Unclear(why),
        }
    }
}

/// Value of a variable by its place.
fn variable<'a>(at: usize, question: &'a Question<'_>) -> Variable {
    let spec = question.tool;
    match VARIABLES.get(at).copied() {
        Some("tool") => ExpressionValue::whole(&json!({
            "name": spec.name, "toolset": spec.family, "risk": spec.risk, "effect": spec.effect,
            "open_world": spec.open_world,
        })),
        Some("session") => ExpressionValue::whole(&json!({
            "id": question.session, "user": question.user, "door": question.door,
            "agent": question.profile.agent,
        })),
        Some("args") => ExpressionValue::whole(question.args.unwrap_or(&Value::Null)),
        _ => {
            let judged = question.facts.commands().judged();
            let judged = judged.map_err(|what| format!("the command line has {what}"))?;
            let word = |(nth, word): (usize, &'a String)| match nth == 0 && at == COMMANDS_BY_NAME {
                true => program_name(word),
                false => word.as_str(),
            };
            let words = |command: &'a [String]| command.iter().enumerate().map(word).collect();
            let commands: Vec<Vec<&str>> = judged.into_iter().map(words).collect();
            ExpressionValue::unbounded(&json!(commands))
        }
    }
}
