//! A finding of tidy: its place, the fault, and the remedy.

use std::fmt;

/// One breach of a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) wrong: String,
    pub(crate) instead: String,
}

impl Finding {
    pub(crate) fn new(
        path: &str,
        line: usize,
        wrong: impl Into<String>,
        instead: impl Into<String>,
    ) -> Finding {
        Finding { path: path.to_string(), line, wrong: wrong.into(), instead: instead.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}. {}", self.path, self.line, self.wrong, self.instead)
    }
}
