//! Security context: a list of capabilities, denied by default.

use crate::{
    CapabilityOptions, ContextOptions, Question, ReasonCode, Verdict,
    facts::{CallCommand, CallCommands},
};

pub(crate) const LAYER: &str = "context";

/// Rules on a call by a context: a pattern of `deny` first, then the first capability that takes it.
pub(crate) fn rule(name: &str, context: &ContextOptions, question: &Question<'_>) -> Verdict {
    let tool = question.tool.name;
    let deny = |why: String| Verdict::deny(LAYER, ReasonCode::PolicyDenied, why).by(name);
    if let Some(pattern) = context.deny.iter().find(|pattern| pattern.matches(tool)) {
        return deny(format!("the context `{name}` denies `{pattern}`"));
    }
    let named = context.capabilities.iter();
    let named = named.filter(|one| one.tools.iter().any(|pattern| pattern.matches(tool)));
    let mut why = format!("the context `{name}` has no capability for it");
    for capability in named {
        match admits(capability, question) {
            Ok(()) => return Verdict::allow(LAYER, "a capability of the context has it").by(name),
            Err(limit) => why = format!("in the context `{name}` {limit}"),
        }
    }
    deny(why)
}

/// The limit that keeps a call out of a capability.
fn admits(capability: &CapabilityOptions, question: &Question<'_>) -> Result<(), String> {
    if let Some(paths) = &capability.paths {
        let outside = question
            .facts
            .paths()
            .into_iter()
            .find(|path| !paths.iter().any(|allowed| below(allowed, path)));
        if let Some(path) = outside {
            return Err(format!("`{}` is none of the allowed paths", short(&path)));
        }
    }
    if let Some(domains) = &capability.domains {
        for host in question.facts.hosts() {
            let host = host.map_err(|address| format!("`{}` names no host", short(address)))?;
            if !domains.iter().any(|domain| within(domain, &host)) {
                return Err(format!("`{}` is none of the allowed hosts", short(&host)));
            }
        }
    }
    let Some(allowed) = &capability.commands else { return Ok(()) };
    match question.facts.commands() {
        CallCommands::Unclear(what) => Err(format!("a command with {what} cannot be judged")),
        CallCommands::Clear(commands) => {
            let begins = |it: &CallCommand| allowed.iter().any(|rule| begins_with(&it.words, rule));
            match commands.iter().find(|command| !begins(command)) {
                Some(CallCommand { words, .. }) => {
                    Err(format!("`{}` is none of the allowed commands", short(&words.join(" "))))
                }
                None => Ok(()),
            }
        }
    }
}

/// A path below an allowed one; relative ones are below the root of their place.
fn below(allowed: &str, path: &str) -> bool {
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.split('/').any(|segment| segment == "..") {
        return false;
    }
    match allowed.strip_suffix("/**") {
        Some(folder) => {
            path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        None => path == allowed,
    }
}

fn within(domain: &str, host: &str) -> bool {
    let domain = domain.to_ascii_lowercase();
    host == domain || host.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'))
}

fn begins_with(words: &[String], rule: &str) -> bool {
    let mut rule = rule.split_ascii_whitespace();
    let mut words = words.iter();
    rule.all(|wanted| words.next().is_some_and(|word| word == wanted))
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_hosts_do_not_lead_out() {
        for (allowed, path, is) in [
            ("/workspace/**", "/workspace/a/b", true),
            ("/workspace/**", "/workspace", true),
            ("/workspace/**", "workspace/a", true),
            ("/workspace/**", "/workspaces/a", false),
            ("/workspace/**", "/workspace/../etc/passwd", false),
            ("/workspace/**", "//workspace/a", true),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/**", "/x", true),
        ] {
            assert_eq!(below(allowed, path), is, "{allowed} {path}");
        }
        for (domain, host, is) in [
            ("example.org", "example.org", true),
            ("example.org", "a.example.org", true),
            ("example.org", "badexample.org", false),
            ("Example.org", "example.org", true),
            ("org", "example.org", true),
        ] {
            assert_eq!(within(domain, host), is, "{domain} {host}");
        }
    }
}
