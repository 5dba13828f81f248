//! `hivekeep approvals`.

use std::io::{BufRead, IsTerminal, Write};

use hivekeep_door_server::plain;
use hivekeep_kernel::{ApprovalId, GrantId, User};
use hivekeep_policy::{Approval, ApprovalAnswer, Grant, Remember, ToolPattern};
use hivekeep_ports::{FormField, UserQuestion, UserReply};
use serde_json::Value;

use super::{CliContext, CommandFailure, output};
use crate::control::{ApprovalsMethod, ControlMethod};

/// Show calls that wait for a person, and approve or deny them.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  hivekeep approvals
  hivekeep approvals --follow            # asks about each as it comes, on a terminal
  hivekeep approvals show apr_0192f0c1a2b37c4d8e5f60718293a4b5
  hivekeep approvals approve apr_0192...
  hivekeep approvals approve apr_0192... --tools 'git_*' --for-secs 3600
  hivekeep approvals deny apr_0192... --why 'not on a Friday'
  hivekeep approvals deny --of uid:1000
  hivekeep approvals answer apr_0192... --select 2
  hivekeep approvals answer apr_0192... --value region=eu --value replicas=3
  hivekeep approvals grants"
)]
pub struct Args {
    /// Go on, and tell each as it comes; on a terminal, ask about it.
    #[arg(long)]
    follow: bool,
    /// Show those that are decided, too.
    #[arg(long, conflicts_with = "follow")]
    all: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Show(ShowArgs),
    Approve(ApproveArgs),
    Deny(DenyArgs),
    Answer(AnswerArgs),
    Grants(GrantsArgs),
    Revoke(RevokeArgs),
}

/// Show a call with all of its input that is kept, without credentials.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// The approval.
    id: ApprovalId,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Approve a call; or calls like it from now on.
#[derive(Debug, clap::Args)]
struct ApproveArgs {
    /// The approval.
    id: ApprovalId,
    /// Calls of the same tool by the same session, too.
    #[arg(long, conflicts_with = "tools")]
    session: bool,
    /// Calls of these tools by the same user, too: a name, or a beginning with `*`.
    #[arg(long, value_parser = pattern, requires = "for_secs")]
    tools: Option<ToolPattern>,
    /// How long, with `--tools`.
    #[arg(long, value_name = "SECS", requires = "tools")]
    for_secs: Option<u64>,
    /// Why, for the records.
    #[arg(long)]
    why: Option<String>,
}

/// Deny a call, or take an approval back that was not used; or deny all that waits of a user.
#[derive(Debug, clap::Args)]
struct DenyArgs {
    /// The approval.
    #[arg(required_unless_present = "of")]
    id: Option<ApprovalId>,
    /// All calls and questions of this user that wait: `uid:1000`, or as `hivekeep approvals` shows it.
    #[arg(long, value_name = "USER", conflicts_with = "id")]
    of: Option<User>,
    /// Why, for the caller and the records.
    #[arg(long)]
    why: Option<String>,
}

/// Reply to a question; without an option or a text it is skipped.
#[derive(Debug, clap::Args)]
struct AnswerArgs {
    /// The question.
    id: ApprovalId,
    /// An option, by its place from 1; may be given again where several may be chosen.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    select: Vec<u16>,
    /// A text.
    #[arg(long)]
    text: Option<String>,
    /// The value of a field, as JSON or else as a text; once for each field.
    #[arg(long, value_name = "NAME=VALUE", value_parser = field)]
    value: Vec<(String, Value)>,
}

/// List the approvals that are remembered.
#[derive(Debug, clap::Args)]
struct GrantsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// End a remembered approval.
#[derive(Debug, clap::Args)]
struct RevokeArgs {
    /// The grant.
    id: GrantId,
}

fn field(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("it is not `NAME=VALUE`")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok((name.to_owned(), value))
}

fn pattern(text: &str) -> Result<ToolPattern, String> {
    text.to_owned().try_into()
}

pub(super) fn run(context: &CliContext, args: Args) -> Result<(), CommandFailure> {
    let method = match args.command {
        None if args.follow => return follow(context, args.json),
        None => return list(context, &args),
        Some(Command::Show(args)) => return show(context, &args),
        Some(Command::Grants(args)) => return grants(context, &args),
        Some(Command::Approve(ApproveArgs { id, session, tools, for_secs, why })) => {
            let remember = match (session, tools, for_secs) {
                (_, Some(tools), Some(secs)) => Remember::Tools { tools, secs },
                (true, ..) => Remember::Session,
                _ => Remember::Once,
            };
            let answer = ApprovalAnswer { approved: true, why, remember, reply: None };
            ApprovalsMethod::Decide { id, answer }
        }
        Some(Command::Deny(DenyArgs { of: Some(user), why, .. })) => {
            let method = ControlMethod::Approvals(ApprovalsMethod::DenyAll { user, why });
            let denied: usize = context.client()?.get_as(method)?;
            return Ok(output::text(&format!("denied: {denied}\n"))?);
        }
        Some(Command::Deny(DenyArgs { id, why, .. })) => {
            let id = id.ok_or_else(|| CommandFailure::Usage("no approval is named".to_owned()))?;
            let answer =
                ApprovalAnswer { approved: false, why, remember: Remember::Once, reply: None };
            ApprovalsMethod::Decide { id, answer }
        }
        Some(Command::Answer(AnswerArgs { id, select, text, value })) => {
            let selected = select.into_iter().map(|place| usize::from(place) - 1).collect();
            let reply = Some(UserReply { selected, text, values: value.into_iter().collect() });
            let answer =
                ApprovalAnswer { approved: true, why: None, remember: Remember::Once, reply };
            ApprovalsMethod::Decide { id, answer }
        }
        Some(Command::Revoke(RevokeArgs { id })) => ApprovalsMethod::Revoke { id },
    };
    context.client()?.get(ControlMethod::Approvals(method))?;
    Ok(())
}

fn list(context: &CliContext, args: &Args) -> Result<(), CommandFailure> {
    let method = ApprovalsMethod::List { all: args.all };
    let rows: Vec<Approval> = context.client()?.get_as(ControlMethod::Approvals(method))?;
    if args.json {
        return Ok(output::json(&rows)?);
    }
    for row in &rows {
        output::text(&format!("{}\n", readable(row)))?;
    }
    Ok(())
}

fn show(context: &CliContext, args: &ShowArgs) -> Result<(), CommandFailure> {
    let method = ApprovalsMethod::Show { id: args.id };
    let one: Approval = context.client()?.get_as(ControlMethod::Approvals(method))?;
    match args.json {
        true => Ok(output::json(&one)?),
        false => Ok(output::text(&format!("{}\n", readable(&one)))?),
    }
}

fn readable(one: &Approval) -> String {
    let state = serde_json::to_value(one.state).unwrap_or_default();
    if let Some(question) = &one.question {
        return asked(one, question);
    }
    let call = &one.call;
    let agent = call.agent.as_ref().map(|agent| format!(", agent {agent}")).unwrap_or_default();
    let decided = one.decided_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    let text = format!(
        "{} {} {}{decided}\n    {} of {}{agent}, until {}\n    {}\n    {}",
        one.id,
        call.tool,
        state.as_str().unwrap_or_default(),
        call.session,
        call.user,
        one.expires_at.format("%H:%M:%S"),
        one.why,
        call.input.replace('\n', "\n    "),
    );
    text.lines().map(plain::line).collect::<Vec<_>>().join("\n")
}

fn asked(one: &Approval, question: &UserQuestion) -> String {
    let options = question.options.iter().enumerate();
    let options = options.map(|(at, option)| format!("\n    {}. {option}", at + 1));
    let text = match question.free_text {
        true => "\n    or a text",
        false => "",
    };
    let fields: String = question.fields.iter().map(field_line).collect();
    let (id, session) = (one.id, one.call.session);
    let whole = format!(
        "{id} question of {session}\n    {}{}{fields}{text}\n    reply with `hivekeep approvals answer {id}`",
        question.question,
        options.collect::<String>(),
    );
    whole.lines().map(plain::line).collect::<Vec<_>>().join("\n")
}

/// A field of a form, with how it is answered.
fn field_line(field: &FormField) -> String {
    let kind = serde_json::to_value(field.kind).unwrap_or_default();
    let values: Vec<_> = field.options.iter().map(|option| option.value.as_str()).collect();
    let told = [
        field.title.clone().or_else(|| field.description.clone()),
        (!values.is_empty()).then(|| values.join(" | ")),
        field.default.as_ref().map(|value| format!("default {value}")),
        field.optional.then(|| "may be left out".to_owned()),
    ];
    let told: Vec<_> = told.into_iter().flatten().collect();
    format!(
        "\n    --value {}=<{}>  {}",
        field.name,
        kind.as_str().unwrap_or_default(),
        told.join(", ")
    )
}

/// Tells each approval as it comes, and on a terminal asks what is to become of it.
fn follow(context: &CliContext, json: bool) -> Result<(), CommandFailure> {
    let (mut watching, mut deciding) = (context.client()?, context.client()?);
    let asks = !json && std::io::stdin().is_terminal();
    let each = |value: Value| -> Result<(), CommandFailure> {
        if json {
            return Ok(output::json(&value)?);
        }
        let one: Approval = serde_json::from_value(value)
            .map_err(|error| CommandFailure::Other(error.to_string()))?;
        output::text(&format!("{}\n", readable(&one)))?;
        let answer = match asks && one.question.is_none() {
            true => ask()?,
            false => None,
        };
        if let Some(answer) = answer {
            let method = ApprovalsMethod::Decide { id: one.id, answer };
            // An approval that is over meanwhile is no reason to stop.
            if let Err(error) = deciding.get(ControlMethod::Approvals(method)) {
                eprintln!("{error}");
            }
        }
        Ok(())
    };
    watching.ask(ControlMethod::Approvals(ApprovalsMethod::Follow {}), each)?;
    Ok(())
}

/// Asks the person at the terminal; `None` leaves the approval to others.
fn ask() -> Result<Option<ApprovalAnswer>, CommandFailure> {
    let other = |error: std::io::Error| CommandFailure::Other(error.to_string());
    eprint!("    approve? [y]es, for this [s]ession, [n]o, [l]eave: ");
    std::io::stderr().flush().map_err(other)?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(other)?;
    let answer =
        |approved, remember| Some(ApprovalAnswer { approved, why: None, remember, reply: None });
    Ok(match line.trim() {
        "y" | "yes" => answer(true, Remember::Once),
        "s" | "session" => answer(true, Remember::Session),
        "n" | "no" => answer(false, Remember::Once),
        _ => None,
    })
}

fn grants(context: &CliContext, args: &GrantsArgs) -> Result<(), CommandFailure> {
    let method = ControlMethod::Approvals(ApprovalsMethod::Grants {});
    let rows: Vec<Grant> = context.client()?.get_as(method)?;
    if args.json {
        return Ok(output::json(&rows)?);
    }
    let table: Vec<_> = rows
        .iter()
        .map(|grant| {
            let session = grant.session.map_or("-".to_owned(), |session| session.to_string());
            let until = grant.until.format("%Y-%m-%d %H:%M:%S").to_string();
            let (tools, user) = (grant.tools.to_string(), grant.user.to_string());
            vec![grant.id.to_string(), tools, user, session, until, grant.by.clone()]
        })
        .collect();
    let heads = ["GRANT", "TOOLS", "USER", "SESSION", "UNTIL", "BY"];
    Ok(output::text(&output::table(&heads, &table))?)
}
