//! Failpoints: named points at which tests make the daemon die, fail or wait.
//!
//! Without the feature `failpoints` a point compiles to nothing. With it, the environment variable
//! `FAILPOINTS` arms points, for example `FAILPOINTS=create.after_plan=panic`; see the `fail`
//! crate. The action `return(kill)` sends SIGKILL to the process itself.

/// Passes a named point.
#[macro_export]
macro_rules! fault_point {
    ($name:expr) => {
        $crate::fault::pass($name)
    };
}

/// Evaluates a named point; the function behind [`fault_point!`].
pub fn pass(name: &str) {
    let _ = name;
    #[cfg(feature = "failpoints")]
    fail::eval(name, |action| {
        if action.as_deref() == Some("kill") {
            let this = rustix::process::getpid();
            let _never_returns = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        }
    });
}

/// Arms the points named in the environment. Call once, at start.
pub fn arm_from_env() {
    #[cfg(feature = "failpoints")]
    std::mem::forget(fail::FailScenario::setup());
}
