//! The number computed from a key of a page: from its bytes behind the page's prefix, by alphabets or by the
//! first eight bytes.
//!
//! Readers and writers of learned pages call this module. A [`KeyCode`] is a borrowed view without state. Any
//! thread.
//!
//! Invariant: a greater key has no lesser code, for any trained keys.

use std::cmp::Ordering;

use crate::base::key::head;

use super::alphabet::Alphabets;

/// How bytes behind the prefix become a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeDigits<'a> {
    /// The first eight bytes, big-endian.
    Head,
    Alphabets(Alphabets<'a>),
}

/// The code of one page's keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCode<'a> {
    /// The common prefix of the page's keys.
    pub(crate) prefix: &'a [u8],
    pub(crate) digits: CodeDigits<'a>,
    /// The number of the page's first key, whose code is 0.
    pub(crate) least: u64,
    /// Number of low bits that are dropped.
    pub(crate) shift: u32,
}

impl KeyCode<'_> {
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        self.number(key).saturating_sub(self.least).checked_shr(self.shift).unwrap_or(0)
    }

    /// The number of a key; its code is relative to `least`. Keys that do not begin with the prefix have the
    /// least or the greatest number.
    #[inline]
    pub(crate) fn number(&self, key: &[u8]) -> u64 {
        let shared = key.len().min(self.prefix.len());
        match key[..shared].cmp(&self.prefix[..shared]) {
            Ordering::Less => 0,
            Ordering::Greater => u64::MAX,
            Ordering::Equal if shared < self.prefix.len() => 0,
            Ordering::Equal => match self.digits {
                CodeDigits::Head => head(&key[shared..]),
                CodeDigits::Alphabets(alphabets) => alphabets.code(&key[shared..]),
            },
        }
    }
}

#[cfg(test)]
#[path = "code/tests.rs"]
mod tests;
