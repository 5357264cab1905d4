//! The number of a key of a page: behind the page's prefix, by alphabets or by eight bytes.
//!
//! Readers and writers of learned pages call it. A borrowed view without state. Any thread.
//!
//! Invariant: a greater key has no lesser code, whatever keys were trained.

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
    /// All keys of the page begin with it.
    pub(crate) prefix: &'a [u8],
    pub(crate) digits: CodeDigits<'a>,
    /// The number of the page's first key. It has code 0.
    pub(crate) least: u64,
    /// Low bits that are left out.
    pub(crate) shift: u32,
}

impl KeyCode<'_> {
    #[inline]
    pub(crate) fn of(&self, key: &[u8]) -> u64 {
        self.number(key).saturating_sub(self.least).checked_shr(self.shift).unwrap_or(0)
    }

    /// The number from which codes are counted. Keys that do not begin with the prefix have the least or the
    /// greatest.
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
