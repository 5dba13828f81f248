//! Resolver of the texts of a DAG: references give way to values, by one table of the notation's fields.
//!
//! ```text
//! manifest, what the caller gave ─▶ Begin ─▶ RunBeginning: constants, parameters, environment; recorded
//!                                                 │
//!                         text, its TextField ────┴─▶ resolve ─▶ text
//!                                                     evaluate ─▶ literal parts and commands
//! ```
//! Values are put in as they are and are never read again: what a value holds, be it `${…}`, `$(…)` or a
//! quote, is text. A reference whose value is not there stays as it is written.

mod begin;
mod dotenv;
mod env;
mod evaluation;
mod extract;
mod field;
mod form;
mod given;
mod output_file;
mod params;
mod scopes;
mod text;
mod variables;

pub use begin::{BROUGHT, Begin, BeginAnswer, BeginError, BeginNeed, RunBeginning, RunFacts};
pub use dotenv::{DotenvError, dotenv};
pub use env::{managed_env, resolve_env};
pub use evaluation::{Computation, TextPart, evaluate};
pub use extract::{ExtractError, decode, select};
pub use field::{Evaluation, FieldRule, ScopeName, TextField, Variables, field_of};
pub use form::{FormValues, TaskForm};
pub use given::GivenParams;
pub use output_file::{OutputFileError, output_file};
pub use params::{ParamError, RunParams, schema_file};
pub use scopes::{ItemScope, NamedTexts, StepValues, TextScopes, value_text};
pub use text::{MAX_RESOLVED_BYTES, TextTooLong, resolve, resolve_value};

#[cfg(test)]
mod tests;
