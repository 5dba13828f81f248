pub mod codes;
mod options;
