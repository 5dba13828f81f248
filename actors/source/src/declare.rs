//! Validation of what a server declares: which of its tools are published, and as what.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use hivekeep_kernel::{Access, Addressing, Effect, RateClass, Risk, ToolSpec, lock, tool};
use hivekeep_ports::SourceTool;
use hivekeep_runtime::json_schema::validator;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::Value;

use crate::{ServerName, ServerOptions};

/// Most tools of a server.
pub(crate) const MAX_TOOLS: usize = 256;
/// Most different declarations of a server in the life of a daemon: each is kept as long as it lives.
const MAX_DECLARED: usize = 1_024;
/// Longest name, as clients and the registry have it.
const NAME_CHARS: usize = 64;
const TITLE_CHARS: usize = 120;
const DESCRIPTION_BYTES: usize = 16 * 1024;
const SCHEMA_BYTES: usize = 64 * 1024;

/// A tool that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RejectedTool {
    pub(crate) raw_name: String,
    pub(crate) why: String,
}

/// Declarations of one server, which live as long as the daemon: a name that a call carries is `'static`.
#[derive(Debug)]
pub(crate) struct Declarations {
    server: &'static str,
    family: &'static str,
    actor: &'static str,
    known: Mutex<HashMap<String, &'static ToolSpec>>,
}

impl Declarations {
    /// Declarations of a server; `actor` is the name that its calls are routed by.
    pub(crate) fn new(name: &ServerName, actor: &str) -> Self {
        let keep = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        Self {
            server: keep(name.to_string()),
            family: keep(format!("mcp__{name}")),
            actor: keep(actor.to_owned()),
            known: Mutex::default(),
        }
    }

    /// The tools that are published, and those that are left out. Of tools that would have one name the
    /// first is shown, and neither is called.
    pub(crate) fn judge(
        &self,
        options: &ServerOptions,
        listed: Vec<Tool>,
    ) -> (Vec<SourceTool>, Vec<RejectedTool>) {
        let (mut tools, mut left_out) = (BTreeMap::<String, SourceTool>::new(), Vec::new());
        for tool in listed {
            let raw_name = tool.name.chars().take(80).collect::<String>();
            let name = published_name(self.server, &tool.name);
            let taken = name.as_ref().ok().and_then(|name| tools.get_mut(name));
            if let Some(first) = taken {
                let why = format!("`{}` has the same name", first.raw_name);
                first.conflict = Some(raw_name.clone());
                left_out.push(RejectedTool { raw_name, why });
                continue;
            }
            let made = name.and_then(|name| Ok((name.clone(), self.made(options, &name, tool)?)));
            match made {
                Ok((name, tool)) => drop(tools.insert(name, tool)),
                Err(why) => left_out.push(RejectedTool { raw_name, why }),
            }
        }
        (tools.into_values().collect(), left_out)
    }

    fn made(&self, options: &ServerOptions, name: &str, tool: Tool) -> Result<SourceTool, String> {
        let description = tool.description.as_deref().unwrap_or_default().trim().to_owned();
        if description.len() > DESCRIPTION_BYTES {
            return Err(format!("its description is longer than {DESCRIPTION_BYTES} bytes"));
        }
        let input_schema = checked_schema("input", Value::Object((*tool.input_schema).clone()))?;
        let output = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
        let output_schema = output.map(|schema| checked_schema("output", schema)).transpose()?;
        let annotations = tool.annotations.as_ref();
        let title = tool.title.as_deref().or(annotations.and_then(|it| it.title.as_deref()));
        let title = plain(title.unwrap_or(&tool.name));
        let spec = self.spec(options, name, &title, annotations)?;
        let description = if description.is_empty() { title } else { description };
        let raw_name = tool.name.into_owned();
        Ok(SourceTool { spec, raw_name, description, input_schema, output_schema, conflict: None })
    }

    fn spec(
        &self,
        options: &ServerOptions,
        name: &str,
        title: &str,
        annotations: Option<&ToolAnnotations>,
    ) -> Result<&'static ToolSpec, String> {
        let (effect, open_world) = effect(annotations.filter(|_| options.trust_annotations));
        let mut known = lock(&self.known);
        let key = format!("{name}\n{title}\n{effect:?}\n{open_world}");
        if let Some(spec) = known.get(&key) {
            return Ok(*spec);
        }
        if known.len() >= MAX_DECLARED {
            return Err(format!(
                "the server declared {MAX_DECLARED} different tools since the daemon started"
            ));
        }
        let keep = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let spec: &'static ToolSpec = Box::leak(Box::new(ToolSpec {
            name: keep(name),
            title: keep(title),
            family: self.family,
            source: Some(self.server),
            effect,
            concurrency_safe: effect == Effect::Read,
            open_world,
            risk: if effect == Effect::Read { Risk::Low } else { Risk::Medium },
            tier: options.tier,
            access: Access::Any,
            rate: RateClass::Default,
            rate_of: tool::rate_as_declared,
            addressing: Addressing::Singleton(self.actor),
            timeout_secs: options.timeout_secs,
            // A field of that name is the server's own and may mean anything.
            limit_secs: |_| None,
            result_budget_bytes: options.max_result_kb * 1024,
            weight: tool::one_token,
            told_by: None,
            keyed: false,
            content: hivekeep_kernel::tool::plain_result,
        }));
        known.insert(key, spec);
        Ok(spec)
    }
}

/// Effect of a tool, and whether it reaches outside. The protocol's defaults are the worst.
fn effect(annotations: Option<&ToolAnnotations>) -> (Effect, bool) {
    let Some(says) = annotations else { return (Effect::Destroy, true) };
    let effect = match (says.read_only_hint, says.destructive_hint, says.idempotent_hint) {
        (Some(true), _, _) => Effect::Read,
        (_, Some(false), Some(true)) => Effect::Idempotent,
        (_, Some(false), _) => Effect::Write,
        _ => Effect::Destroy,
    };
    (effect, says.open_world_hint.unwrap_or(true))
}

/// Name that a tool is published by: `mcp__SERVER__TOOL`, in lower case, with `_` for `-` and `.`.
fn published_name(server: &str, raw: &str) -> Result<String, String> {
    let plain = raw.to_ascii_lowercase().replace(['-', '.'], "_");
    let good = plain.starts_with(|first: char| first.is_ascii_lowercase())
        && plain.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !plain.contains("__")
        && !plain.ends_with('_');
    if !good {
        return Err("its name is not of letters, digits and single `-`, `.` and `_`".to_owned());
    }
    let name = format!("mcp__{server}__{plain}");
    match name.len() <= NAME_CHARS {
        true => Ok(name),
        false => Err(format!("`{name:.100}` is longer than {NAME_CHARS} characters")),
    }
}

/// A schema of bounded size, an object at its root, that compiles without anything from elsewhere.
fn checked_schema(side: &str, schema: Value) -> Result<Value, String> {
    if schema.to_string().len() > SCHEMA_BYTES {
        return Err(format!("its {side} schema is larger than {SCHEMA_BYTES} bytes"));
    }
    if schema["type"] != "object" {
        return Err(format!("its {side} schema is not an object at its root"));
    }
    match validator(&schema) {
        Ok(_) => Ok(schema),
        Err(why) => Err(format!("its {side} schema is not valid: {why:.200}")),
    }
}

/// A text for people, in characters that can be shown.
fn plain(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control()).take(TITLE_CHARS);
    shown.collect::<String>().trim().to_owned()
}
