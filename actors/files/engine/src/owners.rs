//! Names of users and groups, as the root itself has them.

use std::{cell::RefCell, collections::HashMap, io::Read};

use crate::FileRoot;

/// Size of a table that is read.
const TABLE_BYTES: u64 = 1024 * 1024;

/// Names of users and groups of a guest; of a folder of the host there are numbers alone.
pub(crate) struct Owners<'r> {
    root: &'r FileRoot,
    users: RefCell<Option<HashMap<u32, String>>>,
    groups: RefCell<Option<HashMap<u32, String>>>,
}

impl<'r> Owners<'r> {
    pub(crate) fn of(root: &'r FileRoot) -> Self {
        Self { root, users: RefCell::default(), groups: RefCell::default() }
    }

    /// Name of a user, or the number.
    pub(crate) fn user(&self, uid: u32) -> String {
        self.name(&self.users, "etc/passwd", uid)
    }

    /// Name of a group, or the number.
    pub(crate) fn group(&self, gid: u32) -> String {
        self.name(&self.groups, "etc/group", gid)
    }

    fn name(&self, table: &RefCell<Option<HashMap<u32, String>>>, path: &str, id: u32) -> String {
        let mut table = table.borrow_mut();
        let names = table.get_or_insert_with(|| self.read(path).unwrap_or_default());
        names.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// Both tables have the name first and the number third; the first row of a number counts.
    fn read(&self, path: &str) -> Option<HashMap<u32, String>> {
        let path = self.root.is_system().then(|| self.root.path(&format!("/{path}")).ok())??;
        let (file, _) = crate::read::open(self.root, &path).ok()?;
        let mut text = Vec::new();
        file.take(TABLE_BYTES).read_to_end(&mut text).ok()?;
        let mut names = HashMap::new();
        for row in String::from_utf8_lossy(&text).lines() {
            let mut fields = row.split(':');
            if let (Some(name), Some(id)) = (fields.next(), fields.nth(1))
                && let Ok(id) = id.parse()
            {
                names.entry(id).or_insert_with(|| name.chars().take(80).collect());
            }
        }
        Some(names)
    }
}
