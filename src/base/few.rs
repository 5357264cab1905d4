//! Lists of which most have one member: that one lies in place, and costs no allocation.

use smallvec::SmallVec;

/// See the module. More than one lie on the heap, and stay where they are when the list is moved.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// Memory that a list takes beside its own bytes.
pub(crate) fn heap_bytes<T>(list: &Few<T>) -> usize {
    if list.spilled() { list.capacity() * size_of::<T>() } else { 0 }
}
