//! The fabric and the domain of an object, compared when objects are bound.
//!
//! A promise about one domain can replace an endpoint's lock, and queues and counters drive the
//! endpoints that are bound to them. So objects of two domains are never bound to each other.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{Errno, Error, Info};

/// A fabric: a provider and the provider's name for the fabric. Handles of one fabric are equal,
/// however often it was opened.
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

    /// Checks that `other`, the fabric of the object called `name`, is this one; `user` is the
    /// object that is bound to it.
    ///
    /// # Errors
    /// [`Errno::Inval`], with both fabrics.
    pub fn check(&self, user: &dyn fmt::Debug, name: &str, other: &Self) -> Result<(), Error> {
        if self == other {
            return Ok(());
        }
        let message = format!(
            "{user:?} ({self:?}): the {name} belongs to {other:?}; open both from one fabric"
        );
        Err(Error::new(Errno::Inval, message))
    }
}

impl fmt::Debug for FabricId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Names { provider, fabric } = &*self.0;
        write!(f, "{provider} fabric {fabric:?}")
    }
}

/// A domain. Two domains differ even if they were opened with one `Info`.
#[derive(Clone)]
pub struct DomainId(Arc<Domain>);

struct Domain {
    title: String,
    /// The number of the domain in this process: titles may be equal.
    number: u64,
    fabric: FabricId,
}

/// An object that was opened from a domain.
pub trait OfDomain: Any + Send + Sync {
    /// The domain.
    fn domain(&self) -> &DomainId;
}

impl DomainId {
    /// Makes the identity of a new domain of a fabric; error texts call it `title`.
    pub fn new(title: impl Into<String>, fabric: FabricId) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(Domain {
            title: title.into(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            fabric,
        }))
    }

    /// The identity of an object that is opened without a domain: no other object belongs to it.
    pub(crate) fn unnamed() -> Self {
        Self::new("no domain", FabricId::of(&Info::default()))
    }

    /// The name of the domain in error texts.
    pub fn title(&self) -> &str {
        &self.0.title
    }

    /// The domain's fabric.
    pub fn fabric(&self) -> &FabricId {
        &self.0.fabric
    }

    /// Whether both are the same domain.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Checks that `other`, the domain of the object called `name`, is this one.
    ///
    /// # Errors
    /// [`Errno::Inval`], with both domains.
    pub fn check(&self, name: &str, other: &Self) -> Result<(), Error> {
        if self.is(other) {
            return Ok(());
        }
        let message =
            format!("{self:?}: the {name} belongs to {other:?}; open both from one domain");
        Err(Error::new(Errno::Inval, message))
    }

    /// Downcasts `object`, called `name` in error texts, to the provider's type, and checks that it
    /// belongs to this domain. `shown` is the object as the text prints it.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an object of another domain or another provider; the text has both.
    pub fn downcast<T: OfDomain>(
        &self,
        name: &str,
        object: Arc<dyn Any + Send + Sync>,
        shown: &dyn fmt::Debug,
    ) -> Result<Arc<T>, Error> {
        let object: Arc<T> = object.downcast().map_err(|_| {
            let message = format!(
                "{self:?}: the {name} is of another provider ({shown:?}); open both from one domain"
            );
            Error::new(Errno::Inval, message)
        })?;
        self.check(name, object.domain())?;
        Ok(object)
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
    fn handles_of_one_fabric_are_equal_and_domains_differ() {
        assert_eq!(fabric("p", "f"), fabric("p", "f"));
        assert_ne!(fabric("p", "f"), fabric("q", "f"));
        assert_ne!(fabric("p", "f"), fabric("p", "g"));
        let [one, other] = [(); 2].map(|()| DomainId::new("a domain", fabric("p", "f")));
        assert!(one.is(&one.clone()) && !one.is(&other));
    }

    #[test]
    fn the_error_names_both_domains_with_fabric_and_provider() {
        let domain = DomainId::new("shm domain 0", fabric("shm", "shm"));
        let other = DomainId::new("tcp domain lo", fabric("tcp", "127.0.0.0/8"));
        domain.check("queue", &domain.clone()).unwrap();
        let error = domain.check("queue", &other).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        for expected in [
            "the queue",
            "shm domain 0",
            "\"shm\"",
            "tcp domain lo",
            "127.0.0.0/8",
        ] {
            assert!(error.message().contains(expected), "{expected}: {error}");
        }
    }
}
