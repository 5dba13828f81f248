//! Command line: a file for each subcommand, or for those that have one subject.

#[cfg(feature = "full")]
mod acp;
mod approvals;
mod artifact;
mod audit;
#[cfg(feature = "full")]
mod backup;
mod browse;
mod call;
#[cfg(feature = "full")]
mod chat;
mod client;
mod config;
mod daemon;
#[cfg(feature = "full")]
mod dag;
mod image;
#[cfg(feature = "full")]
mod ingest;
mod integrate;
mod logs;
mod mcp;
mod models;
mod output;
mod policy;
mod ps;
mod reach;
mod reference;
#[cfg(feature = "full")]
mod replay;
#[cfg(feature = "full")]
mod runs;
mod sessions;
#[cfg(feature = "full")]
mod team;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use client::{CliContext, Global};
pub use output::CommandFailure;

/// Workspaces in real virtual machines, as tools for agents.
#[derive(Debug, Parser)]
#[command(
    name = "hivekeep",
    version,
    propagate_version = true,
    after_help = "\
Start with `hivekeep check` and `hivekeep daemon`, then attach an MCP client to
`hivekeep mcp`, or try `hivekeep call workspace_list`."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Daemon(daemon::Args),
    Mcp(mcp::Args),
    #[cfg(feature = "full")]
    Acp(acp::Args),
    Call(call::Args),
    Browse(browse::Args),
    #[cfg(feature = "full")]
    Ingest(ingest::Args),
    #[cfg(feature = "full")]
    Ask(ingest::AskArgs),
    Tools(reference::ToolsArgs),
    Errors(reference::ErrorsArgs),
    Ps(ps::Args),
    Sessions(sessions::Args),
    Credential(sessions::CredentialArgs),
    Status(daemon::StatusArgs),
    Stop(daemon::StopArgs),
    Check(config::CheckArgs),
    Image(image::Args),
    #[cfg(feature = "full")]
    Backup(backup::Args),
    #[cfg(feature = "full")]
    Restore(backup::RestoreArgs),
    Logs(logs::Args),
    Events(audit::EventsArgs),
    Artifact(artifact::Args),
    Metrics(audit::MetricsArgs),
    Audit(audit::Args),
    Models(models::Args),
    Policy(policy::Args),
    Approvals(approvals::Args),
    #[cfg(feature = "full")]
    Agents(runs::AgentsArgs),
    #[cfg(feature = "full")]
    Runs(runs::Args),
    #[cfg(feature = "full")]
    Run(dag::RunArgs),
    #[cfg(feature = "full")]
    Dag(dag::Args),
    #[cfg(feature = "full")]
    Chat(chat::Args),
    #[cfg(feature = "full")]
    Replay(replay::Args),
    #[cfg(feature = "full")]
    Team(team::Args),
    Config(config::Args),
    Integrate(integrate::Args),
    Hook(integrate::HookArgs),
    Completions(reference::CompletionsArgs),
    Man(reference::ManArgs),
    #[cfg(feature = "full")]
    #[command(name = hivekeep_ingest::READ_PDF, hide = true)]
    ReadPdf(ingest::ReadPdfArgs),
    #[cfg(feature = "full")]
    #[command(name = hivekeep_workflow::JQ_ARGUMENT, hide = true)]
    JqFilter(dag::JqArgs),
}

/// Parses the command line and does what it says.
pub fn main() -> ExitCode {
    hivekeep_kernel::fault::arm_from_env();
    let Cli { global, command } = Cli::parse();
    let context = CliContext::new(global);
    let outcome = match command {
        Command::Daemon(args) => daemon::run(&context, args),
        Command::Mcp(args) => mcp::run(&context, args),
        #[cfg(feature = "full")]
        Command::Acp(args) => acp::run(&context, args),
        Command::Call(args) => call::run(&context, args),
        Command::Browse(args) => browse::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Ingest(args) => ingest::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Ask(args) => ingest::ask(&context, &args),
        Command::Tools(args) => reference::tools(args),
        Command::Errors(args) => reference::errors(args),
        Command::Ps(args) => ps::run(&context, args),
        Command::Sessions(args) => sessions::run(&context, args),
        Command::Credential(args) => sessions::credential(&context, args),
        Command::Status(args) => daemon::status(&context, args),
        Command::Stop(args) => daemon::stop(&context, args),
        Command::Check(args) => config::check(&context, args),
        Command::Image(args) => image::run(&context, args),
        #[cfg(feature = "full")]
        Command::Backup(args) => backup::run(&context, args),
        #[cfg(feature = "full")]
        Command::Restore(args) => backup::restore(&context, args),
        Command::Logs(args) => logs::run(&context, args),
        Command::Events(args) => audit::events(&context, args),
        Command::Artifact(args) => artifact::run(&context, args),
        Command::Metrics(args) => audit::metrics(&context, args),
        Command::Audit(args) => audit::run(&context, args),
        Command::Models(args) => models::run(&context, args),
        Command::Policy(args) => policy::run(&context, args),
        Command::Approvals(args) => approvals::run(&context, args),
        #[cfg(feature = "full")]
        Command::Agents(args) => runs::agents(&context, &args),
        #[cfg(feature = "full")]
        Command::Runs(args) => runs::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Run(args) => dag::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Dag(args) => dag::dag(&context, &args),
        #[cfg(feature = "full")]
        Command::Chat(args) => chat::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Replay(args) => replay::run(&context, &args),
        #[cfg(feature = "full")]
        Command::Team(args) => team::run(&context, args),
        Command::Config(args) => config::run(&context, args),
        Command::Integrate(args) => integrate::run(args),
        Command::Hook(args) => integrate::hook(&context, args),
        Command::Completions(args) => reference::completions(args, &mut Cli::command()),
        Command::Man(args) => reference::man(args, Cli::command()),
        #[cfg(feature = "full")]
        Command::ReadPdf(args) => ingest::read_pdf(&args),
        #[cfg(feature = "full")]
        Command::JqFilter(_) => return hivekeep_workflow::jq_main(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_argument_is_explained() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        let mut waiting: Vec<_> = cli.get_subcommands().cloned().collect();
        while let Some(command) = waiting.pop() {
            if command.get_name() == "help" {
                continue;
            }
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for argument in command.get_arguments() {
                let explained = argument.get_help().is_some() || argument.get_long_help().is_some();
                assert!(explained, "{} {} has no help", command.get_name(), argument.get_id());
            }
            waiting.extend(command.get_subcommands().cloned());
        }
    }
}
