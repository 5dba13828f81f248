//! Context of a subcommand: the options before it, the configuration, the way to the daemon.

use std::{ffi::OsString, path::PathBuf};

use super::{CommandFailure, client::Client, reach::DaemonReach};
use crate::config::{ConfigProblems, ConfigSources, LoadedConfig};

// Its documentation would become the program's.
#[derive(Debug, clap::Args)]
pub(super) struct Global {
    /// The configuration file, instead of the first that is found.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one configuration key, for example `daemon.log_level=debug`.
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

/// The command line of this process, as every subcommand needs it.
pub(crate) struct CliContext {
    global: Global,
}

impl CliContext {
    pub(super) fn new(global: Global) -> Self {
        Self { global }
    }

    /// The effective configuration.
    pub(super) fn load(&self) -> Result<LoadedConfig, ConfigProblems> {
        crate::config::load(&ConfigSources::from_process(self.global.config.clone(), self.flags()))
    }

    fn flags(&self) -> Vec<(String, String)> {
        self.global.set.iter().map(|text| ("--set".to_owned(), text.clone())).collect()
    }

    /// The way to the daemon of this configuration.
    pub(super) fn reach(&self, loaded: &LoadedConfig) -> DaemonReach {
        let mut config_args: Vec<OsString> = Vec::new();
        if let Some(file) = &loaded.file {
            // Absolute: the daemon works from the root folder.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            config_args.extend(["--config".into(), file.into()]);
        }
        for text in &self.global.set {
            config_args.extend(["--set".into(), text.into()]);
        }
        DaemonReach { folders: loaded.folders.clone(), config_args }
    }

    /// A connection to the running daemon.
    pub(super) fn client(&self) -> Result<Client, CommandFailure> {
        Ok(Client::connect(&self.reach(&self.load()?))?)
    }
}
