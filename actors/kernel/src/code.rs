//! A catalogue of error codes: each is a constant that says what it means, why it usually
//! happens and what to do, so that documents and the command line can explain it.

/// A code of [`ToolError`](crate::ToolError)s. Declared by [`codes!`](macro@crate::codes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// Stable name in snake_case, for programs to act on.
    pub name: &'static str,
    /// Meaning, in one sentence.
    pub meaning: &'static str,
    /// Usual cause, in one or two sentences.
    pub cause: &'static str,
    /// Next step for whoever meets the error.
    pub next_step: &'static str,
}

/// Declares error codes as constants of the module that it stands in, and their list `ALL`. The
/// doc comment is the meaning.
///
/// ```
/// hivekeep_kernel::codes! {
///     /// The script does not exist.
///     SCRIPT_NOT_FOUND = "script_not_found" {
///         cause: "The name is wrong, or the script was deleted.",
///         next: "`script_list` shows the scripts.",
///     }
/// }
/// assert_eq!(ALL[0].meaning, "The script does not exist.");
/// ```
#[macro_export]
macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $code:ident = $name:literal {
        cause: $cause:literal, next: $next:literal $(,)?
    })+) => {
        $(
            $(#[doc = $meaning])+
            pub const $code: &$crate::ErrorCode = &$crate::ErrorCode {
                name: $name,
                meaning: concat!($($meaning),+).trim_ascii(),
                cause: $cause,
                next_step: $next,
            };
        )+
        /// All codes of this module, in the order of their declaration.
        pub const ALL: &[&$crate::ErrorCode] = &[$($code),+];
    };
}
