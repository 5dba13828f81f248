//! Files and folders of the host: durable changes, and removal of trees that a guest made.

mod durable;
mod trees;

pub use durable::{
    make_folder, part_of, remove_file, rename, rename_new, replace, replace_by, sync_file,
    sync_folder, sync_parent, sync_tree,
};
pub use trees::remove_tree;
