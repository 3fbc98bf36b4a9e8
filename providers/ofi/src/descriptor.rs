//! Descriptors of registered memory: the library's word, marked with the domain that it is of.
//!
//! Libraries take a descriptor for a pointer to an object of theirs. One of another domain, which safe
//! code can bring along in a buffer, has another mark and does not reach the library.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::{Desc, Errno, Error, Result};

/// Bits of a descriptor that are the library's: those that addresses of a process have.
const BITS: u32 = 48;
const WORD: usize = (1 << BITS) - 1;

const _: () = assert!(usize::BITS == 64);

/// The mark of a domain, its own for as long as that is open. Never 0.
#[derive(Debug)]
pub(crate) struct Mark(u16);

/// The marks of open domains.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl Mark {
    /// The lowest one that no open domain has.
    ///
    /// # Errors
    /// [`Errno::NoSpc`] when there is none.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (1..=u16::MAX).find(|mark| !taken.contains(mark));
        let mark = free.ok_or_else(|| {
            let what = format!("{} domains of other libraries are open", taken.len());
            Error::new(Errno::NoSpc, what)
        })?;
        taken.insert(mark);
        Ok(Self(mark))
    }

    /// The library's word, marked; none for NULL.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a word that leaves no room for the mark.
    pub(crate) fn wrap(&self, word: *mut c_void) -> Result<Desc, Error> {
        match word.expose_provenance() {
            0 => Ok(Desc::NONE),
            word if word <= WORD => Ok(Desc(word | usize::from(self.0) << BITS)),
            word => {
                let what =
                    format!("the library describes memory by {word:#x}, of more than {BITS} bits");
                Err(Error::new(Errno::NoSys, what))
            }
        }
    }

    /// The library's word; NULL for none.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a descriptor of another domain.
    #[inline]
    fn unwrap(&self, desc: Desc) -> Result<*mut c_void> {
        match desc.0 >> BITS {
            0 if desc == Desc::NONE => Ok(ptr::null_mut()),
            mark if mark == usize::from(self.0) => {
                Ok(ptr::with_exposed_provenance_mut(desc.0 & WORD))
            }
            _ => Err(Errno::Inval),
        }
    }

    /// The library's words for a list.
    ///
    /// # Errors
    /// As [`Self::unwrap`].
    #[inline]
    pub(crate) fn unwrap_all(&self, descs: &[Desc]) -> Result<Words> {
        let mut few = [ptr::null_mut(); FEW];
        let Some(room) = few.get_mut(..descs.len()) else {
            let many = descs.iter().map(|&desc| self.unwrap(desc));
            return Ok(Words::Many(many.collect::<Result<_>>()?));
        };
        for (place, &desc) in room.iter_mut().zip(descs) {
            *place = self.unwrap(desc)?;
        }
        Ok(Words::Few(few, descs.len()))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.0);
    }
}

/// Words that need no memory of their own.
const FEW: usize = 8;

/// The library's words for the pieces of a list.
#[derive(Clone)]
pub(crate) enum Words {
    Few([*mut c_void; FEW], usize),
    Many(Vec<*mut c_void>),
}

impl Words {
    fn list(&self) -> &[*mut c_void] {
        match self {
            Self::Few(words, count) => &words[..*count],
            Self::Many(words) => words,
        }
    }

    /// The first one; NULL for none.
    #[inline]
    pub(crate) fn first(&self) -> *mut c_void {
        self.list().first().copied().unwrap_or(ptr::null_mut())
    }

    /// All of them; NULL for none.
    #[inline]
    pub(crate) fn all(&self) -> *const *mut c_void {
        match self.list() {
            [] => ptr::null(),
            words => words.as_ptr(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(at: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(at)
    }

    #[test]
    fn a_descriptor_goes_back_to_the_library_by_its_own_domain_alone() {
        let (own, other) = (Mark::new().unwrap(), Mark::new().unwrap());
        for at in [1, 0x7fff_1234_5678, WORD] {
            let desc = own.wrap(word(at)).unwrap();
            let words = own.unwrap_all(&[desc]).unwrap();
            assert_eq!((words.first().addr(), words.list().len()), (at, 1));
            assert_eq!(other.unwrap_all(&[desc]).err(), Some(Errno::Inval));
            assert_eq!(own.unwrap_all(&[Desc(at)]).err(), Some(Errno::Inval));
        }
        assert_eq!(own.wrap(ptr::null_mut()).unwrap(), Desc::NONE);
        assert!(own.unwrap_all(&[Desc::NONE]).unwrap().first().is_null());
        assert!(own.unwrap_all(&[]).unwrap().all().is_null());
        let error = own.wrap(word(WORD + 1)).unwrap_err();
        assert_eq!(error.errno(), Errno::NoSys);
    }

    #[test]
    fn lists_of_any_length_keep_their_order() {
        let mark = Mark::new().unwrap();
        for count in [2, FEW, FEW + 1, 40] {
            let descs: Vec<_> = (1..=count).map(|at| mark.wrap(word(at)).unwrap()).collect();
            let words = mark.unwrap_all(&descs).unwrap();
            let back: Vec<_> = words.list().iter().map(|word| word.addr()).collect();
            assert_eq!(back, (1..=count).collect::<Vec<_>>());
            assert_eq!(words.all(), words.list().as_ptr());
        }
    }
}
