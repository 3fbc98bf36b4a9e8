//! Ordered sets of the members of an address vector: fi_av_set(3). A set lists the members of a
//! collective group.
//!
//! Sets are local: each member of a group opens a set of the same endpoints in the same order.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Identity;
use crate::{AddressVector, Errno, FiAddr, Result};

/// Attributes of a set (`struct fi_av_set_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SetAttr {
    /// The initial members.
    pub range: Range,
    /// Distinguishes groups that are joined at the same time. All members of a group give the same
    /// key.
    pub comm_key: Vec<u8>,
}

/// The initial members of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// No members.
    #[default]
    Empty,
    /// All members of the vector (`FI_UNIVERSE`).
    Universe,
    /// The indices from `start` to `end`, inclusive, in steps of `stride`. Indices that are not in
    /// use are skipped.
    Indices {
        /// The first index.
        start: FiAddr,
        /// The last index.
        end: FiAddr,
        /// The step between indices; 1 selects all.
        stride: u64,
    },
}

/// An ordered set of a vector's members (`struct fid_av_set`).
#[derive(Clone, Debug)]
pub struct Set {
    vector: Option<Identity>,
    members: Vec<FiAddr>,
    comm_key: Vec<u8>,
    addr: FiAddr,
}

impl Set {
    /// Opens a set (fi_av_set(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] for a stride of 0 or an end before the start; [`Errno::NoSys`] where the
    /// vector does not list its members.
    pub fn open(av: &dyn AddressVector, attr: &SetAttr) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let members = match attr.range {
            Range::Empty => Vec::new(),
            Range::Universe => av.members()?,
            Range::Indices { start, end, stride } => {
                if stride == 0 || end.0 < start.0 {
                    return Err(Errno::Inval);
                }
                let is_in = |addr: &FiAddr| {
                    (start.0..=end.0).contains(&addr.0) && (addr.0 - start.0).is_multiple_of(stride)
                };
                av.members()?.into_iter().filter(is_in).collect()
            }
        };
        Ok(Self {
            vector: av.identity().cloned(),
            members,
            comm_key: attr.comm_key.clone(),
            addr: FiAddr(ADDRESSES | NEXT.fetch_add(1, Ordering::Relaxed)),
        })
    }

    /// Returns the identity of the vector whose indices the members are, if the vector has one.
    pub fn vector(&self) -> Option<&Identity> {
        self.vector.as_ref()
    }

    /// Returns the members in their order.
    pub fn members(&self) -> &[FiAddr] {
        &self.members
    }

    /// Returns the key with which the set was opened.
    pub fn comm_key(&self) -> &[u8] {
        &self.comm_key
    }

    /// Appends the members of `other` that are not in this set (fi_av_set_union(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] for a set of another vector's members.
    pub fn union(&mut self, other: &Self) -> Result {
        self.check_vector_of(other)?;
        for &addr in &other.members {
            if !self.members.contains(&addr) {
                self.members.push(addr);
            }
        }
        Ok(())
    }

    /// Retains the members that are also in `other` (fi_av_set_intersect(3)).
    ///
    /// # Errors
    /// As [`Self::union`].
    pub fn intersect(&mut self, other: &Self) -> Result {
        self.check_vector_of(other)?;
        self.members.retain(|addr| other.members.contains(addr));
        Ok(())
    }

    /// Removes the members of `other` (fi_av_set_diff(3)).
    ///
    /// # Errors
    /// As [`Self::union`].
    pub fn diff(&mut self, other: &Self) -> Result {
        self.check_vector_of(other)?;
        self.members.retain(|addr| !other.members.contains(addr));
        Ok(())
    }

    /// Checks that `other` has members of the same vector.
    fn check_vector_of(&self, other: &Self) -> Result {
        if self.vector == other.vector {
            Ok(())
        } else {
            Err(Errno::Inval)
        }
    }

    /// Appends a member (fi_av_set_insert(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] if `addr` is already in the set, or is not an index.
    pub fn insert(&mut self, addr: FiAddr) -> Result {
        if [FiAddr::UNSPEC, FiAddr::NOTAVAIL].contains(&addr) || self.members.contains(&addr) {
            return Err(Errno::Inval);
        }
        self.members.push(addr);
        Ok(())
    }

    /// Removes a member (fi_av_set_remove(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] if `addr` is not in the set.
    pub fn remove(&mut self, addr: FiAddr) -> Result {
        let index = self.members.iter().position(|&other| other == addr);
        self.members.remove(index.ok_or(Errno::Inval)?);
        Ok(())
    }

    /// Returns the address that identifies the set (fi_av_set_addr(3)). The address is not a
    /// destination of messages.
    pub fn addr(&self) -> FiAddr {
        self.addr
    }
}

/// The address of the first set, which is above every index of a vector.
const ADDRESSES: u64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    /// A vector with these indices in use.
    #[derive(Debug)]
    struct Indices(&'static [u64], Option<Identity>);

    impl AddressVector for Indices {
        fn insert(&self, _: &[Address], _: &mut [FiAddr]) -> Result<usize> {
            Err(Errno::NoSys)
        }

        fn remove(&self, _: &[FiAddr]) -> Result {
            Err(Errno::NoSys)
        }

        fn lookup(&self, _: FiAddr) -> Result<Address> {
            Err(Errno::NoSys)
        }

        fn members(&self) -> Result<Vec<FiAddr>> {
            Ok(self.0.iter().copied().map(FiAddr).collect())
        }

        fn identity(&self) -> Option<&Identity> {
            self.1.as_ref()
        }
    }

    const SEVEN: Indices = Indices(&[0, 1, 2, 4, 5, 6, 8], None);

    fn set(start: u64, end: u64, stride: u64) -> Result<Set> {
        let attr = SetAttr {
            range: Range::Indices {
                start: FiAddr(start),
                end: FiAddr(end),
                stride,
            },
            ..SetAttr::default()
        };
        Set::open(&SEVEN, &attr)
    }

    fn numbers(set: &Set) -> Vec<u64> {
        set.members().iter().map(|addr| addr.0).collect()
    }

    #[test]
    fn ranges_and_strides_take_existing_members() {
        assert_eq!(numbers(&set(0, 8, 2).unwrap()), [0, 2, 4, 6, 8]);
        assert_eq!(numbers(&set(1, u64::MAX - 1, 3).unwrap()), [1, 4]);
        assert_eq!(numbers(&set(2, 5, 1).unwrap()), [2, 4, 5]);
        assert_eq!(set(2, 1, 1).unwrap_err(), Errno::Inval);
        assert_eq!(set(1, 2, 0).unwrap_err(), Errno::Inval);
        let universe = SetAttr {
            range: Range::Universe,
            ..SetAttr::default()
        };
        assert_eq!(numbers(&Set::open(&SEVEN, &universe).unwrap()).len(), 7);
    }

    #[test]
    fn union_intersection_and_difference_keep_the_order_of_the_man_page() {
        let (mut low, mut high) = (set(0, 4, 1).unwrap(), set(4, 8, 1).unwrap());
        assert_ne!(low.addr(), high.addr());
        high.union(&low).unwrap();
        assert_eq!(numbers(&high), [4, 5, 6, 8, 0, 1, 2]);
        high.intersect(&set(0, 6, 2).unwrap()).unwrap();
        assert_eq!(numbers(&high), [4, 6, 0, 2]);
        high.diff(&set(0, 2, 1).unwrap()).unwrap();
        assert_eq!(numbers(&high), [4, 6]);
        low.insert(FiAddr(8)).unwrap();
        assert_eq!(low.insert(FiAddr(8)), Err(Errno::Inval));
        assert_eq!(low.insert(FiAddr::NOTAVAIL), Err(Errno::Inval));
        low.remove(FiAddr(1)).unwrap();
        assert_eq!(low.remove(FiAddr(1)), Err(Errno::Inval));
        assert_eq!(numbers(&low), [0, 2, 4, 8]);
    }

    #[test]
    fn sets_of_two_vectors_cannot_be_combined() {
        let [first, second] = [(); 2].map(|()| Indices(&[0, 1], Some(Identity::new(&"a domain"))));
        let set = |av: &Indices| Set::open(av, &SetAttr::default()).unwrap();
        let (mut set, same, foreign) = (set(&first), set(&first), set(&second));
        for change in [Set::union, Set::intersect, Set::diff] {
            assert_eq!(change(&mut set, &same), Ok(()));
            assert_eq!(change(&mut set, &foreign), Err(Errno::Inval));
        }
    }
}
