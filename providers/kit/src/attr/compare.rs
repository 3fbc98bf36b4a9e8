//! The rules for matching attributes, one function each.

use std::fmt::Display;
use std::ops::BitAnd;

use selvedge::info::{MemTagFormat, Mismatch};

/// A set: every requested bit is present.
pub(super) fn subset<F>(field: &'static str, asked: F, has: F) -> Result<(), Mismatch>
where
    F: Copy + Display + PartialEq + BitAnd<Output = F>,
{
    accept(asked & has == asked, field, asked, has)
}

/// Required modes: the application accepts every one that the provider requires.
pub(super) fn required_modes<F>(field: &'static str, accepted: F, has: F) -> Result<(), Mismatch>
where
    F: Copy + Display + PartialEq + BitAnd<Output = F>,
{
    accept(accepted & has == has, field, accepted, has)
}

/// A choice: the provider's equals the requested one, or none is requested.
pub(super) fn equal<T>(field: &'static str, asked: T, has: T) -> Result<(), Mismatch>
where
    T: Copy + Default + Display + PartialEq,
{
    accept(asked == T::default() || asked == has, field, asked, has)
}

/// A limit: at least the requested one.
pub(super) fn at_most<T>(field: &'static str, asked: T, has: T) -> Result<(), Mismatch>
where
    T: Copy + Display + PartialOrd,
{
    accept(asked <= has, field, asked, has)
}

/// A guarantee: the provider's rank is as good as the requested one.
pub(super) fn ranked<T>(
    field: &'static str,
    asked: T,
    has: T,
    rank: impl Fn(T) -> u32,
) -> Result<(), Mismatch>
where
    T: Copy + Display,
{
    accept(rank(has) <= rank(asked), field, asked, has)
}

/// A name: the provider's equals the requested one in any case, or none is requested.
pub(super) fn name(field: &'static str, asked: &str, has: &str) -> Result<(), Mismatch> {
    accept(
        asked.is_empty() || asked.eq_ignore_ascii_case(has),
        field,
        asked,
        has,
    )
}

/// [`MemTagFormat::BITS`] fits any format. A format that is a number below 2^16 fits only itself. A
/// requested mask fits a mask of the provider that is at least as wide.
pub(super) fn tag_format_fits(asked: MemTagFormat, has: MemTagFormat) -> bool {
    const FIRST_MASK: u64 = 1 << 16;
    if asked == has || asked == MemTagFormat::BITS || has == MemTagFormat::BITS {
        return true;
    }
    asked.0 >= FIRST_MASK && has.0 >= FIRST_MASK && asked.0.leading_zeros() >= has.0.leading_zeros()
}

fn accept(
    fits: bool,
    field: &'static str,
    asked: impl Display,
    has: impl Display,
) -> Result<(), Mismatch> {
    if fits {
        return Ok(());
    }
    Err(Mismatch::new(field, asked, has))
}
