//! The fabric and the domain that an object was opened from, compared when objects are bound.
//!
//! An endpoint leaves out its lock on the strength of a promise about one domain, and queues and
//! counters drive the endpoints that are bound to them. So objects of two domains are never bound to
//! each other.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{Errno, Error, Info};

/// A fabric: a provider, and a name of the provider's. Handles of one fabric are equal, however often
/// it was opened.
#[derive(Clone, PartialEq, Eq)]
pub struct FabricId(Arc<Names>);

#[derive(PartialEq, Eq)]
struct Names {
    provider: String,
    fabric: String,
}

impl FabricId {
    /// The fabric that is opened with `info`.
    pub fn of(info: &Info) -> Self {
        let attr = &info.fabric_attr;
        Self(Arc::new(Names {
            provider: attr.prov_name.clone(),
            fabric: attr.name.clone(),
        }))
    }

    /// Makes sure that `other`, the fabric of what messages call `name`, is this one; `user` is what
    /// is bound to it.
    ///
    /// # Errors
    /// [`Errno::Inval`], which names both fabrics.
    pub fn check(&self, user: &dyn fmt::Debug, name: &str, other: &Self) -> Result<(), Error> {
        if self == other {
            return Ok(());
        }
        let what = format!(
            "{user:?} ({self:?}): the {name} belongs to {other:?}; open both from one fabric"
        );
        Err(Error::new(Errno::Inval, what))
    }
}

impl fmt::Debug for FabricId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { provider, fabric } = &*self.0;
        write!(f, "{provider} fabric {fabric:?}")
    }
}

/// A domain. Two domains differ although they were opened with one `Info`.
#[derive(Clone)]
pub struct DomainId(Arc<Domain>);

struct Domain {
    title: String,
    /// Counts the domains of the process: their names may be equal.
    number: u64,
    fabric: FabricId,
}

/// An object that was opened from a domain.
pub trait OfDomain: Any + Send + Sync {
    /// The domain.
    fn domain(&self) -> &DomainId;
}

impl DomainId {
    /// A new domain of a fabric, called `title` in messages.
    pub fn new(title: impl Into<String>, fabric: FabricId) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(Domain {
            title: title.into(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            fabric,
        }))
    }

    /// The identity of what is opened without a domain: nothing else belongs to it.
    pub(crate) fn unnamed() -> Self {
        Self::new("no domain", FabricId::of(&Info::default()))
    }

    /// What messages call it.
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// Its fabric.
    pub fn fabric(&self) -> &FabricId {
        &self.0.fabric
    }

    /// Whether both are one domain.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Makes sure that `other`, the domain of what messages call `name`, is this one.
    ///
    /// # Errors
    /// [`Errno::Inval`], which names both domains.
    pub fn check(&self, name: &str, other: &Self) -> Result<(), Error> {
        if self.is(other) {
            return Ok(());
        }
        let what = format!("{self:?}: the {name} belongs to {other:?}; open both from one domain");
        Err(Error::new(Errno::Inval, what))
    }

    /// `object`, called `name` in messages, as one of this domain and of the type that the provider
    /// opens.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an object of another domain or another provider, which names both.
    pub fn downcast<T: OfDomain>(
        &self,
        name: &str,
        object: Arc<dyn Any + Send + Sync>,
        shown: &dyn fmt::Debug,
    ) -> Result<Arc<T>, Error> {
        let own: Arc<T> = object.downcast().map_err(|_| {
            let what = format!(
                "{self:?}: the {name} is of another provider ({shown:?}); open both from one domain"
            );
            Error::new(Errno::Inval, what)
        })?;
        self.check(name, own.domain())?;
        Ok(own)
    }
}

impl fmt::Debug for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Domain {
            title,
            number,
            fabric,
        } = &*self.0;
        write!(f, "{title} (number {number}, {fabric:?})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabric(provider: &str, name: &str) -> FabricId {
        let mut info = Info::default();
        info.fabric_attr.prov_name = provider.into();
        info.fabric_attr.name = name.into();
        FabricId::of(&info)
    }

    #[test]
    fn a_fabric_that_is_opened_twice_is_one_and_a_domain_is_two() {
        assert_eq!(fabric("p", "f"), fabric("p", "f"));
        assert_ne!(fabric("p", "f"), fabric("q", "f"));
        assert_ne!(fabric("p", "f"), fabric("p", "g"));
        let [one, other] = [(); 2].map(|()| DomainId::new("a domain", fabric("p", "f")));
        assert!(one.is(&one.clone()) && !one.is(&other));
    }

    #[test]
    fn a_refusal_names_both_domains_with_fabric_and_provider() {
        let own = DomainId::new("shm domain 0", fabric("shm", "shm"));
        let other = DomainId::new("tcp domain lo", fabric("tcp", "127.0.0.0/8"));
        own.check("queue", &own.clone()).unwrap();
        let error = own.check("queue", &other).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        for part in [
            "the queue",
            "shm domain 0",
            "\"shm\"",
            "tcp domain lo",
            "127.0.0.0/8",
        ] {
            assert!(error.message().contains(part), "{part}: {error}");
        }
    }
}
