//! The view of a scan and what is looked at beside it.

use crate::base::epoch::{Loaded, Pin};
use crate::cache::Cache;
use crate::levels::gaps::Gaps;
use crate::levels::view::View;

/// What a step looks at, under one pin.
#[derive(Clone, Copy)]
pub(crate) struct Pinned<'p> {
    /// Of the scan's point.
    pub(crate) view: Loaded<'p, View>,
    pub(crate) pin: &'p Pin,
    pub(crate) cache: &'p Cache,
    pub(crate) gaps: &'p Gaps,
}
