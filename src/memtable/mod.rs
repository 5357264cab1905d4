//! Memtable generations.
