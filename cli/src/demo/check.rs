//! Checks of answers: counted, with the first wrong answer kept.

use serde::Serialize;

/// One kind of answer.
#[derive(Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) checked: u64,
    pub(crate) wrong: u64,
    /// The first wrong answer.
    pub(crate) first_wrong: Option<String>,
}

impl Check {
    pub(crate) fn new(name: &'static str) -> Check {
        Check { name, checked: 0, wrong: 0, first_wrong: None }
    }

    /// Counts an answer; `describe` is called for the first wrong one.
    pub(crate) fn verify(&mut self, is_right: bool, describe: impl FnOnce() -> String) {
        self.checked += 1;
        if !is_right {
            self.wrong += 1;
            self.first_wrong.get_or_insert_with(describe);
        }
    }
}
