//! Service locator of one daemon, filled in the order in which families are mounted.

use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use hivekeep_kernel::ToolError;

/// Services that families offer each other, by type: a trait (`dyn Vault`) or a plain value. Cheap
/// to clone; all clones share one table.
#[derive(Clone, Default)]
pub struct Ports(Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>);

impl Ports {
    /// Offers a port to the families that are mounted later. A second one of the type replaces the
    /// first.
    pub fn offer<T: ?Sized + Send + Sync + 'static>(&self, port: Arc<T>) {
        let mut ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.insert(TypeId::of::<T>(), Box::new(port));
    }

    /// Port of this type, if a family has offered one.
    pub fn find<T: ?Sized + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ports.get(&TypeId::of::<T>())?.downcast_ref::<Arc<T>>().cloned()
    }

    /// Port of this type, without which a family cannot be mounted.
    ///
    /// # Errors
    /// `internal`, with the type: nobody offers it, or only a family later in the list.
    pub fn need<T: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<T>, ToolError> {
        self.find().ok_or_else(|| {
            let name = type_name::<T>();
            ToolError::internal(format!("no family that is mounted before offers {name}"))
        })
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Ports").field("len", &ports.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Greets: Send + Sync {
        fn greet(&self) -> String;
    }
    struct English;
    impl Greets for English {
        fn greet(&self) -> String {
            "hello".to_owned()
        }
    }

    #[test]
    fn a_port_is_found_by_its_type_and_by_no_other() {
        let ports = Ports::default();
        let refused = ports.need::<dyn Greets>().err().expect("nobody offers it");
        assert_eq!(refused.code, "internal");
        assert!(refused.message.contains("Greets"), "{refused:?}");

        ports.clone().offer::<dyn Greets>(Arc::new(English));
        assert_eq!(ports.need::<dyn Greets>().expect("offered").greet(), "hello");
        assert!(ports.find::<English>().is_none(), "it is offered as what it does");

        ports.offer(Arc::new(7_u32));
        assert_eq!(ports.find::<u32>().as_deref(), Some(&7));
    }
}
