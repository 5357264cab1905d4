//! The memory that a step of a scan reads.

use crate::base::epoch::{Loaded, Pin};
use crate::cache::Cache;
use crate::levels::gaps::Gaps;
use crate::levels::view::View;

/// The view, cache and gaps of a step, under one pin.
#[derive(Clone, Copy)]
pub(crate) struct Pinned<'p> {
    /// The view of the scan's point.
    pub(crate) view: Loaded<'p, View>,
    pub(crate) pin: &'p Pin,
    pub(crate) cache: &'p Cache,
    pub(crate) gaps: &'p Gaps,
}
