//! Condition of a rule: an expression of the Common Expression Language (CEL) over the call.
//!
//! It sees `tool`, `session`, `args` and `commands`. What it cannot judge, as a member that is not
//! there or a command line that no grammar takes apart, is neither true nor false: the rule then
//! asks a person.

use cel::{Context, Program, Value as CelValue};
use serde_json::{Value, json};

use crate::{
    Question,
    facts::Commands,
};

/// Longest expression, in bytes.
const MAX_BYTES: usize = 4_096;
/// Most values of an input that a condition is evaluated over: an expression may walk lists within
/// lists, and runs within the call.
const MAX_VALUES: usize = 1_000;
/// Most bytes of text of an input that a condition is evaluated over.
const MAX_TEXT_BYTES: usize = 256 * 1024;
const VARIABLES: [&str; 4] = ["tool", "session", "args", "commands"];

/// Compiled condition.
#[derive(Debug)]
pub(crate) struct Condition {
    program: Program,
    wants_args: bool,
    wants_commands: bool,
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
        let program = Program::compile(text).map_err(|error| format!("is not a valid expression: {error}"))?;
        let (wants_args, wants_commands) = {
            let references = program.references();
            let unknown = references.variables().into_iter().find(|name| !VARIABLES.contains(name));
            if let Some(name) = unknown {
                return Err(format!("`{name}` is not one of {}", VARIABLES.join(", ")));
            }
            (references.has_variable("args"), references.has_variable("commands"))
        };
        Ok(Self { program, wants_args, wants_commands })
    }

    /// Evaluates it for a call. Without an input, what depends on one does not hold.
    pub(crate) fn holds(&self, question: &Question<'_>) -> Holds {
        let Some(args) = question.args.or(Some(&Value::Null)) else { return Holds::No };
        if question.args.is_none() && (self.wants_args || self.wants_commands) {
            return Holds::No;
        }
        let mut context = Context::default();
        let mut set = |name: &str, value: &Value| -> Result<(), String> {
            let value = cel::to_value(value).map_err(|error| error.to_string())?;
            context.add_variable_from_value(name, value);
            Ok(())
        };
        let prepared = self.variables(question, args, &mut set);
        match prepared.map(|()| self.program.execute(&context)) {
            Ok(Ok(CelValue::Bool(true))) => Holds::Yes,
            Ok(Ok(CelValue::Bool(false))) => Holds::No,
            Ok(Ok(other)) => Holds::Unclear(format!("is {:?}, not true or false", other.type_of())),
            Ok(Err(error)) => Holds::Unclear(error.to_string()),
            Err(why) => Holds::Unclear(why),
        }
    }

    fn variables(
        &self,
        question: &Question<'_>,
        args: &Value,
        set: &mut impl FnMut(&str, &Value) -> Result<(), String>,
    ) -> Result<(), String> {
        let spec = &question.tool.spec;
        set("tool", &json!({
            "name": spec.name, "toolset": spec.family, "risk": spec.risk, "effect": spec.effect,
            "open_world": spec.open_world,
        }))?;
        set("session", &json!({
            "id": question.session, "user": question.user, "door": question.door,
            "agent": question.profile.agent,
        }))?;
        if self.wants_args {
            small(args)?;
            set("args", args)?;
        }
        if self.wants_commands {
            match question.facts.commands() {
                Commands::Clear(commands) => set("commands", &json!(commands))?,
                Commands::Unclear(what) => return Err(format!("the command line has {what}")),
            }
        }
        Ok(())
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
