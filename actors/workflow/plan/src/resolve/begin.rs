//! Beginning of a run: constants, parameters and environment, resolved once, in the one order for whatever
//! starts it.

use std::collections::HashSet;

use hivekeep_manifest::{
    common::JsonObject,
    dag::{
        DagEnv, DagManifest,
        reference::{ReferencePath, references},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Computation, DotenvError, GivenParams, NamedTexts, ParamError, RunParams, TextField,
    TextScopes, dotenv,
    env::TextRoom,
    evaluate, managed_env,
    params::{DeclaredParam, DeclaredParams},
    resolve, resolve_env, value_text,
};

/// Parameters that a webhook brings: its payload, and header fields of it as JSON. Where a DAG does not declare them they
/// are variables of its environment.
pub const BROUGHT: [&str; 2] = ["WEBHOOK_PAYLOAD", "WEBHOOK_HEADERS"];

/// Record of a beginning: what all texts of the run read, at each attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunBeginning {
    /// Constants by name.
    pub consts: NamedTexts,
    /// Parameters, in order.
    pub params: RunParams,
    /// Environment of the run: parameters, the DAG's `env`, dotenv files and what the daemon sets. Secrets are
    /// none of it.
    pub env: NamedTexts,
}

/// Facts that a beginning depends on beside the manifest.
#[derive(Debug, Clone, Default)]
pub struct RunFacts {
    /// Parameters that the caller gives.
    pub given: GivenParams,
    /// Context, by field as `run.id`.
    pub context: NamedTexts,
    /// Variables that the run inherits.
    pub inherited_env: NamedTexts,
    /// Environment of the caller, which the few fields that read it may take more from.
    pub host_env: NamedTexts,
    /// Constants that the DAG inherits.
    pub inherited_consts: NamedTexts,
    /// Content of the file with the parameters' schema.
    pub schema: Option<Value>,
}

/// Need that a beginning waits for.
#[derive(Debug, Clone, PartialEq)]
pub enum BeginNeed {
    /// Output of a line, run by the shell of the run's place.
    Command {
        /// Line for the shell.
        line: String,
        /// Environment of the line.
        env: NamedTexts,
    },
    /// Texts of these files.
    DotenvFiles(Vec<String>),
    /// Nothing: this is the record.
    Done(RunBeginning),
}

/// Answer of the caller to a need.
#[derive(Debug, Clone, PartialEq)]
pub enum BeginAnswer {
    /// Nothing, at first.
    Start,
    /// Output of the command.
    Output(String),
    /// Reason why the command failed.
    Failed(String),
    /// Files that are there, with their texts, in the order asked for.
    Files(Vec<(String, String)>),
}

/// Why a run does not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// Parameters that are not taken.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// A value that is too long.
    #[error("`{0}` is too long: with its values it, or all of its kind, is more than 1 MiB")]
    TooLong(String),
    /// A file, by its path as the DAG names it, that is not a dotenv file.
    #[error("the file `{0}` is not a dotenv file: {1}")]
    Dotenv(String, DotenvError),
    /// An answer to something else.
    #[error("the beginning asked for something else")]
    Unasked,
}

/// Beginning of a run on its way. [`Begin::next`] tells what it needs, until the record is done.
#[derive(Debug)]
pub struct Begin {
    facts: RunFacts,
    entries: Vec<(String, String)>,
    dotenv_paths: Vec<String>,
    beginning: RunBeginning,
    /// Environment that `eval` of parameters reads: entries that name parameters are not in it.
    env_before: NamedTexts,
    declared: DeclaredParams,
    /// Parameters that are to come, each with the value that is given.
    params: std::vec::IntoIter<(DeclaredParam, Option<Value>)>,
    /// Parameters so far, in their types.
    typed: JsonObject,
    room: TextRoom,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Params,
    Computing(DeclaredParam, Computation),
    Dotenv,
    Done,
}

impl Begin {
    /// Beginning of a run of a DAG.
    ///
    /// # Errors
    /// For parameters without a place, a schema that is not there, and texts that are too long.
    pub fn new(dag: &DagManifest, mut facts: RunFacts) -> Result<Self, BeginError> {
        let declared = dag.params.as_ref().map(|it| DeclaredParams::of(it, facts.schema.as_ref()));
        let declared = declared.transpose()?.unwrap_or_default();
        for name in BROUGHT.into_iter().filter(|name| !declared.has(name)) {
            let given = facts.given.named.remove(name);
            let given = given.map(|value| (name.to_owned(), value_text(&value).into_owned()));
            facts.inherited_env.extend(given);
        }
        let consts = consts(dag, &facts.inherited_consts)?;
        let entries = dag.env.iter().flat_map(DagEnv::pairs);
        let mut begin = Self {
            entries: entries.map(|(name, text)| (name.to_owned(), text.into_owned())).collect(),
            dotenv_paths: dotenv_paths(dag),
            beginning: RunBeginning { consts, ..RunBeginning::default() },
            env_before: NamedTexts::new(),
            params: declared.assigned(&facts.given)?.into_iter(),
            typed: JsonObject::new(),
            room: TextRoom::default(),
            stage: Stage::Params,
            declared,
            facts,
        };
        let names_none = |text: &str| {
            let named = |path| matches!(path, ReferencePath::Param(_) | ReferencePath::Params);
            !references(text).any(|reference| named(reference.path))
        };
        begin.env_before = begin.root_env(names_none)?;
        Ok(begin)
    }

    /// Goes on with the answer to what was needed.
    ///
    /// # Errors
    /// When the run cannot begin; there is no way on from that.
    pub fn next(&mut self, answer: BeginAnswer) -> Result<BeginNeed, BeginError> {
        match (std::mem::replace(&mut self.stage, Stage::Done), answer) {
            (Stage::Params, BeginAnswer::Start) => {}
            (Stage::Computing(param, computation), BeginAnswer::Output(output)) => {
                if let Some(need) = self.compute(param, computation, Some(&output))? {
                    return Ok(need);
                }
            }
            (Stage::Computing(param, _), BeginAnswer::Failed(reason)) => {
                let DeclaredParam { name, default, .. } = param;
                let default = default.ok_or_else(|| ParamError::Eval(name.clone(), reason))?;
                self.put(&name, &default)?;
            }
            (Stage::Dotenv, BeginAnswer::Files(files)) => {
                let mut room = TextRoom::default();
                for (path, text) in files {
                    let texts = dotenv(&text).map_err(|it| BeginError::Dotenv(path.clone(), it))?;
                    for (name, text) in texts {
                        let text =
                            room.take(text).map_err(|_| BeginError::TooLong(path.clone()))?;
                        self.beginning.env.insert(name, text);
                    }
                }
                return Ok(self.finish());
            }
            _ => return Err(BeginError::Unasked),
        }
        self.next_params()
    }

    fn next_params(&mut self) -> Result<BeginNeed, BeginError> {
        while let Some((param, given)) = self.params.next() {
            match (given, &param) {
                (Some(value), _) => self.put(&param.name, &value)?,
                (None, DeclaredParam { name, eval: Some(text), .. }) => {
                    let parts = evaluate(text, TextField::RootEval, &self.scopes(&self.env_before));
                    let parts = parts.map_err(|_| BeginError::TooLong(name.clone()))?;
                    if let Some(need) = self.compute(param, Computation::new(parts), None)? {
                        return Ok(need);
                    }
                }
                (None, DeclaredParam { name, default: Some(default), .. }) => {
                    self.put(name, default)?;
                }
                (None, _) => {}
            }
        }
        self.declared.check(std::mem::take(&mut self.typed))?;
        self.beginning.env = self.root_env(|_| true)?;
        let mut paths = Vec::new();
        for path in &self.dotenv_paths {
            let path = resolve(path, TextField::RootImport, &self.scopes(&self.beginning.env));
            paths.push(path.map_err(|_| BeginError::TooLong("dotenv".to_owned()))?);
        }
        let mut seen = HashSet::new();
        paths.retain(|path| seen.insert(path.clone()));
        if paths.is_empty() {
            return Ok(self.finish());
        }
        self.stage = Stage::Dotenv;
        Ok(BeginNeed::DotenvFiles(paths))
    }

    /// Goes on with a parameter's `eval`; `None` once the parameter is there.
    fn compute(
        &mut self,
        param: DeclaredParam,
        mut computation: Computation,
        output: Option<&str>,
    ) -> Result<Option<BeginNeed>, BeginError> {
        let Some(line) = computation.next(output) else {
            self.put(&param.name, &computation.text().into())?;
            return Ok(None);
        };
        let mut env = self.env_before.clone();
        env.extend(self.beginning.params.named());
        self.stage = Stage::Computing(param, computation);
        Ok(Some(BeginNeed::Command { line, env }))
    }

    fn put(&mut self, name: &str, value: &Value) -> Result<(), BeginError> {
        let value = self.declared.coerced(name, value);
        let text = self.room.take(value_text(&value).into_owned());
        self.beginning.params.put(name, text.map_err(|_| BeginError::TooLong(name.to_owned()))?);
        self.typed.insert(name.to_owned(), value);
        Ok(())
    }

    fn scopes<'a>(&'a self, env: &'a NamedTexts) -> TextScopes<'a> {
        TextScopes {
            consts: Some(&self.beginning.consts),
            params: Some(&self.beginning.params),
            env: Some(env),
            host_env: Some(&self.facts.host_env),
            context: Some(&self.facts.context),
            ..TextScopes::default()
        }
    }

    /// Variables that the daemon sets, whatever others do.
    fn managed(&self) -> NamedTexts {
        let mut managed = managed_env(&self.facts.context);
        let json = self.beginning.params.to_json();
        managed.extend(json.map(|json| ("DAG_PARAMS_JSON".to_owned(), json)));
        managed
    }

    /// Environment with those entries of the DAG whose texts are wanted.
    fn root_env(&self, wants: impl Fn(&str) -> bool) -> Result<NamedTexts, BeginError> {
        let mut env = self.facts.inherited_env.clone();
        env.extend(self.beginning.params.named());
        env.extend(self.managed());
        let entries = self.entries.iter().filter(|(_, text)| wants(text));
        let entries = entries.map(|(name, text)| (name.as_str(), text));
        let scopes = self.scopes(&self.env_before);
        let resolved = resolve_env(entries, TextField::RootImport, &scopes, &mut env);
        resolved.map(|()| env).map_err(BeginError::TooLong)
    }

    fn finish(&mut self) -> BeginNeed {
        let managed = self.managed();
        self.beginning.env.extend(managed);
        BeginNeed::Done(std::mem::take(&mut self.beginning))
    }
}

/// Paths of dotenv files: `.env` first, unless the DAG wants none.
fn dotenv_paths(dag: &DagManifest) -> Vec<String> {
    let named = dag.dotenv.as_ref().map(|it| it.iter().map(str::to_owned).collect::<Vec<_>>());
    match named {
        Some(paths) if paths.iter().all(String::is_empty) => Vec::new(),
        named => [".env".to_owned()].into_iter().chain(named.into_iter().flatten()).collect(),
    }
}

/// Constants in order, each of which may name those before it.
fn consts(dag: &DagManifest, inherited: &NamedTexts) -> Result<NamedTexts, BeginError> {
    let (mut consts, mut room) = (inherited.clone(), TextRoom::default());
    for (name, value) in dag.consts.iter().flatten().flatten() {
        let scopes = TextScopes { consts: Some(&consts), ..TextScopes::default() };
        let text = resolve(&value.to_string(), TextField::Const, &scopes);
        let text = text.and_then(|text| room.take(text));
        consts.insert(name.clone(), text.map_err(|_| BeginError::TooLong(name.clone()))?);
    }
    Ok(consts)
}
