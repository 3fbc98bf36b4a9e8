//! Descriptors of registered memory. A descriptor consists of the library's word, which is the
//! library's own descriptor, and the tag of the domain.
//!
//! Libraries use the word as a pointer to one of their objects. Safe code may pass a descriptor of
//! another domain. Such a descriptor has another tag, so it is refused before it reaches the
//! library.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::{Desc, Errno, Error, Result};

/// Number of the low bits of a descriptor that hold the library's word: as many as the addresses of
/// a process have. The tag is in the bits above.
const WORD_BITS: u32 = 48;
const WORD_MASK: usize = (1 << WORD_BITS) - 1;

const _: () = assert!(usize::BITS == 64);

/// The tag of a domain, unique among open domains. Never 0.
#[derive(Debug)]
pub(crate) struct DomainTag(u16);

/// The tags of open domains.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

impl DomainTag {
    /// Allocates the lowest free tag.
    ///
    /// # Errors
    /// [`Errno::NoSpc`] if all tags are taken.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (1..=u16::MAX).find(|domain_tag| !taken.contains(domain_tag));
        let domain_tag = free.ok_or_else(|| {
            let message = format!(
                "{} domains of other libraries are open, which is the maximum: close one of them",
                taken.len()
            );
            Error::new(Errno::NoSpc, message)
        })?;
        taken.insert(domain_tag);
        Ok(Self(domain_tag))
    }

    /// The descriptor for a word of the library: the word with the tag, or [`Desc::NONE`] for NULL.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a word that leaves no room for the tag.
    pub(crate) fn wrap(&self, word: *mut c_void) -> Result<Desc, Error> {
        match word.expose_provenance() {
            0 => Ok(Desc::NONE),
            word if word <= WORD_MASK => Ok(Desc(word | usize::from(self.0) << WORD_BITS)),
            word => {
                let message = format!(
                    "the library's memory descriptor {word:#x} has more than {WORD_BITS} bits"
                );
                Err(Error::new(Errno::NoSys, message))
            }
        }
    }

    /// The library's word of a descriptor; NULL for [`Desc::NONE`].
    ///
    /// # Errors
    /// [`Errno::Inval`] for a descriptor of another domain.
    #[inline]
    fn unwrap(&self, desc: Desc) -> Result<*mut c_void> {
        match desc.0 >> WORD_BITS {
            0 if desc == Desc::NONE => Ok(ptr::null_mut()),
            domain_tag if domain_tag == usize::from(self.0) => {
                Ok(ptr::with_exposed_provenance_mut(desc.0 & WORD_MASK))
            }
            _ => Err(Errno::Inval),
        }
    }

    /// The library's words for a list of descriptors.
    ///
    /// # Errors
    /// As [`Self::unwrap`].
    #[inline]
    pub(crate) fn unwrap_all(&self, descs: &[Desc]) -> Result<Words> {
        let mut inline = [ptr::null_mut(); INLINE_WORDS];
        let Some(buffer) = inline.get_mut(..descs.len()) else {
            let words = descs.iter().map(|&desc| self.unwrap(desc));
            return Ok(Words::Heap(words.collect::<Result<_>>()?));
        };
        for (slot, &desc) in buffer.iter_mut().zip(descs) {
            *slot = self.unwrap(desc)?;
        }
        Ok(Words::Inline(inline, descs.len()))
    }
}

impl Drop for DomainTag {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.0);
    }
}

/// Maximum number of words that are stored without an allocation.
const INLINE_WORDS: usize = 8;

/// The library's words for the segments of a list.
#[derive(Clone)]
pub(crate) enum Words {
    /// So many words at the start of the array.
    Inline([*mut c_void; INLINE_WORDS], usize),
    Heap(Vec<*mut c_void>),
}

impl Words {
    fn list(&self) -> &[*mut c_void] {
        match self {
            Self::Inline(words, count) => &words[..*count],
            Self::Heap(words) => words,
        }
    }

    /// The first word; NULL if there is none.
    #[inline]
    pub(crate) fn first(&self) -> *mut c_void {
        self.list().first().copied().unwrap_or(ptr::null_mut())
    }

    /// A pointer to all words; NULL if there are none.
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

    fn word(value: usize) -> *mut c_void {
        ptr::with_exposed_provenance_mut(value)
    }

    #[test]
    fn only_its_own_domain_passes_a_descriptor_to_the_library() {
        let (own, other) = (DomainTag::new().unwrap(), DomainTag::new().unwrap());
        for value in [1, 0x7fff_1234_5678, WORD_MASK] {
            let desc = own.wrap(word(value)).unwrap();
            let words = own.unwrap_all(&[desc]).unwrap();
            assert_eq!((words.first().addr(), words.list().len()), (value, 1));
            assert_eq!(other.unwrap_all(&[desc]).err(), Some(Errno::Inval));
            assert_eq!(own.unwrap_all(&[Desc(value)]).err(), Some(Errno::Inval));
        }
        assert_eq!(own.wrap(ptr::null_mut()).unwrap(), Desc::NONE);
        assert!(own.unwrap_all(&[Desc::NONE]).unwrap().first().is_null());
        assert!(own.unwrap_all(&[]).unwrap().all().is_null());
        let error = own.wrap(word(WORD_MASK + 1)).unwrap_err();
        assert_eq!(error.errno(), Errno::NoSys);
    }

    #[test]
    fn lists_of_any_length_keep_their_order() {
        let domain_tag = DomainTag::new().unwrap();
        for count in [2, INLINE_WORDS, INLINE_WORDS + 1, 40] {
            let descs: Vec<_> = (1..=count)
                .map(|value| domain_tag.wrap(word(value)).unwrap())
                .collect();
            let words = domain_tag.unwrap_all(&descs).unwrap();
            let back: Vec<_> = words.list().iter().map(|word| word.addr()).collect();
            assert_eq!(back, (1..=count).collect::<Vec<_>>());
            assert_eq!(words.all(), words.list().as_ptr());
        }
    }
}
