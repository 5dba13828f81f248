//! `hivekeep-guest`: see the library for its roles.

use std::process::ExitCode;

use hivekeep_guest::agent::daemon;
use hivekeep_guest::{as_user, ask, init, jobs, mcp, reap, sandbox, say, selftest, settings};

const USAGE: &str = "usage: hivekeep-guest ROLE ...
  init                 PID 1 of a machine; reads the kernel command line
  sandbox OPTIONS      PID 1 of a sandbox
  agent OPTIONS        the daemon
  reap, job            shims that the daemon starts
  as USER PROGRAM ...  a program as a user of this root
  askpass PROMPT       asks the daemon for git
  mcp PORT             MCP over stdin and stdout, for a program whose daemon is behind that port
  selftest-vsock       the vsock carrier against this machine's own loopback
  selftest-spawn [N]   time of N starts of `sh -c true`, in microseconds
  selftest-calls [N..] what a sandbox's filters answer: to sockets and newer calls, or to calls N
  selftest-raw PORT    plain bytes over a virtio-serial port, to measure the link against";

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let called = words.next().unwrap_or_default();
    let is_init = std::process::id() == 1 && called.to_string_lossy().ends_with("init");
    let is_askpass = called.to_string_lossy().ends_with(ask::PROGRAM);
    let role = match (is_init, is_askpass) {
        (true, _) => Some("init".into()),
        (_, true) => Some("askpass".into()),
        _ => words.next(),
    };
    let outcome = match role.as_ref().and_then(|role| role.to_str()) {
        Some("init") => init::run(),
        Some("reap") => return reap::run(),
        Some("as") => return as_user::run(words),
        Some("askpass") => return ask::askpass(words),
        Some("mcp") => return mcp::run(words),
        Some("job") => return jobs::shim::run(words),
        Some("agent") => settings::agent(words).map_err(Into::into).and_then(daemon::run),
        Some("sandbox") => settings::sandbox(words).map_err(Into::into).and_then(sandbox::run),
        Some("selftest-vsock") => selftest::vsock(),
        Some("selftest-spawn") => selftest::spawn(words.next()),
        Some("selftest-calls") => selftest::calls(words),
        Some("selftest-raw") => selftest::raw(words.next()),
        _ => {
            say!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        say!("{error}");
        ExitCode::FAILURE
    })
}
