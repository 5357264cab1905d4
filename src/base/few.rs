//! Lists that mostly have one member, which is stored inline and costs no allocation.

use smallvec::SmallVec;

/// See the module. Two or more members lie on the heap, and stay where they are when the list is moved.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// Memory that a list takes besides its own bytes.
pub(crate) fn heap_bytes<T>(list: &Few<T>) -> usize {
    if list.spilled() { list.capacity() * size_of::<T>() } else { 0 }
}
